"""`play_in_chaos()`: play episodes in environments that fail on purpose, and match what happened to what was injected.

Invariant: whatever is injected, each session that was started is emitted exactly once; the books are kept where the
sessions start and where their trajectories come out, and compared.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agentgym_rl.environments import registry
from agentgym_rl.environments.chaos import Chaos, Fault, Faults, Injected
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.evaluation.run import PolicyFactory
from agentgym_rl.task import Task
from agentgym_rl.together import all_or_cancel
from agentgym_rl.trajectory import StopReason, Trajectory

SURVIVED = "survived"
"""The episode went on."""


class Session(NamedTuple):
    """One episode with what was injected into it, in order."""

    number: int
    trajectory: Trajectory
    injected: tuple[Injected, ...]


@dataclass
class Books:
    """What was started, and what came out."""

    started: list[int] = field(default_factory=list)
    """Numbers of the sessions."""
    emitted: list[Session] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return sum(session.trajectory.failed for session in self.emitted)

    @property
    def finished(self) -> int:
        return len(self.emitted) - self.failed

    @property
    def balance(self) -> bool:
        """Each session that was started was emitted exactly once, and no other."""
        return Counter(self.started) == Counter(session.number for session in self.emitted)

    def fates(self) -> Mapping[Fault | None, Counter[str]]:
        """Fault -> how often it ended as what; None: episodes that failed without a fault that explains it."""
        fates: dict[Fault | None, Counter[str]] = {}
        for session in self.emitted:
            endings = [ended_as(session.trajectory, injected) for injected in session.injected]
            for injected, ending in zip(session.injected, endings, strict=True):
                fates.setdefault(injected.fault, Counter())[ending] += 1
            if session.trajectory.failure and session.trajectory.failure.cause not in endings:
                fates.setdefault(None, Counter())[session.trajectory.failure.cause] += 1
        return fates


async def play_in_chaos(
    make_policy: PolicyFactory,
    tasks: Sequence[Task],
    faults: Faults,
    limits: Limits | None = None,
    concurrency: int = 8,
    isolation: registry.Isolation = "thread",
) -> Books:
    """Play each task once.

    Args:
        make_policy: environment, task, number of the session -> its policy.
        tasks: with their places as the sessions' numbers.
        faults: rates and seed.
        limits: the deadlines, which end what hangs.
        concurrency: how many episodes are under way at once.
        isolation: "process": crashes are real.

    Raises:
        ConfigurationError, DataError: nothing can be played like this.
    """
    if concurrency < 1:
        raise ConfigurationError(f"concurrency must be at least 1; given: {concurrency}")
    books = Books()
    slots = asyncio.Semaphore(concurrency)

    async def session(number: int, task: Task) -> None:
        async with slots, registry.opened(task.environment, isolation) as opened:
            books.started.append(number)
            environment = Chaos(opened, faults, task.id, number)
            trajectory = await play(make_policy(environment, task, number), environment, task, limits)
            books.emitted.append(Session(number, trajectory, tuple(environment.injected)))

    await all_or_cancel(session(number, task) for number, task in enumerate(tasks))
    return books


def ended_as(trajectory: Trajectory, injected: Injected) -> str:
    """What became of one injected fault: the failure's cause or the truncation that it led to, or `SURVIVED`."""
    if _came_through(trajectory, injected) and not _policy_choked(trajectory, injected):
        return SURVIVED
    return trajectory.failure.cause if trajectory.failure else trajectory.stop.value


def _came_through(trajectory: Trajectory, injected: Injected) -> bool:
    """A reset and a step of the task's prefix that came through left an opening; a step of the policy, its turn."""
    turn = _turn(trajectory, injected)
    return bool(trajectory.opening) if turn is None else turn < len(trajectory.turns)


def _policy_choked(trajectory: Trajectory, injected: Injected) -> bool:
    """Garbage comes through its own call; what it may break is the policy's next reply."""
    if injected.fault is not Fault.GARBAGE or _turn(trajectory, injected) != len(trajectory.turns) - 1:
        return False
    policy_failed = trajectory.failure is not None and trajectory.failure.cause.startswith("policy_")
    return policy_failed or trajectory.stop is StopReason.TOKEN_BUDGET


def _turn(trajectory: Trajectory, injected: Injected) -> int | None:
    """Turn of the policy, from 0, that a fault met; None: what came before its first."""
    turn = None if injected.turn is None else injected.turn - len(trajectory.task.prefix)
    return turn if turn is not None and turn >= 0 else None
