"""The pipeline's steps on a store, each on what `write` left in the folder.

Each returns how many trajectories it gave.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from agentgym_rl.data.appender import Appender
from agentgym_rl.data.export import export as export_store
from agentgym_rl.data.filter import filter_store
from agentgym_rl.data.store import TrajectoryStore
from benchmarks.data.workload import chunks

COLUMNS = ("id", "task_id", "success", "return", "num_turns")
RULES = ("outcome=success", "min-turns=10", "cap=3")
SIMILARITY = 0.8


class Spent(NamedTuple):
    """Seconds of a step that makes its own input meanwhile."""

    cpu: float
    wall: float


def write(folder: Path, size: int) -> tuple[int, Spent]:
    cpu = wall = 0.0
    with Appender(TrajectoryStore(folder / "store")) as store:
        for records in chunks(size):
            begin = time.process_time(), time.perf_counter()
            for record in records:
                store.append(record)
            cpu, wall = cpu + time.process_time() - begin[0], wall + time.perf_counter() - begin[1]
    return size, Spent(cpu, wall)


def read(folder: Path) -> int:
    return sum(len(record.trajectory.turns) > 0 for record in TrajectoryStore(folder / "store").records())


def columns(folder: Path) -> int:
    return sum(1 for _ in TrajectoryStore(folder / "store").columns(*COLUMNS))


def filter(folder: Path) -> int:
    return _filtered(folder, "kept", *RULES)


def exact(folder: Path) -> int:
    return _filtered(folder, "exact", "exact-duplicates")


def near(folder: Path) -> int:
    return _filtered(folder, "near", f"near-duplicates={SIMILARITY}")


def export(folder: Path) -> int:
    return export_store(TrajectoryStore(folder / "store"), "openai", folder / "ours.jsonl").written


def _filtered(folder: Path, name: str, *rules: str) -> int:
    return filter_store(TrajectoryStore(folder / "store"), folder / name, rules).kept
