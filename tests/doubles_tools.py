"""An environment that has tools of its own, each thing that may break in it, and replies that call tools."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentgym_rl.environment import BlockingEnvironment, Environment, Facts, StepResult
from agentgym_rl.environments.tool_replies import result_messages
from agentgym_rl.messages import Message, ToolCall, user
from agentgym_rl.task import Task
from agentgym_rl.tool_calls import render_calls
from agentgym_rl.tools import ToolSchema

NESTED = {
    "type": "object",
    "properties": {
        "item": {
            "type": "object",
            "description": "What to buy.",
            "properties": {"name": {"type": "string"}, "sizes": {"type": "array", "items": {"type": "integer"}}},
            "required": ["name"],
        },
        "count": {"type": "integer", "default": 1, "minimum": 1},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    },
    "required": ["item"],
}


class Shop(Environment):
    """Buy what is asked for, then say how many things you bought.

    Actions: calls of `buy`, then the number as text. Reward: 0.25 for each call, 1 for the right number. End: a number.
    """

    facts = Facts(reward_range=(0.0, 1.0), max_turns=8, any_text=True)
    instructions = "Buy, then say how many things you bought."
    tools: Sequence[ToolSchema] = (ToolSchema("buy", "Buy things, at ${price} each.", NESTED),)
    opened = 0
    closed = 0

    async def reset(self, task: Task) -> Sequence[Message]:
        type(self).opened += 1
        self.bought = 0
        return [user(f"Buy {task.arguments.get('what', 'tea')}.")]

    async def step(self, action: Message) -> StepResult:
        if not action.tool_calls:
            right = action.content == str(self.bought)
            return StepResult.at_end(float(right), right)
        for call in action.tool_calls:
            await self.carry_out(call)
        texts = [f"bought {self.bought}"] * len(action.tool_calls)
        seen = result_messages(action, texts, "native")
        return StepResult(seen, 0.25 * len(action.tool_calls), False, False)

    async def carry_out(self, call: ToolCall) -> None:
        self.bought += call.arguments.get("count", 1)

    async def close(self) -> None:
        type(self).closed += 1


class OnceShop(Shop):
    """A new instance for each episode."""

    facts = replace(Shop.facts, reusable=False)


class HangingShop(Shop):
    async def carry_out(self, call: ToolCall) -> None:
        await asyncio.Event().wait()


class CrashingShop(Shop):
    async def carry_out(self, call: ToolCall) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class RaisingShop(Shop):
    async def carry_out(self, call: ToolCall) -> None:
        raise ZeroDivisionError("the till is empty")


class NewStartEachTime(Shop):
    async def reset(self, task: Task) -> Sequence[Message]:
        await super().reset(task)
        return [user(f"Buy {type(self).opened} things.")]


def name_of(double: type) -> str:
    return f"{__name__}:{double.__name__}"


def shop_task(double: type = Shop, **arguments: Any) -> Task:
    return Task("t", name_of(double), arguments)


def buy(count: int = 1, name: str = "buy") -> str:
    """A reply with one call, in the form of hermes."""
    return render_calls([ToolCall(name, {"item": {"name": "tea"}, "count": count})], "hermes")


def say(text: str, tool: str = "final_answer", argument: str = "answer") -> str:
    return render_calls([ToolCall(tool, {argument: text})], "hermes")


class Parity(BlockingEnvironment):
    """Say anything, three times. Reward: 1 for a text of even length. Solved whatever was said."""

    facts = Facts(reward_range=(0.0, 1.0), max_turns=3)
    instructions = "Say anything."

    def reset(self, task: Task) -> Sequence[Message]:
        self.turns = 0
        return [user("Begin.")]

    def step(self, action: Message) -> StepResult:
        self.turns += 1
        reward = float(len(action.content) % 2 == 0)
        if self.turns == 3:
            return StepResult.at_end(reward, True, "enough")
        return StepResult.going_on("go on", reward)


class Unavailable(Parity):
    """Raises in reset from some moment on."""

    def reset(self, task: Task) -> Sequence[Message]:
        if os.environ.get("UNAVAILABLE"):
            raise ConnectionError("the service is down")
        return super().reset(task)
