"""Coroutines for code that does not await: some run at once, and their results come in the order of the calls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from agentgym_rl.together import cancel

T = TypeVar("T")


def in_order(calls: Iterable[Coroutine[Any, Any, T]], at_once: int) -> Iterator[T]:
    """Run the calls on an event loop of their own.

    Args:
        calls: are taken as there is room for them.
        at_once: how many are under way, or done before their turn.
    """
    waiting: deque[asyncio.Task[T]] = deque()
    calls = iter(calls)
    loop = asyncio.new_event_loop()
    try:
        while True:
            waiting.extend(loop.create_task(call) for call in islice(calls, at_once - len(waiting)))
            if not waiting:
                return
            yield loop.run_until_complete(waiting[0])
            waiting.popleft()
    finally:
        loop.run_until_complete(cancel(waiting))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
