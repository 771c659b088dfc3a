"""What no training row tells the trainer: which sessions failed, and how busy the environment pools were.

One small Ray actor of the run counts both, fed by the agent loops, read by the trainer. With a stock trainer there is
no counter; failures are then only logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import ray

from agentgym_rl.failure_policy import Action, FailedEpisode
from agentgym_rl.pool_statistics import PoolPeriod, summed

logger = logging.getLogger(__name__)
_ACTOR = "agentgym_failures"


@dataclass(frozen=True)
class SessionFailure:
    """One try of one session that failed, and what was done about it."""

    episode: FailedEpisode
    action: Action
    validation: bool = False
    """It was validated on, and is none of a training step's."""
    fatal: bool = False
    """Wrong configuration or a broken rule of the group: the run has to stop."""


class _Failures:
    def __init__(self) -> None:
        self._failures: list[SessionFailure] = []
        self._pools: dict[str, dict[str, PoolPeriod]] = {}

    def report(self, failure: SessionFailure) -> None:
        self._failures.append(failure)

    def drain(self) -> list[SessionFailure]:
        drained, self._failures = self._failures, []
        return drained

    def report_pool(self, process: str, periods: Mapping[str, PoolPeriod]) -> None:
        pool = self._pools.setdefault(process, {})
        for kind, period in periods.items():
            pool[kind] = pool[kind].then(period) if kind in pool else period

    def drain_pools(self) -> dict[str, PoolPeriod]:
        pools, self._pools = self._pools, {}
        return summed(pools.values())


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


def report_pool(periods: Mapping[str, PoolPeriod]) -> None:
    """Count what happened in this process's pool since its last report; nothing where nobody counts."""
    with suppress(ValueError):
        ray.get_actor(_ACTOR).report_pool.remote(ray.get_runtime_context().get_worker_id(), periods)


def drain_pools() -> dict[str, PoolPeriod]:
    """Environment -> what was reported of it since the last call: in turn within a process, and over all of them."""
    return ray.get(ray.get_actor(_ACTOR).drain_pools.remote())
