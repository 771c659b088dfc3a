"""What to do with a failed episode: cause x action, with a budget per step and per run.

A failure is data: whatever the action, it is counted with its cause, and it is never a reward of 0. When the budget is
used up the run stops with a report that names the worst cause and shows an example of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum

from agentgym_rl.errors import AgentGymError, ConfigurationError, Manner, did_you_mean
from agentgym_rl.truncation import Truncations


class Action(Enum):
    """What happens to an episode that failed."""

    RETRY = "retry"  # the same task again in a fresh environment; excluded when the retries are used up; a group's
    # comparison is asked again instead
    EXCLUDE = "exclude"  # leaves loss, group baseline and success metrics
    REPLACE = "replace"  # for verl's asynchronous buffer, which drops its group and draws another task; else: excluded
    STOP = "stop"  # the run ends


_BOUNDARIES = ("environment", "tool", "judge", "policy")
CAUSES = [
    *(f"{boundary}_{manner.value}" for boundary in _BOUNDARIES for manner in Manner),
    "nothing_sampled",
    *(limit.name for limit in fields(Truncations)),
]
"""Every cause that an action can be given for. A limit is one where trajectories that it cut off are excluded."""

DEFAULT_ACTIONS = {cause: Action.RETRY if cause.endswith("crashed") else Action.EXCLUDE for cause in CAUSES}
"""A crash is worth another try: it says more about the machine than about the task."""


class FailureBudgetSpent(AgentGymError):
    """More episodes failed than the run may lose."""


@dataclass(frozen=True)
class FailedEpisode:
    """One failure as it is counted."""

    environment: str
    task: str
    cause: str
    message: str
    traceback: str = ""


@dataclass(frozen=True)
class FailurePolicy:
    """The table. `actions` holds what differs from `DEFAULT_ACTIONS`."""

    actions: Mapping[str, str] = field(default_factory=dict)
    """Cause -> action, e.g. {environment_timed_out: retry}."""
    retries: int = 2
    """Times that one episode is played again at most."""
    step_share: float = 0.5
    """Share of a step's episodes that may be lost; 1 never stops the run."""
    run_count: int | None = None
    """Episodes that a run may lose in all; None: any number."""

    def __post_init__(self) -> None:
        for cause, action in self.actions.items():
            if cause not in CAUSES:
                raise ConfigurationError(f"no cause of failure {cause!r}; {did_you_mean(cause, CAUSES)}")
            if action not in [known.value for known in Action]:
                raise ConfigurationError(
                    f"no action {action!r} for {cause}; {did_you_mean(str(action), [a.value for a in Action])}"
                )
        if self.retries < 0 or not 0 <= self.step_share <= 1 or (self.run_count is not None and self.run_count < 0):
            raise ConfigurationError(
                "retries must be >= 0, step_share in [0, 1] and run_count >= 0 or null; given: "
                f"{self.retries}, {self.step_share}, {self.run_count}"
            )

    def action(self, cause: str, tries: int) -> Action:
        """What to do with an episode that failed for the `tries`-th time, from 1, with this cause."""
        given = self.actions.get(cause)
        action = Action(given) if given else DEFAULT_ACTIONS[cause]
        return Action.EXCLUDE if action is Action.RETRY and tries > self.retries else action


class FailureBudget:
    """Counts what a run loses, and ends it when that is too much."""

    def __init__(self, policy: FailurePolicy):
        self._policy = policy
        self._lost: list[FailedEpisode] = []

    @property
    def lost(self) -> int:
        """Episodes lost so far."""
        return len(self._lost)

    def spend(self, lost: Sequence[FailedEpisode], episodes: int) -> None:
        """Take note of a step's lost episodes, of `episodes` in all.

        Raises:
            FailureBudgetSpent: the step's or the run's budget is used up, or a cause stops the run.
        """
        self._lost.extend(lost)
        stopping = [failed for failed in lost if self._policy.action(failed.cause, tries=1) is Action.STOP]
        if stopping:
            raise FailureBudgetSpent(f"a cause that stops the run: {_example(stopping[0])}")
        if episodes and len(lost) > self._policy.step_share * episodes:
            raise FailureBudgetSpent(
                f"{len(lost)} of {episodes} episodes of one step failed; allowed: {self._policy.step_share:.0%}. "
                + _worst(lost)
            )
        if self._policy.run_count is not None and len(self._lost) > self._policy.run_count:
            raise FailureBudgetSpent(
                f"{len(self._lost)} episodes of this run failed; allowed: {self._policy.run_count}. "
                + _worst(self._lost)
            )


def _worst(lost: Sequence[FailedEpisode]) -> str:
    cause, count = Counter(failed.cause for failed in lost).most_common(1)[0]
    example = next(failed for failed in reversed(lost) if failed.cause == cause)
    return f"The worst cause, {count} times: {_example(example)}"


def _example(failed: FailedEpisode) -> str:
    text = f"{failed.cause} in environment {failed.environment!r}, task {failed.task!r}: {failed.message}"
    return f"{text}\n{failed.traceback}" if failed.traceback else text
