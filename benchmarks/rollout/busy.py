"""A blocking environment whose step keeps its core busy for a given time, and the raw loop over it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from agentgym_rl.environment import BlockingEnvironment, Facts, StepResult
from agentgym_rl.messages import Message, assistant, user
from agentgym_rl.task import Task

NAME = "benchmarks.rollout.busy:BusyEnvironment"


class BusyEnvironment(BlockingEnvironment):
    """Never ends. A step takes the task's seconds of CPU time, so that sharing a core does not make it look shorter."""

    facts = Facts((0.0, 0.0), 1_000_000_000)

    def reset(self, task: Task) -> Sequence[Message]:
        self._seconds = task.arguments["seconds"]
        return [user("begin")]

    def step(self, action: Message) -> StepResult:
        end = time.thread_time() + self._seconds
        while time.thread_time() < end:
            pass
        return StepResult.going_on("You see a red ball two steps ahead and a closed door on your left.")


def task(seconds: float) -> Task:
    return Task("busy", NAME, {"seconds": seconds})


def raw_steps(seconds: float, step_seconds: float) -> float:
    """Steps a second that a bare loop in this process takes."""
    environment = BusyEnvironment()
    environment.reset(task(step_seconds))
    action = assistant("move forward")
    begin, steps = time.perf_counter(), 0
    while (passed := time.perf_counter() - begin) < seconds:
        environment.step(action)
        steps += 1
    return steps / passed
