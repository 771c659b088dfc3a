"""An environment around another one: whatever it does not change goes through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentgym_rl.environment import BlockingEnvironment, Environment, Facts, StepResult
from agentgym_rl.messages import Message
from agentgym_rl.task import Task
from agentgym_rl.tools import ToolSchema


class Forwarding(Environment):
    """Makes every call of `inner`, in the way that `_pass_on` says."""

    def __init__(self, inner: Environment | BlockingEnvironment):
        self._inner = inner

    async def _pass_on(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of `inner`."""
        return await method(*arguments)

    @property
    def facts(self) -> Facts:  # type: ignore[override]
        return self._inner.facts

    @property
    def instructions(self) -> str:  # type: ignore[override]
        return self._inner.instructions

    @property
    def tools(self) -> Sequence[ToolSchema]:  # type: ignore[override]
        return self._inner.tools

    async def reset(self, task: Task) -> Sequence[Message]:
        return await self._pass_on(self._inner.reset, task)

    async def step(self, action: Message) -> StepResult:
        return await self._pass_on(self._inner.step, action)

    async def close(self) -> None:
        await self._pass_on(self._inner.close)

    async def expert_action(self) -> str:
        return await self._pass_on(self._inner.expert_action)

    async def actions(self) -> Sequence[str]:
        return await self._pass_on(self._inner.actions)

    async def snapshot(self) -> bytes:
        return await self._pass_on(self._inner.snapshot)

    async def restore(self, snapshot: bytes) -> None:
        await self._pass_on(self._inner.restore, snapshot)


class Wrapper(Forwarding):
    """Passes every call on to `inner`; closing it closes `inner`."""

    _inner: Environment

    @property
    def inner(self) -> Environment:
        return self._inner
