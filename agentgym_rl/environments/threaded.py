"""A blocking environment behind the asynchronous interface, on one thread of its own.

One thread an instance: calls of an instance stay in order, and one that hangs holds up nobody else. Such a thread can't
be killed; an environment that may hang or crash its process belongs behind `ProcessEnvironment`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from agentgym_rl.environment import BlockingEnvironment, Environment, Facts, StepResult
from agentgym_rl.errors import EnvironmentFailed
from agentgym_rl.messages import Message
from agentgym_rl.own_thread import OwnThread
from agentgym_rl.task import Task
from agentgym_rl.tools import ToolSchema


class ThreadedEnvironment(Environment):
    """Runs each method of `environment` on this instance's thread; the thread starts with the first call."""

    def __init__(self, environment: BlockingEnvironment):
        self._environment = environment
        self._thread = OwnThread(type(environment).__name__, EnvironmentFailed)
        self._closed = False

    @property
    def facts(self) -> Facts:  # type: ignore[override]
        return self._environment.facts

    @property
    def instructions(self) -> str:  # type: ignore[override]
        return self._environment.instructions

    @property
    def tools(self) -> Sequence[ToolSchema]:  # type: ignore[override]
        return self._environment.tools

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
            self._thread.stop()

    async def _run(self, method: Callable[..., Any], *arguments: Any) -> Any:
        if self._closed:
            raise EnvironmentFailed(f"{type(self._environment).__name__} was used after close")
        return await self._thread.run(partial(method, *arguments))
