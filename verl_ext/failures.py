"""Where sessions that failed are counted: one small Ray actor of the run, fed by the agent loops, read by the trainer.

verl drops a session that raised and goes on with the rest of its group, so without this the trainer would not know
how many were lost, nor why. A fatal failure (wrong configuration, a group that did not play the same task) stops the
run at the next step.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import ray

logger = logging.getLogger(__name__)
_ACTOR = "agentgym_failures"


@dataclass(frozen=True)
class SessionFailure:
    """One session that gave no training row."""

    environment: str
    cause: str
    message: str
    fatal: bool = False


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


def report(failure: SessionFailure) -> None:
    """Count a failure; with a stock trainer, which has no counter, it is only logged."""
    logger.warning("session failed in environment %r: %s: %s", failure.environment, failure.cause, failure.message)
    try:
        ray.get_actor(_ACTOR).report.remote(failure)
    except ValueError:
        return


def drain() -> Sequence[SessionFailure]:
    """What was reported since the last call."""
    return ray.get(ray.get_actor(_ACTOR).drain.remote())
