"""The Ray actor that holds one node's environments of one kind, and plays for whoever holds a lease.

Invariant: a lease is known by the id that its holder made up, from the request to the release, so that also a request
that was never answered can be withdrawn. It ends by its release or its deadline, whichever comes first; when the actor
dies, its leases die with it, and the one that Ray starts in its place knows none of them.

Errors go back as data: what an environment raises need not be importable, nor picklable, where its holder lives.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, NamedTuple

import ray

from agentgym_rl.environment import Environment
from agentgym_rl.environments.registry import Isolation
from agentgym_rl.environments.wire import BEGINNINGS, Hello, encode_error
from agentgym_rl.errors import EnvironmentFailed, Manner, boundary
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.pool_statistics import PoolPeriod, PoolStatistics

PATIENCE_SECONDS = 1.0
"""How long a request waits for a slot before it is answered that there is none; the sign of life of a full actor."""
GRACE_SECONDS = 1.0
"""By how much the actor's own timers come after a lease's deadline, so that the deadline is what is reported."""
_REMEMBERED_RELEASES = 1024


class Reply(NamedTuple):
    """What a method of the environment gave, or `wire.encode_error` of what it raised."""

    result: Any = None
    error: dict[str, Any] | None = None
    hello: Hello | None = None
    """After a reset or a restore, which may change the instructions."""


class Offer(NamedTuple):
    """The answer to a request for a lease."""

    node: str
    """Where the actor runs."""
    load: int
    """Leases and requests at this actor, this one included if it was granted."""
    hello: Hello | None
    """Of the environment that was lent; None: no slot became free in time."""


class PoolActor:
    """Serves one kind. Its methods are called through Ray, all on one event loop.

    Args:
        kind: the environment's name.
        slots: how many may be lent at a time.
        isolation: where they run (`registry.make`).
    """

    def __init__(self, kind: str, slots: int, isolation: Isolation):
        self._kind = kind
        self._pool = EnvironmentPool({kind: slots}, isolation)
        self._leases: dict[str, _Lease] = {}
        self._released: OrderedDict[str, None] = OrderedDict()
        self._node = f"node {ray.util.get_node_ip_address()} ({ray.get_runtime_context().get_node_id()[:8]})"

    async def acquire(self, id: str, seconds: float) -> Reply:
        """Wait a while for a slot; the result is an `Offer`."""
        if id in self._released:  # Ray may run a release before the request that it withdraws
            return Reply(Offer(self._node, len(self._leases), None))
        lease = self._leases[id] = _Lease(self._pool, self._kind, seconds)
        lease.task.add_done_callback(lambda _: self._leases.pop(id, None))
        await asyncio.wait({lease.environment}, timeout=PATIENCE_SECONDS)
        if not lease.environment.done():
            lease.end(sound=True)
            return Reply(Offer(self._node, len(self._leases) - 1, None))
        try:
            environment = await boundary(
                lease.environment, EnvironmentFailed, f"lease of environment {self._kind!r}", 1
            )
        except Exception as error:
            return Reply(error=encode_error(error))
        return Reply(Offer(self._node, len(self._leases), Hello.of(environment)))

    async def call(self, id: str, method: str, *arguments: Any) -> Reply:
        """Call a method of the environment that was lent."""
        try:
            lease = self._known(id)
            environment = lease.environment.result()
            what = f"{method} of environment {self._kind!r}"
            calling = getattr(environment, method)(*arguments)
            result = await boundary(calling, EnvironmentFailed, what, lease.seconds + GRACE_SECONDS)
            return Reply(result, hello=Hello.of(environment) if method in BEGINNINGS else None)
        except Exception as error:
            return Reply(error=encode_error(error))

    async def release(self, id: str, sound: bool) -> None:
        """End a lease, or withdraw the request for it.

        Args:
            sound: whether somebody else may borrow the instance, as far as the holder knows.
        """
        self._released[id] = None
        while len(self._released) > _REMEMBERED_RELEASES:
            self._released.popitem(last=False)
        if id in self._leases:
            self._leases[id].end(sound)

    async def statistics(self) -> PoolStatistics:
        return self._pool.statistics().get(self._kind, PoolStatistics())

    async def end_period(self) -> PoolPeriod:
        return self._pool.end_period().get(self._kind, PoolPeriod())

    async def close(self) -> None:
        await self._pool.close()

    def _known(self, id: str) -> _Lease:
        if id not in self._leases:
            why = "it was restarted since, or the lease has ended"
            raise EnvironmentFailed(f"the actor on {self._node} has no such lease: {why}", Manner.CRASHED)
        return self._leases[id]


class _Lease:
    """A lease of the node's pool, held by a task on behalf of somebody far away."""

    def __init__(self, pool: EnvironmentPool, kind: str, seconds: float):
        loop = asyncio.get_running_loop()
        self.seconds = seconds
        self.environment: asyncio.Future[Environment] = loop.create_future()
        self._handed_back: asyncio.Future[None] = loop.create_future()
        self.task = asyncio.ensure_future(self._hold(pool, kind))

    def end(self, sound: bool) -> None:
        """Give the environment back, or stop waiting for one; what is not sound, nobody should borrow again."""
        if not sound or not self.environment.done():
            self.task.cancel()
        elif not self._handed_back.done():
            self._handed_back.set_result(None)

    async def _hold(self, pool: EnvironmentPool, kind: str) -> None:
        try:
            async with pool.lease(kind, self.seconds) as environment:
                self.environment.set_result(environment)
                await asyncio.wait({self._handed_back}, timeout=self.seconds + GRACE_SECONDS)
        except Exception as error:
            self.environment.set_exception(error)
        finally:
            self.environment.cancel()  # of use to nobody if there is none by now
