"""Slots: at most `limit` holders at a time, served in the order in which they came; the limit may change meanwhile.

Invariant: a slot that becomes free is handed to the first waiter at once, so nobody overtakes and none is forgotten; a
waiter that is cancelled takes nothing with it. (`asyncio.Semaphore` broke both before Python 3.10.8, and its value
can't be lowered.)
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from agentgym_rl.pool_statistics import Peak


class Slots:
    """A semaphore with a limit that can be set."""

    def __init__(self, limit: int):
        self._limit = limit
        self._held = 0
        self._waiters: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._waiting_peak = Peak()

    @property
    def held(self) -> int:
        """Slots that are taken; above the limit only after that was lowered."""
        return self._held

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    @property
    def limit(self) -> int:
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        self._hand_over()

    async def acquire(self) -> None:
        """Wait for a slot."""
        if self._held < self._limit:  # then nobody waits
            self._held += 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        self._waiting_peak.note(len(self._waiters))
        try:
            await waiter
        except asyncio.CancelledError:
            self._waiters.pop(waiter, None)
            if not waiter.cancelled() and waiter.exception() is None:  # it was handed the slot a moment before
                self.release()
            raise

    def end_period(self) -> int:
        """The most that waited at a time since the last call."""
        return self._waiting_peak.end_period(len(self._waiters))

    def release(self) -> None:
        self._held -= 1
        self._hand_over()

    def refuse(self, error: Callable[[], Exception]) -> None:
        """End every wait with an error."""
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            if not waiter.done():
                waiter.set_exception(error())

    def _hand_over(self) -> None:
        while self._waiters and self._held < self._limit:
            waiter, _ = self._waiters.popitem(last=False)
            if not waiter.done():
                self._held += 1
                waiter.set_result(None)
