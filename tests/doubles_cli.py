"""A staircase: the smallest environment with an expert, listed actions, a failure and an end without a verdict.

Say `up` as often as the stairs are high. Arguments: `height` (default 2), `breaks` (the first step raises),
`silent` (the top says nothing about success), `hangs` (the first step never answers), `note` (text of the opening).
"""

import asyncio
from collections.abc import Sequence

from agentgym_rl.environment import Environment, Facts, StepResult
from agentgym_rl.environments import registry
from agentgym_rl.messages import Message, user
from agentgym_rl.task import Task

STAIRS = "stairs"


class Stairs(Environment):
    """Climb the stairs with `up`.

    Task: reach the top. Reward: 1 at the top, else 0.
    """

    facts = Facts(reward_range=(0.0, 1.0), max_turns=20, expert_success=1.0, lists_actions=True, licence="none needed")
    instructions = "Answer with up or down."
    open_now = 0
    """Instances between reset and close, over all; the tests look whether any is left."""
    most_open = 0
    played: list[str] = []
    """Task ids in the order of their resets; cleared by the tests that read it."""

    def __init__(self) -> None:
        self._arguments: dict = {}
        self._floor = 0
        self._is_open = False

    async def reset(self, task: Task) -> Sequence[Message]:
        self._arguments = {"height": 2, **task.arguments}
        self._floor = 0
        Stairs.open_now += not self._is_open
        self._is_open = True
        Stairs.most_open = max(Stairs.most_open, Stairs.open_now)
        Stairs.played.append(task.id)
        return [user(self._arguments.get("note", "You stand at the foot of the stairs."))]

    async def step(self, action: Message) -> StepResult:
        await asyncio.sleep(0)
        if self._arguments.get("breaks"):
            raise RuntimeError("a stair broke")
        if self._arguments.get("hangs"):
            await asyncio.Event().wait()
        if action.content not in ("up", "down"):
            return StepResult.going_on(f"You can't {action.content!r}; allowed: up, down.", valid=False)
        self._floor = max(self._floor + (1 if action.content == "up" else -1), 0)
        if self._floor >= self._arguments["height"]:
            return StepResult.at_end(1.0, None if self._arguments.get("silent") else True, "You are at the top.")
        return StepResult.going_on(f"You are on stair {self._floor}.")

    async def close(self) -> None:
        if self._is_open:
            Stairs.open_now -= 1
        self._is_open = False

    async def expert_action(self) -> str:
        return "up"

    async def actions(self) -> Sequence[str]:
        return ["up", "down"]


class Mute(Stairs):
    """Stairs without an expert and without listed actions."""

    facts = Facts(reward_range=(0.0, 1.0), max_turns=20)


registry.register(STAIRS, f"{__name__}:Stairs")
registry.register("mute_stairs", f"{__name__}:Mute")


def stairs(task_id: str, **arguments: object) -> Task:
    return Task(task_id, STAIRS, arguments)
