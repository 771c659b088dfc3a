"""How far a judge agrees with the environment's own outcome: accuracy, Cohen's kappa, and the area under the ROC curve.

Only trajectories with both, a score and an outcome, are looked at. None is a number that is not defined there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from agentgym_rl.errors import DataError

THRESHOLD = 0.5
"""From this score on the judge is taken to say: solved."""


class Agreement(NamedTuple):
    """Of scores with outcomes."""

    size: int
    accuracy: float | None
    """Share in which (score >= threshold) is the outcome; None without any."""
    kappa: float | None
    """Accuracy above chance; None where chance alone would agree everywhere."""
    auc: float | None
    """Chance that a solved one scores above an unsolved one, ties counting half; None without one of each."""
    auc_within_tasks: float | None
    """The same over pairs of the same task, which is what a group's advantages depend on."""


def agreement(
    scores: Sequence[float], outcomes: Sequence[bool], tasks: Sequence[Hashable], threshold: float = THRESHOLD
) -> Agreement:
    """Compare, place by place.

    Args:
        scores: of the judge.
        outcomes: of the environment.
        tasks: what tells the tasks apart.

    Raises:
        DataError: not equally many of each.
    """
    if not len(scores) == len(outcomes) == len(tasks):
        raise DataError(f"{len(scores)} scores, {len(outcomes)} outcomes and {len(tasks)} tasks; expected the same")
    verdicts = [score >= threshold for score in scores]
    pairs_of = defaultdict(list)
    for score, outcome, task in zip(scores, outcomes, tasks, strict=True):
        pairs_of[task].append((score, outcome))
    within = [_won([s for s, o in pairs if o], [s for s, o in pairs if not o]) for pairs in pairs_of.values()]
    solved = [score for score, outcome in zip(scores, outcomes, strict=True) if outcome]
    unsolved = [score for score, outcome in zip(scores, outcomes, strict=True) if not outcome]
    return Agreement(
        len(scores),
        _accuracy(verdicts, outcomes),
        kappa(verdicts, outcomes),
        _share([_won(solved, unsolved)]),
        _share(within),
    )


def kappa(verdicts: Sequence[bool], outcomes: Sequence[bool]) -> float | None:
    """(p_o - p_e) / (1 - p_e), with p_o the share of equal places and p_e that of two who draw by their own rates.

    Source: Cohen (1960), A coefficient of agreement for nominal scales.
    """
    observed = _accuracy(verdicts, outcomes)
    if observed is None:
        return None
    first, second = sum(verdicts) / len(verdicts), sum(outcomes) / len(outcomes)
    expected = first * second + (1 - first) * (1 - second)
    return None if expected == 1 else (observed - expected) / (1 - expected)


class _Won(NamedTuple):
    """Pairs of a solved and an unsolved one in which the solved one scores higher, and pairs in all."""

    pairs: float
    of: int


def _won(solved: Sequence[float], unsolved: Sequence[float]) -> _Won:
    """Mann and Whitney's U, ties counting half."""
    ranked = sorted(unsolved)
    wins = sum((bisect_left(ranked, score) + bisect_right(ranked, score)) / 2 for score in solved)
    return _Won(wins, len(solved) * len(unsolved))


def _share(won: Sequence[_Won]) -> float | None:
    of = sum(part.of for part in won)
    return sum(part.pairs for part in won) / of if of else None


def _accuracy(verdicts: Sequence[bool], outcomes: Sequence[bool]) -> float | None:
    if not verdicts:
        return None
    return sum(verdict == outcome for verdict, outcome in zip(verdicts, outcomes, strict=True)) / len(verdicts)
