"""`evaluate()`: play every task some times with a policy, several episodes at once, and keep a row of each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_rl.environment import Environment
from agentgym_rl.environments import registry
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.evaluation.result import EpisodeRow, Evaluation
from agentgym_rl.evaluation.rows_file import RowsFile
from agentgym_rl.evaluation.trajectories_file import TrajectoriesFile
from agentgym_rl.policy import Policy
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.task import Task
from agentgym_rl.together import all_or_cancel
from agentgym_rl.trajectory import Trajectory

PolicyFactory = Callable[[Environment, Task, int], Policy]
"""Makes the policy of one episode: environment, task, number of the episode -> policy."""


async def evaluate(
    make_policy: PolicyFactory,
    tasks: Sequence[Task],
    limits: Limits | None = None,
    concurrency: int = 8,
    episodes_per_task: int = 1,
    on_episode: Callable[[EpisodeRow, Trajectory | None], None] | None = None,
    rows_file: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    isolation: registry.Isolation = "thread",
    trajectories: TrajectoriesFile | None = None,
    pool: EnvironmentPool | None = None,
) -> Evaluation:
    """Play `episodes_per_task` episodes of each task.

    Args:
        make_policy: called once an episode.
        tasks: with unique ids.
        limits: of one episode.
        concurrency: how many episodes are under way at once.
        on_episode: called as episodes finish; the trajectory is None for an episode that `rows_file` had.
        rows_file: where rows are kept as they finish; episodes that are already there are not played again.
        settings: what this evaluation is to be known by; goes into the result and guards `rows_file`.
        isolation: where the environments run; "process" survives one that crashes its interpreter.
        trajectories: gets every episode, and is published at the end; one that it lacks is played again.
        pool: where environments are borrowed, for several evaluations; None: one for this one, as `isolation` says.

    Raises:
        ConfigurationError, DataError: nothing can be played like this; episodes under way are cancelled.
    """
    require_playable(tasks, concurrency, episodes_per_task)
    settings = dict(settings or {})
    kept = _Kept(RowsFile(rows_file, settings) if rows_file is not None else None, trajectories)
    slots = asyncio.Semaphore(concurrency)

    async def row_of(task: Task, episode: int) -> EpisodeRow:
        trajectory, row = None, kept.row(task, episode)
        if row is None:
            async with slots:
                trajectory = await play_one(make_policy, task, episode, limits, lender)
            row = kept.add(trajectory, episode)
        if on_episode:
            on_episode(row, trajectory)
        return row

    async with nullcontext(pool) if pool else EnvironmentPool(concurrency, isolation) as lender:
        rows = await all_or_cancel([row_of(task, episode) for task in tasks for episode in range(episodes_per_task)])
    kept.publish(rows)
    return Evaluation(tuple(rows), settings)


class _Kept(NamedTuple):
    """Where the episodes of this run and earlier ones are kept, if they are."""

    rows: RowsFile | None
    trajectories: TrajectoriesFile | None

    def row(self, task: Task, episode: int) -> EpisodeRow | None:
        """Of an episode that need not be played again."""
        key = task.id, episode
        lacks_trajectory = self.trajectories is not None and key not in self.trajectories
        return self.rows.done.get(key) if self.rows is not None and not lacks_trajectory else None

    def add(self, trajectory: Trajectory, episode: int) -> EpisodeRow:
        row = EpisodeRow.from_trajectory(trajectory, episode)
        if self.trajectories is not None:  # before its row, which says that the episode is done
            self.trajectories.append(trajectory, episode)
        if self.rows is not None:
            self.rows.append(row)
        return row

    def publish(self, rows: Sequence[EpisodeRow]) -> None:
        if self.trajectories is not None:
            self.trajectories.publish((row.task, row.episode) for row in rows)


def require_playable(tasks: Sequence[Task], concurrency: int, episodes_per_task: int) -> None:
    """Raise a ConfigurationError unless there are tasks with unique ids, and both numbers are at least 1."""
    for name, value in [("concurrency", concurrency), ("episodes_per_task", episodes_per_task)]:
        if value < 1:
            raise ConfigurationError(f"{name} must be at least 1; given: {value}")
    ids = [task.id for task in tasks]
    if not ids:
        raise ConfigurationError("there is no task to play")
    task_id, count = Counter(ids).most_common(1)[0]
    if count > 1:
        raise ConfigurationError(f"{count} tasks have the id {task_id!r}; ids tell the episodes apart")


async def play_one(
    make_policy: PolicyFactory, task: Task, episode: int, limits: Limits | None, pool: EnvironmentPool
) -> Trajectory:
    """Play one episode in an environment of the pool."""
    limits = limits or Limits()
    async with pool.lease(task.environment, limits.lease_seconds) as environment:
        trajectory = await play(make_policy(environment, task, episode), environment, task, limits)
        if trajectory.failed:
            environment.spoil()
        return trajectory
