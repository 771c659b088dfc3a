"""A policy and an environment that take no time of their own, so that what is left is the loop around them.

`hops` is how often each call gives the event loop a turn before it answers: with 0 it never suspends, as no policy
server ever does; with 1 every call really waits while its deadline runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentgym_rl.environment import Environment, Facts, StepResult
from agentgym_rl.messages import Message, assistant, user
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task

TASK = Task("instant", "benchmarks.rollout.instant:InstantEnvironment")


class InstantEnvironment(Environment):
    """Never ends; answers the same for ever."""

    facts = Facts((0.0, 0.0), 1_000_000)
    result = StepResult.going_on("went on")

    def __init__(self, hops: int = 0):
        self._hops = hops

    async def reset(self, task: Task) -> Sequence[Message]:
        return (user("begin"),)

    async def step(self, action: Message) -> StepResult:
        for _ in range(self._hops):
            await asyncio.sleep(0)
        return self.result


class InstantPolicy:
    """Says the same for ever."""

    answer = Reply(assistant("go on"))

    def __init__(self, hops: int = 0):
        self._hops = hops

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        for _ in range(self._hops):
            await asyncio.sleep(0)
        return self.answer
