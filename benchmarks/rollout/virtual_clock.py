"""`run()`: an event loop whose clock jumps over every wait, so that hours of latency take seconds and no noise.

What is measured on it is the schedule alone: code takes no time on that clock, only waits do.
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
            raise RuntimeError("every session waits for something that nobody will do: a hang")
        self.now += max(timeout, 0.0)
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(call: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on the virtual clock."""
    loop = _VirtualLoop()
    try:
        return loop.run_until_complete(call)
    finally:
        loop.close()
