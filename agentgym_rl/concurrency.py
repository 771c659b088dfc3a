"""How many calls a policy server takes at a time: additive increase, multiplicative decrease on its latency.

    async with limit:
        reply = await client.generate(...)

A round is as many replies as the limit allows at a time. After each, its median latency L is compared with the
reference R, a smoothed minimum of such medians:

    L <= tolerance · R  ->  limit + 1, if the limit was reached at all
    L >  tolerance · R  ->  limit · factor

R falls half the way to a lower L. It rises, slowly, after a late round only: if it followed every L, it would creep
along with a limit that grows too far; if it never rose, a server that became slower for good would be starved.

A median, since the latency of one reply depends on its length more than on the load. A call that failed, or was cut off
late, lowers the limit at once. After a decrease only calls that began later are judged: there is at most one decrease a
round trip.

Source: Chiu and Jain (1989), "Analysis of the increase and decrease algorithms for congestion avoidance in computer
networks", https://doi.org/10.1016/0169-7552(89)90019-6
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from statistics import median
from typing import NamedTuple

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.slots import Slots

FALL, RISE = 0.5, 0.02
"""Weight of a round's latency in the reference: of a lower one, and of a late one."""
ADAPTIVE = "adaptive"


def reply_limit(concurrent_replies: int | str | None) -> AdaptiveLimit | nullcontext[None]:
    """The limit that one dial asks for; enter it with `async with` around each call, any number of times.

    Args:
        concurrent_replies: calls at a time, at least 1; "adaptive": as many as the server takes; None: any number.

    Raises:
        ConfigurationError: anything else.
    """
    if concurrent_replies is None:
        return nullcontext()
    if concurrent_replies == ADAPTIVE:
        return AdaptiveLimit()
    fixed = concurrent_replies
    if not isinstance(fixed, int) or isinstance(fixed, bool) or fixed < 1:
        raise ConfigurationError(
            f"concurrent_replies must be a whole number above 0, {ADAPTIVE!r}, or null for no limit; given: {fixed!r}"
        )
    return AdaptiveLimit(start=fixed, lowest=fixed, highest=fixed)  # bounds that leave it nowhere to go


class AdaptiveLimit:
    """Holds calls back above a limit that it finds itself; first come, first served.

    Args:
        start: limit to begin with.
        lowest, highest: bounds of the limit, in calls.
        tolerance: how many times the reference a round's latency may be, > 1.
        factor: of a decrease, between 0 and 1.
        clock: seconds; another one makes a test exact.

    Raises:
        ConfigurationError: not 1 <= lowest <= start <= highest, or a tolerance or factor that can't work.
    """

    def __init__(
        self,
        start: int = 16,
        lowest: int = 1,
        highest: int = 4096,
        tolerance: float = 2.0,
        factor: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ):
        if not 1 <= lowest <= start <= highest:
            raise ConfigurationError(f"1 <= lowest <= start <= highest must hold; given: {lowest}, {start}, {highest}")
        if not tolerance > 1:
            raise ConfigurationError(f"tolerance must be above 1; given: {tolerance}")
        if not 0 < factor < 1:
            raise ConfigurationError(f"factor must be between 0 and 1; given: {factor}")
        self._lowest, self._highest = lowest, highest
        self._tolerance, self._factor = tolerance, factor
        self._clock = clock
        self._slots = Slots(start)
        self._calls: dict[asyncio.Task | None, _Call] = {}
        self._decreases = 0
        self._latencies: list[float] = []
        """Of this round."""
        self._reached = False
        """Whether this round had as many calls at a time as it may."""
        self._reference: float | None = None

    @property
    def limit(self) -> int:
        return self._slots.limit

    @property
    def holders(self) -> int:
        """Calls under way; above the limit only after that was lowered."""
        return self._slots.held

    @property
    def waiting(self) -> int:
        return self._slots.waiting

    @property
    def reference_seconds(self) -> float | None:
        """R above; None before the first round has ended."""
        return self._reference

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        if task in self._calls:
            raise RuntimeError(
                "this task already holds a place under the limit; waiting for a second one may never end"
            )
        await self._slots.acquire()
        self._reached |= self._slots.held >= self._slots.limit
        self._calls[task] = _Call(self._clock(), self._decreases)

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        call = self._calls.pop(asyncio.current_task())
        if call.decreases == self._decreases:
            self._judge(self._clock() - call.begin, error)
        self._slots.release()

    def _judge(self, seconds: float, error: BaseException | None) -> None:
        if error is None:
            self._latencies.append(seconds)
            if len(self._latencies) >= self.limit:
                self._end_round(median(self._latencies))
        elif not isinstance(error, asyncio.CancelledError) or self._is_late(seconds):
            self._decrease()

    def _end_round(self, latency: float) -> None:
        if self._reference is None:
            self._reference = latency
        late = self._is_late(latency)
        if late or latency < self._reference:
            self._reference += (RISE if late else FALL) * (latency - self._reference)
        if late:
            self._decrease()
            return
        if self._reached:
            self._slots.limit = min(self.limit + 1, self._highest)
        self._begin_round()

    def _is_late(self, seconds: float) -> bool:
        """Where nothing came back yet, whoever gave up has waited too long."""
        return self._reference is None or seconds > self._tolerance * self._reference

    def _decrease(self) -> None:
        self._slots.limit = max(int(self.limit * self._factor), self._lowest)
        self._decreases += 1
        self._begin_round()

    def _begin_round(self) -> None:
        self._latencies = []
        self._reached = False


class _Call(NamedTuple):
    begin: float
    decreases: int
    """How many there had been when it began."""
