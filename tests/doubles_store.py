"""Records and stores in one line, for the tests of the data pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentgym_rl.data.record import Provenance, Record
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.messages import assistant, user
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn


def record(
    id: str,
    actions: str = "ab",
    earned: float = 1.0,
    task: str = "t",
    success: bool | None = True,
    environment: str = "stairs",
    source: str = "collect",
    invalid: str = "",
    crashed: bool = False,
    seen: str = "seen",
    seed: int = 0,
    annotations: dict[str, Any] | None = None,
    **arguments: Any,
) -> Record:
    """One letter an action; the last one earns; those in `invalid` were not understood."""
    rewards = [0.0] * (len(actions) - 1) + [earned]
    turns = tuple(
        Turn(Reply(assistant(a)), (user(f"{seen} {a}"),), r, a not in invalid)
        for a, r in zip(actions, rewards, strict=True)
    )
    failure = Failure("environment_crashed", "the process is gone") if crashed else None
    trajectory = Trajectory(
        Task(task, environment, arguments, seed=seed),
        (user(f"opening of {task}"),),
        turns,
        StopReason.FAILED if crashed else StopReason.TERMINATED,
        None if crashed else success,
        failure,
    )
    return Record(id, trajectory, Provenance(source), annotations or {})


def store_of(folder: Path, *records: Record) -> TrajectoryStore:
    """A store with these records in parts of two."""
    store = TrajectoryStore(folder)
    for start in range(0, len(records), 2):
        store.append(records[start : start + 2])
    return store


def ids(store: TrajectoryStore) -> list[str]:
    return [one.id for one in store.records()]
