"""Environments in worker processes: steps a second through the pool against bare loops in as many processes as cores.

A step keeps a core busy for 1 ms of CPU time. Measured by turns, raw and pooled, in one run, on the same cores; the
parent, which plays the episodes, shares them too. More workers than cores keep the cores busy while an answer is on
its way. Target: at least 80% of the raw steps a second.

Where other jobs run on the cores, four workers get a larger share of them than two loops do. The second figure does
not depend on that: how much CPU time a step takes, over the parent and its workers, raw and pooled.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import median
from typing import Any, NamedTuple

import psutil

from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import BudgetExhausted
from agentgym_rl.messages import Message
from agentgym_rl.policy import Reply
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.trajectory import StopReason
from agentgym_rl.viewer.chart import Curve, Point
from benchmarks.results import Result, Verdict, machine, parser, write
from benchmarks.rollout.busy import NAME, raw_steps, task
from benchmarks.rollout.instant import InstantPolicy

TARGET_SHARE = 0.8


class Rate(NamedTuple):
    """Of steps, over all processes."""

    steps_per_second: float
    cpu_milliseconds: float
    """A step, over this process and its children."""


def cpu_seconds() -> float:
    """That this process and its children have used."""
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(found.user + found.system for found in times)


def raw_rate(executor: ProcessPoolExecutor, cores: int, seconds: float, step_seconds: float) -> Rate:
    """Bare loops, all at the same time."""
    cpu = cpu_seconds()
    loops = [executor.submit(raw_steps, seconds, step_seconds) for _ in range(cores)]
    rate = sum(loop.result() for loop in loops)
    return Rate(rate, 1000 * (cpu_seconds() - cpu) / (rate * seconds))


class Window:
    """The time in which turns count: it begins when the last worker is ready, and then the policies stop in time."""

    def __init__(self, workers: int, seconds: float):
        self._missing, self._seconds = workers, seconds
        self._begin = math.inf
        self._cpu = math.nan
        self._turns = 0

    @property
    def is_over(self) -> bool:
        return time.perf_counter() >= self._begin + self._seconds

    def opened(self, _: object) -> None:
        self._missing -= 1
        if not self._missing:
            self._cpu = cpu_seconds()
            self._begin = time.perf_counter()

    def count(self, _: object) -> None:
        self._turns += self._begin <= time.perf_counter() and not self.is_over

    def rate(self) -> Rate:
        """To be asked at its end."""
        return Rate(self._turns / self._seconds, 1000 * (cpu_seconds() - self._cpu) / self._turns)


class PolicyOfWindow(InstantPolicy):
    """Says the same until the window is over."""

    def __init__(self, window: Window):
        super().__init__()
        self._window = window

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        if self._window.is_over:
            raise BudgetExhausted("the time is up")
        return await super().reply(conversation[-1:])


async def pooled_rate(pool: EnvironmentPool, workers: int, seconds: float, step_seconds: float) -> Rate:
    """`play()` over leased worker processes."""
    window = Window(workers, seconds)

    async def session() -> None:
        async with pool.lease(NAME) as environment:
            limits = Limits(max_turns=1_000_000, episode_seconds=seconds + 600)
            policy = PolicyOfWindow(window)
            trajectory = await play(policy, environment, task(step_seconds), limits, window.count, window.opened)
        assert trajectory.stop is StopReason.TOKEN_BUDGET, trajectory.failure

    await asyncio.gather(*(session() for _ in range(workers)))
    return window.rate()


async def pairs(options: Any, cores: int) -> list[tuple[Rate, Rate]]:
    """Raw and pooled, by turns; a first round of each warms up and is not counted."""
    found = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, context) as executor:
        async with EnvironmentPool(options.workers, isolation="process") as pool:
            await asyncio.to_thread(raw_rate, executor, cores, 0.1, options.step_seconds)
            await pooled_rate(pool, options.workers, 0.1, options.step_seconds)
            for _ in range(options.repeats):
                raw = await asyncio.to_thread(raw_rate, executor, cores, options.seconds, options.step_seconds)
                pooled = await pooled_rate(pool, options.workers, options.seconds, options.step_seconds)
                found.append((raw, pooled))
    return found


def main(arguments: Sequence[str] | None = None) -> Result:
    made = parser(__doc__, "rollout")
    made.add_argument("--workers", type=int, default=4, help="worker processes, one a session")
    made.add_argument("--seconds", type=float, default=3.0, help="length of one measurement")
    made.add_argument("--repeats", type=int, default=5, help="pairs of measurements; the median ratio counts")
    made.add_argument("--step-seconds", type=float, default=0.001, help="CPU time of a step")
    options = made.parse_args(arguments)
    state = machine()
    cores = len(os.sched_getaffinity(0))
    result = _result(options, cores, asyncio.run(pairs(options, cores)))
    write(result, state, options.out)
    return result


def _result(options: Any, cores: int, found: Sequence[tuple[Rate, Rate]]) -> Result:
    rows = [
        {
            "pair": number,
            f"raw, {cores} processes, steps/s": raw.steps_per_second,
            "pooled steps/s": pooled.steps_per_second,
            "share": pooled.steps_per_second / raw.steps_per_second,
            "raw CPU ms/step": raw.cpu_milliseconds,
            "pooled CPU ms/step": pooled.cpu_milliseconds,
            "share by CPU time": raw.cpu_milliseconds / pooled.cpu_milliseconds,
        }
        for number, (raw, pooled) in enumerate(found)
    ]
    shares = {column: median(row[column] for row in rows) for column in ("share", "share by CPU time")}
    verdicts = [
        Verdict(f"median {column}", share, f">= {TARGET_SHARE:g}", share >= TARGET_SHARE)
        for column, share in shares.items()
    ]
    names = (f"raw, {cores} processes", f"pooled, {options.workers} workers")
    curves = [
        Curve(name, [Point(number, rates[which].steps_per_second) for number, rates in enumerate(found)], "steps/s")
        for which, name in enumerate(names)
    ]
    settings = {name.replace("_", " "): value for name, value in vars(options).items() if name != "out"}
    return Result("process_pool", settings, rows, verdicts, curves, "pair of measurements")


if __name__ == "__main__":
    main()
