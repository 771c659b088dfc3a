"""An environment whose turns take log-normal times, drawn from the task alone: every scheduler gets the same work."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence

from agentgym_rl.environment import Environment, Facts, StepResult
from agentgym_rl.messages import Message, user
from agentgym_rl.task import Task

NAME = "benchmarks.rollout.latency:LatentEnvironment"


class LatentEnvironment(Environment):
    """Waits at each step as long as the task says, and ends after the last one."""

    facts = Facts((0.0, 1.0), 1000)

    async def reset(self, task: Task) -> Sequence[Message]:
        self._seconds = iter(turn_seconds(task))
        self._left = task.arguments["turns"]
        return (user("begin"),)

    async def step(self, action: Message) -> StepResult:
        await asyncio.sleep(next(self._seconds))
        self._left -= 1
        return StepResult.going_on("went on") if self._left else StepResult.at_end(1.0, True)


def turn_seconds(task: Task) -> list[float]:
    """exp(sigma · z) for each turn, z standard normal: the median is 1 second."""
    dice = random.Random(task.seed)
    sigma = task.arguments["sigma"]
    return [math.exp(sigma * dice.gauss(0.0, 1.0)) for _ in range(task.arguments["turns"])]


def tasks(count: int, fewest: int, most: int, sigma: float, seed: int) -> list[Task]:
    """With numbers of turns that are uniform from `fewest` to `most`."""
    dice = random.Random(seed)
    return [
        Task(f"t{number}", NAME, {"turns": dice.randint(fewest, most), "sigma": sigma}, seed=dice.getrandbits(32))
        for number in range(count)
    ]
