"""The environment pool on a cluster: each actor holds a pool of its node's environments, and leases go to any of them.

Invariant: a node or an actor that dies takes the leases on it along and nothing else. Each of those fails as
`environment_crashed`; later leases go to the actors that are left, until Ray has restarted it, which it does as soon
as a node has room.

Requests of one process stand in line, per kind, and the first in line asks: the actor with the fewest leases first,
and one more each moment that goes by without an environment. The first that grants one is taken, and the other
requests are withdrawn. So a full, slow or dead actor delays nobody for long, and none needs to know of the others.

Left out: fairness between processes. The leases of a process that dies end by their deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import ray

from agentgym_rl.environments import registry
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed, Manner, did_you_mean
from agentgym_rl.pool_kind import KindStats
from agentgym_rl.slots import Slots
from verl_ext.ray_pool_actor import PATIENCE_SECONDS, PoolActor
from verl_ext.ray_pool_lease import ANSWER_SECONDS, Host, RemoteEnvironment
from verl_ext.ray_pool_placement import Placement

POOL = "training"
"""Name of the pool that a run's trainer starts and its agent loops use."""
NEXT_SECONDS = 0.1
"""How long the actors asked so far have to grant a lease before one more is asked."""
CLOSE_SECONDS = 10.0
"""Deadline of an actor's close; it is killed then."""


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
            kind: _Line(kind, [Host(name, handle) for name, handle in handles.items()], lost_seconds)
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

    async def stats(self) -> dict[str, KindStats | None]:
        """Of each actor by its name; None: it does not answer."""
        handles = {name: handle for actors in self._actors.values() for name, handle in actors.items()}
        answers = await asyncio.gather(*(_stats(handle) for handle in handles.values()))
        return dict(zip(handles, answers, strict=True))

    async def close(self) -> None:
        """End every lease and every actor; for the process that started them."""
        handles = [handle for actors in self._actors.values() for handle in actors.values()]
        await asyncio.gather(*(_close(handle) for handle in handles))


class _Line:
    """Those in this process who wait for one kind of environment."""

    def __init__(self, kind: str, hosts: Sequence[Host], lost_seconds: float):
        self._kind = kind
        self._hosts = hosts
        self._lost_seconds = lost_seconds
        self._first = Slots(1)

    async def borrow(self, seconds: float) -> RemoteEnvironment:
        """Stand in line, then ask until an actor grants a lease."""
        await self._first.acquire()
        asked: dict[asyncio.Task[bool], RemoteEnvironment] = {}
        began = time.monotonic()
        try:
            while True:
                self._ask_one_more(asked, seconds)
                granted = await _granted(asked)
                if granted is not None:
                    return granted
                self._require_life(began)
        finally:
            self._first.release()
            for asking, environment in asked.items():
                asking.cancel()
                environment.release()

    def _ask_one_more(self, asked: dict[asyncio.Task[bool], RemoteEnvironment], seconds: float) -> None:
        busy = {id(environment.host) for environment in asked.values()}
        now = time.monotonic()
        left = [host for host in self._hosts if id(host) not in busy and host.asked_again <= now]
        if left:
            environment = RemoteEnvironment(self._kind, min(left, key=lambda host: host.load), seconds)
            asking = asyncio.ensure_future(environment.acquire())
            asking.add_done_callback(lambda task: task.cancelled() or task.exception())  # may be one too many
            asked[asking] = environment

    def _require_life(self, began: float) -> None:
        """Raise unless an actor has answered lately."""
        heard = max(began, *(host.heard for host in self._hosts))
        if time.monotonic() - heard > self._lost_seconds:
            faults = "; ".join(host.fault for host in self._hosts)
            raise EnvironmentFailed(
                f"no actor for environment {self._kind!r} has answered for {self._lost_seconds:.3g} s: {faults}",
                Manner.CRASHED,
            )


async def _granted(asked: dict[asyncio.Task[bool], RemoteEnvironment]) -> RemoteEnvironment | None:
    """Wait a moment for answers, and take those that there are out of `asked`; the first grant is the result."""
    if not asked:
        await asyncio.sleep(NEXT_SECONDS)
        return None
    answered, _ = await asyncio.wait(asked, timeout=NEXT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    for asking in answered:
        environment = asked.pop(asking)
        if asking.result():
            return environment
        environment.release()
    return None


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


async def _stats(handle: ray.actor.ActorHandle) -> KindStats | None:
    with suppress(ray.exceptions.RayError, asyncio.TimeoutError):
        return await asyncio.wait_for(asyncio.ensure_future(handle.stats.remote()), ANSWER_SECONDS)
    return None


async def _close(handle: ray.actor.ActorHandle) -> None:
    with suppress(ray.exceptions.RayError, asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.ensure_future(handle.close.remote()), CLOSE_SECONDS)
    ray.kill(handle, no_restart=True)
