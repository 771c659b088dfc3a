"""One timer that is set for call after call, since a timer of its own for each would cost more than the call.

Invariant: an answer that is watched is there by its deadline: the callee's, or `LATE`. The timer stays where it is
when a later deadline follows: it looks when it goes off, and is set anew only for what is due later.
"""

from __future__ import annotations

import asyncio
from typing import Any

LATE: Any = object()
"""The answer of a call that did not answer by its deadline."""
STALL_SECONDS = 0.05
"""From such a delay on, the event loop itself counts as held up."""
GRACE_SECONDS = 1.0
"""At most so long is waited after a stall for answers that came in the meantime: they need some rounds of the loop."""


class Alarm:
    """Watches one answer at a time, on the running event loop; whoever made it stops it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Any] | None = None
        self._deadline = 0.0
        self._has_grace = False
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, answer: asyncio.Future[Any], seconds: float) -> None:
        """Answer `LATE` after so many seconds, unless something else did."""
        self._answer = answer
        self._deadline = self._loop.time() + seconds
        self._has_grace = True
        if self._timer is not None and self._timer.when() > self._deadline:
            self.stop()
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._answer is None or self._answer.done():
            return  # nobody waits: the next call sets the timer again
        overdue = self._loop.time() - self._deadline
        if overdue < 0:
            self._timer = self._loop.call_at(self._deadline, self._look)
        elif overdue > STALL_SECONDS and self._has_grace:  # the loop is late itself, which is not the callee's fault
            self._has_grace = False
            self._timer = self._loop.call_later(min(overdue, GRACE_SECONDS), self._look)
        else:
            self._answer.set_result(LATE)
