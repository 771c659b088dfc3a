"""Awaiting many at once, so that nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def all_or_cancel(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all; the first error cancels the rest, which is waited for, so that its environments get closed."""
    running = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*running)
    finally:
        await cancel(running)


async def cancel(running: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel what is still under way, and wait until it has ended."""
    running = list(running)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
