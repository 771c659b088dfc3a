"""Success rates with their 95% intervals.

None is an episode without a verdict (it failed, or nobody can tell): it is excluded and counted, never taken for 0.
Episodes count as independent; where a task was played several times, an interval speaks about those tasks only.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from agentgym_rl.errors import DataError

CONFIDENCE = 0.95

Episode = TypeVar("Episode", bound=Hashable)
"""Whatever names an episode, e.g. (task id, number)."""


class Estimate(NamedTuple):
    """A number with its 95% interval; None where too little is known to say."""

    value: float | None
    low: float | None
    high: float | None
    size: int
    """What the estimate rests on: episodes, pairs or seeds."""
    excluded: int = 0
    """What had no verdict."""

    @classmethod
    def undefined(cls, excluded: int = 0) -> Estimate:
        return cls(None, None, None, 0, excluded)


def success_rate(outcomes: Iterable[bool | None]) -> Estimate:
    """Share of successes with Wilson's interval, which stays sensible at 0%, at 100% and for few episodes.

    Source: Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    outcomes = list(outcomes)
    decided = [outcome for outcome in outcomes if outcome is not None]
    excluded = len(outcomes) - len(decided)
    if not decided:
        return Estimate.undefined(excluded)
    low, high = _wilson(sum(decided), len(decided))
    return Estimate(sum(decided) / len(decided), low, high, len(decided), excluded)


def difference(first: Mapping[Episode, bool | None], second: Mapping[Episode, bool | None]) -> Estimate:
    """Success rate of `second` minus that of `first` on the same tasks, with Newcombe's paired interval.

    Args:
        first, second: episode -> outcome, for the same episodes; a pair without both verdicts is excluded.

    Raises:
        DataError: the episodes are not the same.
    Source: Newcombe (1998), Improved confidence intervals for the difference between binomial proportions based on
        paired data, method 10.
    """
    if first.keys() != second.keys():
        odd = sorted(map(str, first.keys() ^ second.keys()))
        raise DataError(f"success rates are compared on the same tasks; only one side has {odd[0]} ({len(odd)} such)")
    pairs = [(first[key], second[key]) for key in first]
    decided = [pair for pair in pairs if None not in pair]
    excluded = len(pairs) - len(decided)
    if not decided:
        return Estimate.undefined(excluded)
    both, only_first, only_second, neither = (
        decided.count(pair) for pair in [(True, True), (True, False), (False, True), (False, False)]
    )
    low, high = _newcombe(both, only_second, only_first, neither)
    return Estimate((only_second - only_first) / len(decided), low, high, len(decided), excluded)


def mean_over_seeds(values: Sequence[float]) -> Estimate:
    """Mean with Student's t-interval: mean -+ t * s / sqrt(n), s with n - 1. One seed has no interval."""
    if not values:
        return Estimate.undefined()
    count, mean = len(values), math.fsum(values) / len(values)
    if count == 1:
        return Estimate(mean, None, None, 1)
    from scipy.stats import t

    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    half = float(t.ppf((1 + CONFIDENCE) / 2, count - 1)) * deviation / math.sqrt(count)
    return Estimate(mean, mean - half, mean + half, count)


def _wilson(successes: int, count: int) -> tuple[float, float]:
    from scipy.stats import binomtest

    interval = binomtest(successes, count).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def _newcombe(both: int, only_a: int, only_b: int, neither: int) -> tuple[float, float]:
    """Interval of rate A minus rate B: each rate's Wilson interval, combined through the pairs' correlation phi."""
    count = both + only_a + only_b + neither
    rate_a, rate_b = (both + only_a) / count, (both + only_b) / count
    low_a, high_a = _wilson(both + only_a, count)
    low_b, high_b = _wilson(both + only_b, count)
    phi = _correlation(both, only_a, only_b, neither)

    def spread(x: float, y: float) -> float:
        return math.sqrt(max(x * x - 2 * phi * x * y + y * y, 0.0))

    delta = rate_a - rate_b
    return delta - spread(rate_a - low_a, high_b - rate_b), delta + spread(high_a - rate_a, rate_b - low_b)


def _correlation(both: int, only_a: int, only_b: int, neither: int) -> float:
    """phi of the 2x2 table, with Newcombe's continuity correction; 0 where a margin is empty."""
    margins = (both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither)
    if margins == 0:
        return 0.0
    excess = float(both * neither - only_a * only_b)
    if excess > 0:
        excess = max(excess - (both + only_a + only_b + neither) / 2, 0.0)
    return excess / math.sqrt(margins)
