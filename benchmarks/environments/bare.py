"""The bare side: a process that plays episodes without us, or with our class alone, and answers with the seconds.

It runs under the interpreter that has the package. A line on its stdin is a request, `{"side", "episodes"}`; a line on
its stdout the answer. "package" is the driver of `packages`, "class" our environment called directly: what that takes
more is what the adapter costs, and what a worker takes on top of it is what crossing to another process costs.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from agentgym_rl.environment import BlockingEnvironment
from agentgym_rl.environments.worker import load
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from benchmarks.environments.packages import DRIVERS, Driver


class OurClass:
    """Our environment, called directly."""

    def __init__(self, target: str):
        made = load(target)()
        if isinstance(made, BlockingEnvironment):
            self.reset: Callable[[Task], Any] = made.reset
            self._step: Callable[[Any], Any] = made.step
        else:
            run = asyncio.new_event_loop().run_until_complete
            self.reset = lambda task: run(made.reset(task))
            self._step = lambda action: run(made.step(action))

    def step(self, action: str) -> None:
        self._step(assistant(action))


def timed(driver: Driver | OurClass, episodes: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Seconds of every reset and step."""
    resets, steps = [], []
    for episode in episodes:
        task = Task.from_json(episode["task"])
        begun = time.perf_counter()
        driver.reset(task)
        resets.append(time.perf_counter() - begun)
        for action in episode["actions"]:
            begun = time.perf_counter()
            driver.step(action)
            steps.append(time.perf_counter() - begun)
    return {"resets": resets, "steps": steps}


def main(name: str, target: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a package may print
    made: dict[str, Driver | OurClass] = {}
    for line in sys.stdin:
        request = json.loads(line)
        side = request["side"]
        try:
            if side not in made:
                made[side] = DRIVERS[name]() if side == "package" else OurClass(target)
            answer: dict[str, Any] = timed(made[side], request["episodes"])
        except Exception as error:  # a package is foreign code
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
