"""`run()`: an event loop whose clock jumps over every wait, so that hours of latency take seconds and no noise.

What is measured on it is the schedule alone: code takes no time on that clock, only waits do. A hang ends at once by
its deadline, and nothing depends on how busy the machine is. Nothing may be left under way.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everybody waits for something that nobody will do: a hang")
        self.now += max(timeout, 0.0)
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(call: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on the virtual clock.

    Raises:
        RuntimeError: everybody waits for something that nobody will do, or tasks were left behind.
    """
    loop = _VirtualLoop()
    try:
        result = loop.run_until_complete(call)
        loop.run_until_complete(asyncio.sleep(0.001))  # what was cancelled last gets to know
        left = asyncio.all_tasks(loop)
        if left:
            raise RuntimeError(f"{len(left)} tasks were left under way; one is {left.pop()!r}")
        return result
    finally:
        loop.close()
