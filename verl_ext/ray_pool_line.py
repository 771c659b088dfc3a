"""Those in one process who wait for one kind of environment on a cluster, and how they are served.

The first in line asks: the actor with the fewest leases first, and one more each moment that goes by without an
environment. The first that grants one is taken, and the other requests are withdrawn. So a full, slow or dead actor
delays nobody for long, and none needs to know of the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from agentgym_rl.errors import EnvironmentFailed, Manner
from agentgym_rl.pool_statistics import Peak
from agentgym_rl.slots import Slots
from verl_ext.ray_pool_lease import Host, RemoteEnvironment

NEXT_SECONDS = 0.1
"""How long the actors asked so far have to grant a lease before one more is asked."""


class Line:
    """Requests for one kind.

    Args:
        kind: the environment's name.
        hosts: the actors that may have it.
        lost_seconds: a request fails when none of them has answered for so long.
    """

    def __init__(self, kind: str, hosts: Sequence[Host], lost_seconds: float):
        self._kind = kind
        self._hosts = hosts
        self._lost_seconds = lost_seconds
        self._first = Slots(1)
        self._waiting_peak = Peak()

    @property
    def waiting(self) -> int:
        """Requests without an environment."""
        return self._first.held + self._first.waiting

    def end_period(self) -> int:
        """The most that waited at a time since the last call, with none granted for `NEXT_SECONDS`."""
        return self._waiting_peak.end_period(0)

    async def borrow(self, seconds: float) -> RemoteEnvironment:
        """Stand in line, then ask until an actor grants a lease.

        Raises:
            EnvironmentFailed: every actor is gone, or none can make such an environment.
        """
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
                self._waiting_peak.note(self.waiting)
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
