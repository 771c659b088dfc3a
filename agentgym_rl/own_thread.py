"""Blocking calls off the event loop, on a thread of their own: in order, and one that hangs holds up nobody else.

Such a thread can't be killed; a call that its caller gave up runs on, and what it gives is dropped. asyncio's own pool
of threads would be full after a few of those, and would be waited for when the program ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

from agentgym_rl.errors import BoundaryError


class OwnThread:
    """One daemon thread, which starts with the first call.

    Args:
        name: of the thread.
        failed: what a call raises whose exception no future takes (`SystemExit`, `StopIteration`).
    """

    def __init__(self, name: str, failed: type[BoundaryError]):
        self._name = name
        self._failed = failed
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, call: Callable[[], Any]) -> Any:
        """Await the call's result, or raise its exception."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()

        def work() -> None:
            try:
                result, error = call(), None
            except BaseException as raised:  # carried to the awaiting side, which is the boundary
                result, error = None, raised
            with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._settle, outcome, result, error)

        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._calls.put(work)
        return await outcome

    def stop(self) -> None:
        """End the thread after the calls that it was given; does not wait."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _settle(self, outcome: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        if outcome.done():
            return  # the caller's deadline came first
        if error is None:
            outcome.set_result(result)
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            outcome.set_exception(error)
        else:
            outcome.set_exception(self._failed(f"it raised {type(error).__name__}: {error}"))
