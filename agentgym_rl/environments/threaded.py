"""A blocking environment behind the asynchronous interface, on one thread of its own.

One thread an instance: calls of an instance stay in order, and one that hangs holds up nobody else. Such a thread can't
be killed; an environment that may hang or crash its process belongs behind `ProcessEnvironment`.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from agentgym_rl.environment import BlockingEnvironment, Environment, StepResult
from agentgym_rl.errors import EnvironmentFailed
from agentgym_rl.messages import Message
from agentgym_rl.task import Task


class ThreadedEnvironment(Environment):
    """Runs each method of `environment` on this instance's thread; the thread starts with the first call."""

    def __init__(self, environment: BlockingEnvironment):
        self.facts = environment.facts
        self.instructions = environment.instructions
        self._environment = environment
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def reset(self, task: Task) -> Sequence[Message]:
        return await self._run(self._environment.reset, task)

    async def step(self, action: Message) -> StepResult:
        return await self._run(self._environment.step, action)

    async def expert_action(self) -> str:
        return await self._run(self._environment.expert_action)

    async def actions(self) -> Sequence[str]:
        return await self._run(self._environment.actions)

    async def snapshot(self) -> bytes:
        return await self._run(self._environment.snapshot)

    async def restore(self, snapshot: bytes) -> None:
        await self._run(self._environment.restore, snapshot)

    async def close(self) -> None:
        if self._closed:
            return
        closing = self._run(self._environment.close)
        try:
            await closing
        finally:
            self._closed = True
            self._calls.put(None)

    async def _run(self, method: Callable[..., Any], *arguments: Any) -> Any:
        if self._closed:
            raise EnvironmentFailed(f"{type(self._environment).__name__} was used after close")
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()

        def call() -> None:
            try:
                result, error = method(*arguments), None
            except BaseException as raised:  # carried to the awaiting side, which is the boundary
                result, error = None, raised
            with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, outcome, result, error)

        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=type(self._environment).__name__, daemon=True)
            self._thread.start()
        self._calls.put(call)
        return await outcome

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _settle(outcome: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if outcome.done():
        return  # the caller's deadline came first
    if error is None:
        outcome.set_result(result)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):  # which no future takes
        outcome.set_exception(error)
    else:
        outcome.set_exception(EnvironmentFailed(f"it raised {type(error).__name__}: {error}"))
