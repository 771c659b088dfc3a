"""One environment, measured: through our worker process, by our class alone, and by its package alone.

All sides play the same tasks with the same actions, which the expert (or chance, from the listed actions) chose before.
Sides take turns in every round, and only one of them works at a time. Of each reset and step the quickest of the rounds
counts: it is the same work every time, and what took longer was held up by something else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import psutil

from agentgym_rl.data.sample_tasks import sample_tasks
from agentgym_rl.environments import registry
from agentgym_rl.environments.interpreter import interpreter_of, worker_variables
from agentgym_rl.environments.process import LINE_BYTES, ProcessEnvironment
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.evaluation.policies import Sampling, policies
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from benchmarks.environments.packages import DRIVERS

ROOT = Path(__file__).parents[2]
MIB = 2**20


class Episode(NamedTuple):
    task: Task
    actions: tuple[str, ...]


class Times(NamedTuple):
    """Seconds of every reset and step, of one round or of several."""

    resets: list[float]
    steps: list[float]

    @classmethod
    def quickest(cls, rounds: Sequence[Times]) -> Times:
        """Of each reset and step, over the rounds."""
        return cls(*([min(same) for same in zip(*calls, strict=True)] for calls in zip(*rounds, strict=True)))

    @property
    def reset(self) -> float:
        return fmean(self.resets)

    @property
    def step(self) -> float:
        return fmean(self.steps)


@dataclass(frozen=True)
class Measured:
    """One environment's figures."""

    name: str
    times: dict[str, Times]
    """By side: "worker", "class" and, where there is a driver, "package"."""
    rss_mib: float
    """Resident memory of the worker and all that it started."""
    pss_mib: float
    """Of that, its share: pages that several processes have are divided among them."""

    @property
    def compared_with(self) -> str:
        return "package" if "package" in self.times else "class"

    @property
    def bare(self) -> Times:
        return self.times[self.compared_with]

    @property
    def worker(self) -> Times:
        return self.times["worker"]


async def measured(name: str, tasks: int, rounds: int, seed: int) -> Measured:
    """Measure one environment.

    Raises:
        ConfigurationError: it can't be played here, or by no policy; the message says why.
    """
    episodes = [await _recorded(task, seed) for task in sample_tasks(name, tasks, seed)]
    environment = registry.make(name, "process")
    assert isinstance(environment, ProcessEnvironment)
    sides = ["package", "class"] if name in DRIVERS else ["class"]
    found: dict[str, list[Times]] = {side: [] for side in (*sides, "worker")}
    try:
        async with _bare(name) as ask:
            for _ in range(rounds):
                for side in sides:
                    found[side].append(await ask(side, episodes))
                found["worker"].append(await _through_worker(environment, episodes))
        rss, pss = _memory(environment.pid)
    finally:
        await environment.close()
    return Measured(name, {side: Times.quickest(times) for side, times in found.items()}, rss, pss)


async def _recorded(task: Task, seed: int) -> Episode:
    """The actions of one episode."""
    async with registry.opened(task.environment, "process") as environment:
        await environment.start()
        facts = environment.facts
        if not facts.deterministic:
            raise ConfigurationError("it is not deterministic, so the same actions are not the same work")
        if facts.expert_success is None and not facts.lists_actions:
            raise ConfigurationError("it has neither an expert nor a list of actions to play by")
        policy = "random" if facts.expert_success is None else "expert"
        limits = Limits(max_turns=task.arguments.get("max_turns", facts.max_turns))
        with policies(policy, Sampling(seed=seed)) as make_policy:
            trajectory = await play(make_policy(environment, task, 0), environment, task, limits)
    if trajectory.failure or not trajectory.turns:
        raise ConfigurationError(trajectory.failure.message if trajectory.failure else "the episode had no turn")
    return Episode(task, tuple(turn.reply.message.content for turn in trajectory.turns))


async def _through_worker(environment: ProcessEnvironment, episodes: Sequence[Episode]) -> Times:
    resets, steps = [], []
    for episode in episodes:
        begun = time.perf_counter()
        await environment.reset(episode.task)
        resets.append(time.perf_counter() - begun)
        for action in episode.actions:
            begun = time.perf_counter()
            await environment.step(assistant(action))
            steps.append(time.perf_counter() - begun)
    return Times(resets, steps)


@asynccontextmanager
async def _bare(name: str) -> AsyncIterator[Any]:
    """A process of `bare`, as a function of side and episodes."""
    interpreter = interpreter_of(name)
    process = await asyncio.create_subprocess_exec(
        interpreter or sys.executable,
        *("-m", "benchmarks.environments.bare", name, registry.target(name)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=ROOT,
        env=worker_variables(interpreter, {}),
        limit=LINE_BYTES,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    async def ask(side: str, episodes: Sequence[Episode]) -> Times:
        rows = [{"task": episode.task.to_json(), "actions": episode.actions} for episode in episodes]
        process.stdin.write(json.dumps({"side": side, "episodes": rows}).encode() + b"\n")
        answer = json.loads(await process.stdout.readline() or '{"error": "its process ended"}')
        if "error" in answer:
            raise ConfigurationError(f"the bare side ({side}) failed: {answer['error']}")
        return Times(**answer)

    try:
        yield ask
    finally:
        process.stdin.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), 10)
        if process.returncode is None:
            process.kill()
            await process.wait()


def _memory(pid: int | None) -> tuple[float, float]:
    """MiB of RSS and PSS of a process with all its descendants."""
    worker = psutil.Process(pid if pid is not None else os.getpid())
    found = [process.memory_full_info() for process in (worker, *worker.children(recursive=True))]
    return sum(info.rss for info in found) / MIB, sum(info.pss for info in found) / MIB
