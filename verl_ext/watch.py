"""Collapse watch: a few figures of every training step, each with bounds, and one thing to do when one stays outside.

A figure counts as collapsed after `patience` steps outside its bound in a row; a single bad step is noise. What is
measured is measured whether or not it has a bound, and a figure that a step could not give leaves its streak as it is.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from agentgym_rl.errors import AgentGymError, ConfigurationError
from verl_ext.watch_figures import Session, flat_groups, repeated

logger = logging.getLogger(__name__)

Answer = Literal["warn", "stop", "rollback"]
_KEPT = 8
"""Values of a figure that a report shows."""
_TURN_DECAY = 0.95
"""What the mean of the turns keeps of its past at each step: about the last 20 steps."""


class TrainingCollapsed(AgentGymError):
    """A figure of the training stayed outside its bound."""


@dataclass(frozen=True)
class Watch:
    """Bounds of what is healthy (null: only measured), and what happens when one is passed."""

    action: Answer = "warn"
    """"warn" in the log, once each time; "stop" the run; "rollback" to the last checkpoint and go on with new tasks."""
    patience: int = 5
    """Steps in a row that a figure must be outside its bound."""
    rollbacks: int = 2
    """Times that a run goes back at most; then it stops."""
    max_flat_groups: float | None = 0.95
    """Share of groups whose sessions all earned the same: they teach nothing."""
    max_repeated: float | None = 0.95
    """Share of sessions whose replies are, word for word, those of another session of their group."""
    max_turn_drift: float | None = 1.0
    """max(turns / usual, usual / turns) - 1 of a step's mean number of turns, with the running mean as what is usual; 1
    is twice or half as many."""
    min_entropy: float | None = None
    """Of the policy, in nats a token. How low is too low depends on the model and its vocabulary."""
    max_entropy: float | None = None
    """Of the policy, in nats a token."""
    max_logprob_gap: float | None = 0.5
    """Mean |log p_trainer - log p_rollout| a token, in nats."""

    def __post_init__(self) -> None:
        if self.action not in get_args(Answer):
            raise ConfigurationError(
                f"watch.action must be one of {', '.join(get_args(Answer))}; given: {self.action!r}"
            )
        for name, least in (("patience", 1), ("rollbacks", 0)):
            if not isinstance(given := getattr(self, name), int) or given < least:
                raise ConfigurationError(f"watch.{name} must be a whole number of at least {least}; given: {given!r}")
        for bound in _BOUNDS:
            given = getattr(self, bound.setting)
            if given is not None and not (isinstance(given, (int, float)) and 0 <= given < math.inf):
                raise ConfigurationError(f"watch.{bound.setting} must be a number from 0, or null; given: {given!r}")
        if self.min_entropy is not None and self.max_entropy is not None and self.min_entropy >= self.max_entropy:
            raise ConfigurationError(
                f"watch.min_entropy must be below max_entropy; given: {self.min_entropy} and {self.max_entropy}"
            )


class _Bound(NamedTuple):
    setting: str
    figure: str
    upper: bool


_BOUNDS = (
    _Bound("max_flat_groups", "flat_groups", upper=True),
    _Bound("max_repeated", "repeated", upper=True),
    _Bound("max_turn_drift", "turn_drift", upper=True),
    _Bound("min_entropy", "entropy", upper=False),
    _Bound("max_entropy", "entropy", upper=True),
    _Bound("max_logprob_gap", "logprob_gap", upper=True),
)


class Verdict(NamedTuple):
    """What a step looked like."""

    metrics: dict[str, float]
    rollback: bool
    """The trainer is to go back to its last checkpoint."""


class CollapseWatch:
    """Fed once a step; remembers streaks, last values and the mean of the turns."""

    def __init__(self, settings: Watch):
        self._settings = settings
        self._turns: float | None = None
        self._rollbacks = 0
        self._streaks: dict[str, int] = {}
        self._last: dict[str, list[float]] = {}

    def observe(self, sessions: Sequence[Session], entropy: float | None, logprob_gap: float | None) -> Verdict:
        """Judge a step.

        Args:
            sessions: that were sampled for it, at least one.
            entropy: `actor/entropy` of verl's metrics; None: it has none.
            logprob_gap: `logprob_gap/mean`; None: the rollout gives no log-probs.

        Raises:
            TrainingCollapsed: and the settings say to stop, or there was a rollback too many.
        """
        found = {
            "flat_groups": flat_groups(sessions),
            "repeated": repeated(sessions),
            "turn_drift": self._turn_drift(sessions),
            "entropy": entropy,
            "logprob_gap": logprob_gap,
        }
        figures = {name: value for name, value in found.items() if value is not None}
        for name, value in figures.items():
            self._last[name] = [*self._last.get(name, []), value][-_KEPT:]
        passed = [bound for bound in _BOUNDS if bound.figure in figures and self._passed(bound, figures[bound.figure])]
        streak = max(self._streaks.values(), default=0)
        return Verdict(
            {f"watch/{name}": value for name, value in figures.items()} | {"watch/longest_streak": streak},
            rollback=bool(passed) and self._answer(passed),
        )

    def state_dict(self) -> dict[str, Any]:
        """Plain, for JSON."""
        return {
            "turns": self._turns,
            "rollbacks": self._rollbacks,
            "streaks": dict(self._streaks),
            "last": {name: list(values) for name, values in self._last.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there. Rollbacks stay counted: going back does not undo that one went back."""
        self._turns = state["turns"]
        self._rollbacks = max(self._rollbacks, state["rollbacks"])
        self._streaks = dict(state["streaks"])
        self._last = {name: list(values) for name, values in state["last"].items()}

    def _turn_drift(self, sessions: Sequence[Session]) -> float:
        turns = sum(session.turns for session in sessions) / len(sessions)
        mean = turns if self._turns is None else self._turns
        self._turns = _TURN_DECAY * mean + (1 - _TURN_DECAY) * turns
        return max(turns / mean, mean / turns) - 1

    def _passed(self, bound: _Bound, value: float) -> bool:
        """Lengthen or end the bound's streak; whether it is as long as the patience."""
        limit = getattr(self._settings, bound.setting)
        within = limit is None or (value <= limit if bound.upper else value >= limit)  # NaN is outside
        self._streaks[bound.setting] = 0 if within else self._streaks.get(bound.setting, 0) + 1
        return self._streaks[bound.setting] >= self._settings.patience

    def _answer(self, passed: Sequence[_Bound]) -> bool:
        """Do what the settings say; whether the trainer is to go back."""
        if self._settings.action == "warn":
            for bound in passed:
                if self._streaks[bound.setting] == self._settings.patience:
                    logger.warning("the training may be collapsing: %s", self._report(bound))
            return False
        report = "; ".join(map(self._report, passed))
        if self._settings.action == "stop":
            raise TrainingCollapsed(report)
        if self._rollbacks >= self._settings.rollbacks:
            raise TrainingCollapsed(f"after {self._rollbacks} rollbacks: {report}")
        self._rollbacks += 1
        logger.warning("going back to the last checkpoint: %s", report)
        self._streaks.clear()
        return True

    def _report(self, bound: _Bound) -> str:
        values = ", ".join(f"{value:.4g}" for value in self._last[bound.figure])
        side = "above" if bound.upper else "below"
        return (
            f"{bound.figure} was {side} its bound of {getattr(self._settings, bound.setting):g} "
            f"(watch.{bound.setting}) for {self._streaks[bound.setting]} steps in a row; its last values: {values}"
        )
