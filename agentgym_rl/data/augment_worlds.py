"""An environment as the policy of an augmented episode gets to see it: one answer withheld, or all in other words.

Invariant: the environment itself does what the actions say, and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from agentgym_rl.environment import Environment, StepResult
from agentgym_rl.environments.wrapper import Wrapper
from agentgym_rl.messages import Message
from agentgym_rl.rephrasing import Rephrasing
from agentgym_rl.task import Task
from agentgym_rl.tool_calls import ToolFormat, render_result
from agentgym_rl.tools import TOOL_ERRORS
from agentgym_rl.trajectory import Turn


class FailsOnce(Wrapper):
    """Answers one action with an error, and does not carry it out.

    Args:
        inner: the environment.
        action: which one, from 0 after a reset; a reply that can't be read is none.
        error: what is answered.
        instead_of: the turn with what the environment would answer; the error has its roles, ids and tags.
    """

    def __init__(self, inner: Environment, action: int, error: str, instead_of: Turn):
        super().__init__(inner)
        self._actions_left = self._action = action
        answers = instead_of.observation
        self._error = tuple(replace(seen, content=_in_tags_of(seen.content, error)) for seen in answers)
        self._info = {TOOL_ERRORS: len(answers)} if TOOL_ERRORS in instead_of.info else {}

    async def reset(self, task: Task) -> Sequence[Message]:
        self._actions_left = self._action
        return await self.inner.reset(task)

    async def step(self, action: Message) -> StepResult:
        self._actions_left -= 1
        if self._actions_left == -1:
            return StepResult(self._error, 0.0, False, False, info=self._info)
        return await self.inner.step(action)


class Reworded(Wrapper):
    """Tells everything in other words."""

    def __init__(self, inner: Environment, rephrasing: Rephrasing, chance: random.Random):
        super().__init__(inner)
        self._vary, self._chance = rephrasing.vary, chance

    async def reset(self, task: Task) -> Sequence[Message]:
        return self._told(await self.inner.reset(task))

    async def step(self, action: Message) -> StepResult:
        result = await self.inner.step(action)
        return replace(result, observation=self._told(result.observation))

    def _told(self, observation: Sequence[Message]) -> tuple[Message, ...]:
        return tuple(replace(seen, content=self._vary(seen.content, self._chance)) for seen in observation)


def _in_tags_of(result: str, error: str) -> str:
    """The error as a tool-call format writes a result, where the result is written in one."""
    for format in get_args(ToolFormat):
        opening, _, closing = render_result("\0", format).partition("\0")
        if opening and result.startswith(opening) and result.endswith(closing):
            return f"{opening}{error}{closing}"
    return error
