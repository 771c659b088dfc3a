"""Environments for the tests of the pool on a cluster, addressed by "module:Class": other processes import them."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Sequence

import ray
from doubles import Countdown

from agentgym_rl.environment import StepResult
from agentgym_rl.episode import play
from agentgym_rl.messages import Message, user
from agentgym_rl.policy import ScriptedPolicy
from agentgym_rl.task import Task
from verl_ext.ray_pool import RayPool
from verl_ext.ray_pool_placement import Placement


class Located(Countdown):
    """Says on which node it runs; its instructions are known once it was reset."""

    async def reset(self, task: Task) -> Sequence[Message]:
        await super().reset(task)
        self.instructions = f"Play {task.id}."
        return [user(ray.get_runtime_context().get_node_id())]


class InfoThatCannotTravel(Countdown):
    async def step(self, action: Message) -> StepResult:
        return StepResult.going_on("fine", lock=threading.Lock())


class NowhereToBeMade(Countdown):
    def __init__(self) -> None:
        raise OSError("no room")


def play_in(pool: str, kind: str) -> tuple[bool | None, list[str]]:
    """Count down from 3 in a pool with one actor; returns the success, and what heavy modules that took."""

    async def play_once() -> bool | None:
        async with RayPool.connect(pool, {kind: Placement()}).lease(kind) as environment:
            return (await play(ScriptedPolicy(["1", "2"]), environment, Task("t", kind))).success

    return asyncio.run(play_once()), [name for name in ("verl", "torch") if name in sys.modules]
