"""An environment around another one: whatever it does not change goes through."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_rl.environment import Environment, Facts, StepResult
from agentgym_rl.messages import Message
from agentgym_rl.task import Task
from agentgym_rl.tools import ToolSchema


class Wrapper(Environment):
    """Passes every call on to `inner`; closing it closes `inner`."""

    def __init__(self, inner: Environment):
        self.inner = inner

    @property
    def facts(self) -> Facts:  # type: ignore[override]
        return self.inner.facts

    @property
    def instructions(self) -> str:  # type: ignore[override]
        return self.inner.instructions

    @property
    def tools(self) -> Sequence[ToolSchema]:  # type: ignore[override]
        return self.inner.tools

    async def reset(self, task: Task) -> Sequence[Message]:
        return await self.inner.reset(task)

    async def step(self, action: Message) -> StepResult:
        return await self.inner.step(action)

    async def close(self) -> None:
        await self.inner.close()

    async def expert_action(self) -> str:
        return await self.inner.expert_action()

    async def actions(self) -> Sequence[str]:
        return await self.inner.actions()

    async def snapshot(self) -> bytes:
        return await self.inner.snapshot()

    async def restore(self, snapshot: bytes) -> None:
        await self.inner.restore(snapshot)
