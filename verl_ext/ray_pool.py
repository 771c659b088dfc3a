"""The environment pool on a cluster: each actor holds a pool of its node's environments, and leases go to any of them.

Invariant: a node or an actor that dies takes the leases on it along and nothing else. Each of those fails as
`environment_crashed`; later leases go to the actors that are left, until Ray has restarted it, which it does as soon
as a node has room.

Requests of one process stand in line, per kind (`ray_pool_line.py`).

Left out: fairness between processes. The leases of a process that dies end by their deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

import ray

from agentgym_rl.environments import registry
from agentgym_rl.errors import ConfigurationError, did_you_mean
from agentgym_rl.pool_statistics import PoolPeriod, PoolStatistics, summed
from verl_ext.ray_pool_actor import PATIENCE_SECONDS, PoolActor
from verl_ext.ray_pool_lease import ANSWER_SECONDS, Host, RemoteEnvironment
from verl_ext.ray_pool_line import Line
from verl_ext.ray_pool_placement import Placement

POOL = "training"
"""Name of the pool that a run's trainer starts and its agent loops use."""
CLOSE_SECONDS = 10.0
"""Deadline of an actor's close; it is killed then."""
T = TypeVar("T")


class RayPool:
    """Lends environments from the actors of a running pool. One in a process, used on one event loop.

    Args:
        actors: environment -> actor's name -> its handle.
        lost_seconds: a lease is given up when no actor of its kind has answered for so long. Where all are full,
            it waits as long as it takes.
    """

    def __init__(self, actors: Mapping[str, Mapping[str, ray.actor.ActorHandle]], lost_seconds: float = 120.0):
        if lost_seconds <= PATIENCE_SECONDS:
            raise ConfigurationError(
                f"lost_seconds must be above {PATIENCE_SECONDS:.3g}, after which a full actor answers; "
                f"given: {lost_seconds}"
            )
        self._actors = {kind: dict(handles) for kind, handles in actors.items()}
        self._lines = {
            kind: Line(kind, [Host(name, handle) for name, handle in handles.items()], lost_seconds)
            for kind, handles in actors.items()
        }

    @classmethod
    def start(cls, name: str, kinds: Mapping[str, Placement], lost_seconds: float = 120.0) -> RayPool:
        """Start a pool's actors. They live until `close`, or until this object or its process is gone.

        Args:
            name: by which other processes of this Ray job `connect`.
            kinds: environment -> where it lives.

        Raises:
            ConfigurationError: no such environment, or a pool of this name is running.
        """
        for kind in kinds:
            registry.target(kind)  # raises where there is no such environment
        return cls({kind: _started(name, kind, placement) for kind, placement in kinds.items()}, lost_seconds)

    @classmethod
    def connect(cls, name: str, kinds: Mapping[str, Placement], lost_seconds: float = 120.0) -> RayPool:
        """Use a pool that another process has started with the same arguments.

        Raises:
            ConfigurationError: there is no such pool, or it has fewer actors.
        """
        return cls({kind: _found(name, kind, placement) for kind, placement in kinds.items()}, lost_seconds)

    @asynccontextmanager
    async def lease(self, name: str, seconds: float = 3600.0) -> AsyncIterator[RemoteEnvironment]:
        """Borrow an instance; see `EnvironmentPool.lease`, which it behaves like.

        Args:
            name: of the environment.
            seconds: deadline, counted from the moment of the loan.

        Raises:
            ConfigurationError: the pool has no such environment, or the deadline can't work.
            EnvironmentFailed: every actor of this kind is gone, or none can make such an environment.
        """
        if name not in self._lines:
            raise ConfigurationError(f"the pool has no environment {name!r}; {did_you_mean(name, self._lines)}")
        if seconds <= 0:
            raise ConfigurationError(f"a lease's seconds must be above 0; given: {seconds!r}")
        environment = await self._lines[name].borrow(seconds)
        try:
            yield environment
        except BaseException:
            environment.spoil()
            raise
        finally:
            environment.release()

    async def statistics(self) -> dict[str, PoolStatistics]:
        """Of each kind, over the actors that answer; `waiting` are the requests of this process."""
        answers = await self._ask(lambda actor: actor.statistics.remote())
        found = summed({kind: statistics} for kind, _, statistics in answers if statistics is not None)
        return {
            kind: replace(found.get(kind, PoolStatistics()), waiting=line.waiting) for kind, line in self._lines.items()
        }

    async def actors(self) -> dict[str, PoolStatistics | None]:
        """Of each actor by its name; None: it does not answer."""
        answers = await self._ask(lambda actor: actor.statistics.remote())
        return {name: statistics for _, name, statistics in answers}

    def end_period(self) -> dict[str, PoolPeriod]:
        """What the requests of this process met since the last call: how many waited. It calls no actor."""
        return {kind: PoolPeriod(waiting_max=line.end_period()) for kind, line in self._lines.items()}

    async def end_period_of_actors(self) -> dict[str, PoolPeriod]:
        """What else happened to each kind since the last call, which only one process may make.

        A kind whose actors all are silent is left out.
        """
        answers = await self._ask(lambda actor: actor.end_period.remote())
        # An actor sees the first of each process's line, which is counted there.
        return summed({kind: replace(period, waiting_max=0)} for kind, _, period in answers if period is not None)

    async def close(self) -> None:
        """End every lease and every actor; for the process that started them."""
        handles = [handle for actors in self._actors.values() for handle in actors.values()]
        await asyncio.gather(*(_close(handle) for handle in handles))

    async def _ask(self, ask: Callable[[Any], ray.ObjectRef[T]]) -> list[tuple[str, str, T | None]]:
        """One call to each actor, all at once: kind, name of the actor, and its answer, None if there is none."""
        actors = [(kind, name, handle) for kind, handles in self._actors.items() for name, handle in handles.items()]
        answers = await asyncio.gather(*(_answer(ask(handle)) for _, _, handle in actors))
        return [(kind, name, answer) for (kind, name, _), answer in zip(actors, answers, strict=True)]


def _actor_name(pool: str, kind: str, number: int) -> str:
    return f"agentgym_pool_{pool}_{kind}_{number}"


def _started(pool: str, kind: str, placement: Placement) -> dict[str, ray.actor.ActorHandle]:
    actor: Any = ray.remote(PoolActor)
    options: dict[str, Any] = {
        "num_cpus": placement.num_cpus,
        "resources": dict(placement.resources),
        "scheduling_strategy": "SPREAD",
        "max_restarts": -1,
        "max_task_retries": 0,  # a step must not be taken twice
        "max_concurrency": 1000 + 2 * placement.slots_per_actor,
    }
    handles: dict[str, ray.actor.ActorHandle] = {}
    for number in range(placement.actors):
        name = _actor_name(pool, kind, number)
        try:
            handles[name] = actor.options(name=name, **options).remote(
                kind, placement.slots_per_actor, placement.isolation
            )
        except ValueError as error:
            raise ConfigurationError(f"an environment pool {pool!r} is running already; connect to it") from error
    return handles


def _found(pool: str, kind: str, placement: Placement) -> dict[str, ray.actor.ActorHandle]:
    handles = {}
    for number in range(placement.actors):
        name = _actor_name(pool, kind, number)
        try:
            handles[name] = ray.get_actor(name)
        except ValueError as error:
            raise ConfigurationError(
                f"there is no actor {name!r}: the pool {pool!r} was not started, or with other placements"
            ) from error
    return handles


async def _answer(asked: ray.ObjectRef[T]) -> T | None:
    with suppress(ray.exceptions.RayError, asyncio.TimeoutError):
        return await asyncio.wait_for(asyncio.ensure_future(asked), ANSWER_SECONDS)
    return None


async def _close(handle: ray.actor.ActorHandle) -> None:
    with suppress(ray.exceptions.RayError, asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.ensure_future(handle.close.remote()), CLOSE_SECONDS)
    ray.kill(handle, no_restart=True)
