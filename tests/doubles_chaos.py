"""A walk that can be snapshot, with its faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, ClassVar

from agentgym_rl.environment import Environment, Facts, StepResult
from agentgym_rl.environments import registry
from agentgym_rl.messages import Message, user
from agentgym_rl.task import Task


class Walk(Environment):
    """Go left or right; a gust that depends on the seed, the turn and the place moves you on.

    Arguments: `max_turns` (default 6). Observations: place and turn. Reward: a tenth of the place. End: at place 4 or
    beyond, which solves the task; cut off after max_turns.
    """

    facts = Facts((-10.0, 10.0), 6, 0.1, can_snapshot=True, lists_actions=True)
    instructions = "Walk."
    open_now: ClassVar[int] = 0
    """Instances between reset or restore and close."""

    def __init__(self) -> None:
        self.state: dict[str, Any] | None = None

    def begin(self, state: dict[str, Any]) -> None:
        Walk.open_now += self.state is None
        self.state = state

    async def reset(self, task: Task) -> Sequence[Message]:
        await asyncio.sleep(0)
        turns = task.arguments.get("max_turns", 6)
        self.begin({"seed": task.seed, "place": task.seed % 3, "turn": 0, "max_turns": turns})
        return [user(self.seen())]

    async def step(self, action: Message) -> StepResult:
        await asyncio.sleep(0)
        state = self.state
        assert state is not None
        valid = action.content in ("left", "right")
        gust = (state["seed"] + 2 * state["turn"] + state["place"]) % 3 - 1
        state["place"] += {"left": -1, "right": 1}.get(action.content, 0) + gust
        state["turn"] += 1
        reward = state["place"] / 10
        if state["place"] >= 4:
            return StepResult.at_end(reward, True, self.seen())
        if state["turn"] >= state["max_turns"]:
            return StepResult.cut_off(self.seen(), reward, valid)
        return StepResult.going_on(self.seen(), reward, valid, gust=gust)

    def seen(self) -> str:
        assert self.state is not None
        return f"place {self.state['place']} at turn {self.state['turn']}"

    async def actions(self) -> Sequence[str]:
        return ["left", "right"]

    async def expert_action(self) -> str:
        return "right"

    async def snapshot(self) -> bytes:
        return json.dumps(self.state).encode()

    async def restore(self, snapshot: bytes) -> None:
        await asyncio.sleep(0)
        self.begin(json.loads(snapshot))

    async def close(self) -> None:
        Walk.open_now -= self.state is not None
        self.state = None


class ChangedWalk(Walk):
    """From its second reset on it differs by what the task's argument `change` says."""

    resets: ClassVar[int] = 0

    async def reset(self, task: Task) -> Sequence[Message]:
        ChangedWalk.resets += 1
        self.change = task.arguments["change"] if ChangedWalk.resets > 1 else ""
        seen = await super().reset(task)
        return [user("another place")] if self.change == "opening" else seen

    async def step(self, action: Message) -> StepResult:
        assert self.state is not None
        turn = self.state["turn"]
        result = await super().step(action)
        if self.change == "observation" and turn == 1:
            return StepResult.going_on("fog", result.reward)
        if self.change == "reward" and turn == 1:
            return StepResult.going_on(self.seen(), 9.5)
        if self.change == "end" and turn == 1:
            return StepResult.at_end(result.reward, True, self.seen())
        return result


class MoodyWalk(Walk):
    facts = Facts((-10.0, 10.0), 6, deterministic=False, can_snapshot=True)


class HangsInRestore(Walk):
    async def restore(self, snapshot: bytes) -> None:
        await asyncio.Event().wait()


class NoSnapshots(Walk):
    facts = Facts((-10.0, 10.0), 6)
    snapshot = Environment.snapshot
    restore = Environment.restore


for kind in (Walk, ChangedWalk, MoodyWalk, HangsInRestore, NoSnapshots):
    registry.register(kind.__name__, f"{__name__}:{kind.__name__}")


def walk(seed: int = 0, kind: type = Walk, **arguments: object) -> Task:
    return Task(f"walk-{seed}", kind.__name__, arguments, seed=seed)
