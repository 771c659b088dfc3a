"""Play tasks with a policy and keep every episode in a store, failed ones too, unless the policy failed.

An episode's id says what it is an episode of: task, number, policy, sampling. One that the store has is not played
again, so that a collection that was stopped goes on, and one that is whole does nothing. Episodes that an environment
or a tool failed count as played: what fails once may fail always. One that the policy failed, as all do while its
server is down, is not kept, and the next collection plays it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

from agentgym_rl.data.appender import Appender
from agentgym_rl.data.only_writer import only_writer
from agentgym_rl.data.record import Provenance, Record, record_id
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.versions import code_version, environment_version
from agentgym_rl.environments import registry
from agentgym_rl.episode import Limits
from agentgym_rl.evaluation.run import PolicyFactory, play_one, require_playable
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.task import Task
from agentgym_rl.together import all_or_cancel
from agentgym_rl.trajectory import Trajectory

SOURCE = "collect"
POLICY_FAILED = "policy_"
"""How the causes of a policy's failures begin."""
PART_SIZE = 64
FLUSH_SECONDS = 30.0
"""A kill loses no more than the episodes that finished in so many seconds."""


class Wanted(NamedTuple):
    """An episode that is to be in the store."""

    id: str
    task: Task
    episode: int


class Collected(NamedTuple):
    """What became of the episodes that were asked for."""

    found: int
    """Were in the store already."""
    played: int
    solved: int
    """Of those that were played."""
    failed: int
    """Likewise, by a failure of environment, tool or policy."""
    not_kept: int = 0
    """Of those that failed: by the policy, so that the store does not have them."""


class _Outcome(NamedTuple):
    """What is remembered of an episode: whole trajectories of a long collection would not fit into memory."""

    solved: bool
    failed: bool
    kept: bool


async def collect(
    make_policy: PolicyFactory,
    tasks: Sequence[Task],
    store: TrajectoryStore,
    policy: str,
    sampling: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    concurrency: int = 8,
    episodes_per_task: int = 1,
    isolation: registry.Isolation = "thread",
    on_episode: Callable[[Record | None], None] = lambda record: None,
) -> Collected:
    """Add what the store lacks of `episodes_per_task` episodes of each task.

    Args:
        make_policy: called once an episode.
        tasks: with unique ids.
        policy: what the policy is to be known by; with `sampling` it tells its episodes from those of others.
        sampling: JSON values.
        limits: of one episode.
        concurrency: how many episodes are under way at once.
        isolation: where the environments run.
        on_episode: called as episodes finish, kept or not, and with None for one that the store had.

    Raises:
        ConfigurationError, DataError: nothing can be played like this, or another process adds to the store; what had
            finished is in it.
    """
    require_playable(tasks, concurrency, episodes_per_task)
    known = {**(sampling or {}), "max_turns": (limits or Limits()).max_turns}
    origin = Provenance(SOURCE, policy=policy, sampling=known, code_version=code_version())
    names = {task.environment for task in tasks}
    origins = {name: replace(origin, environment_version=environment_version(name)) for name in names}
    wanted = [_wanted(task, episode, origin) for task in tasks for episode in range(episodes_per_task)]
    slots = asyncio.Semaphore(concurrency)

    async def outcome_of(want: Wanted) -> _Outcome:
        async with slots:
            played = await play_one(make_policy, want.task, want.episode, limits, pool)
        record = Record(want.id, played, replace(origins[want.task.environment], episode=want.episode))
        if kept := not _policy_failed(played):
            out.append(record)
        on_episode(record)
        return _Outcome(played.success is True, played.failed, kept)

    with only_writer(store.folder), Appender(store, PART_SIZE) as out:
        missing = _missing(wanted, store, on_episode)
        async with _flushed_regularly(out), EnvironmentPool(concurrency, isolation) as pool:
            outcomes = await all_or_cancel([outcome_of(want) for want in missing])
    return _collected(len(wanted) - len(missing), outcomes)


def _wanted(task: Task, episode: int, origin: Provenance) -> Wanted:
    return Wanted(record_id(SOURCE, task.to_dict(), episode, origin.policy, origin.sampling), task, episode)


def _missing(
    wanted: Sequence[Wanted], store: TrajectoryStore, on_episode: Callable[[Record | None], None]
) -> list[Wanted]:
    there = store.ids()
    missing = [want for want in wanted if want.id not in there]
    for _ in range(len(wanted) - len(missing)):
        on_episode(None)
    return missing


def _policy_failed(played: Trajectory) -> bool:
    return played.failure is not None and played.failure.cause.startswith(POLICY_FAILED)


def _collected(found: int, outcomes: Sequence[_Outcome]) -> Collected:
    solved, failed, kept = (sum(outcome[place] for outcome in outcomes) for place in range(3))
    return Collected(found, len(outcomes), solved, failed, len(outcomes) - kept)


@asynccontextmanager
async def _flushed_regularly(out: Appender) -> AsyncIterator[None]:
    async def flush() -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            out.flush()

    flushing = asyncio.ensure_future(flush())
    try:
        yield
    finally:
        flushing.cancel()
        with suppress(asyncio.CancelledError):
            await flushing  # raises what a flush raised
