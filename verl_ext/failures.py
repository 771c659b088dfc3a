"""Where sessions that failed are counted: one small Ray actor of the run, fed by the agent loops, read by the trainer.

A failed session gives no training row, so the trainer would not know that there was one. With a stock trainer there is
no counter; failures are then only logged.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import ray

from agentgym_rl.failure_policy import Action, FailedEpisode

logger = logging.getLogger(__name__)
_ACTOR = "agentgym_failures"


@dataclass(frozen=True)
class SessionFailure:
    """One try of one session that failed, and what was done about it."""

    episode: FailedEpisode
    action: Action
    fatal: bool = False
    """Wrong configuration or a broken rule of the group: the run has to stop."""


class _Failures:
    def __init__(self) -> None:
        self._failures: list[SessionFailure] = []

    def report(self, failure: SessionFailure) -> None:
        self._failures.append(failure)

    def drain(self) -> list[SessionFailure]:
        drained, self._failures = self._failures, []
        return drained


def start() -> ray.actor.ActorHandle:
    """Start the run's counter, or join the one that is there; it lives as long as the handle is held."""
    return ray.remote(_Failures).options(name=_ACTOR, get_if_exists=True, num_cpus=0).remote()


def report(failure: SessionFailure) -> bool:
    """Count a failure; returns whether somebody counts, that is, whether the trainer is ours."""
    episode = failure.episode
    logger.warning(
        "session of task %r in environment %r failed (%s): %s: %s",
        *(episode.task, episode.environment, failure.action.value, episode.cause, episode.message),
    )
    try:
        ray.get_actor(_ACTOR).report.remote(failure)
    except ValueError:
        return False
    return True


def drain() -> Sequence[SessionFailure]:
    """What was reported since the last call."""
    return ray.get(ray.get_actor(_ACTOR).drain.remote())
