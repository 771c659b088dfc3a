"""The same steps the plain way: a JSON Lines file, `json` line by line, and a pandas frame to choose with.

Only what a step needs goes into the frame, and the fastest ways known: `pandas.read_json` takes five times as long as
`json.loads`, and the frame's own `to_json` longer than `json.dumps`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from itertools import compress
from pathlib import Path
from typing import Any

from agentgym_rl.data.near_duplicates import NearDuplicates
from agentgym_rl.data.trajectory_json import to_dict
from benchmarks.data.ours import COLUMNS, SIMILARITY, Spent
from benchmarks.data.workload import chunks

Row = dict[str, Any]


def write(folder: Path, size: int) -> tuple[int, Spent]:
    cpu = wall = 0.0
    with open(folder / "plain.jsonl", "w", encoding="utf-8") as file:
        for records in chunks(size):
            rows = [
                {
                    "id": record.id,
                    "task_id": record.trajectory.task.id,
                    "return": record.trajectory.environment_return,
                    "num_turns": len(record.trajectory.turns),
                    **to_dict(record.trajectory),
                }
                for record in records
            ]
            begin = time.process_time(), time.perf_counter()
            file.writelines(json.dumps(row) + "\n" for row in rows)
            cpu, wall = cpu + time.process_time() - begin[0], wall + time.perf_counter() - begin[1]
    return size, Spent(cpu, wall)


def read(folder: Path) -> int:
    import pandas

    return len(pandas.DataFrame(_rows(folder)))


def columns(folder: Path) -> int:
    import pandas

    return len(pandas.DataFrame({name: row[name] for name in COLUMNS} for row in _rows(folder)))


def filter(folder: Path) -> int:
    import pandas

    rows = list(_rows(folder))
    frame = pandas.DataFrame({name: row[name] for name in COLUMNS} for row in rows)
    good = frame[frame["success"] & (frame["num_turns"] >= 10)]
    kept = good.index[good.groupby("task_id").cumcount() < 3]
    return _write((rows[place] for place in kept), folder / "plain-kept.jsonl")


def exact(folder: Path) -> int:
    import pandas

    rows = list(_rows(folder))
    doubled = pandas.Series("\0".join(_said(row)) for row in rows).duplicated()
    return _write(compress(rows, ~doubled), folder / "plain-exact.jsonl")


def near(folder: Path) -> int:
    """With our own index: there is no plain way to find them."""
    seen = NearDuplicates(SIMILARITY)

    def kept() -> Iterable[Row]:
        for row in _rows(folder):
            if not seen.nearest(" ".join(_said(row))):
                seen.add(row["id"])
                yield row

    return _write(kept(), folder / "plain-near.jsonl")


def export(folder: Path) -> int:
    return _write(({"messages": _chat(row)} for row in _rows(folder)), folder / "plain-export.jsonl")


def _rows(folder: Path) -> Iterable[Row]:
    with open(folder / "plain.jsonl", encoding="utf-8") as file:
        yield from map(json.loads, file)


def _messages(row: Row) -> list[Row]:
    found = list(row["opening"])
    for turn in row["turns"]:
        found += [turn["reply"]["message"], *turn["observation"]]
    return found


def _said(row: Row) -> list[str]:
    return [message["content"] for message in _messages(row)]


def _chat(row: Row) -> list[Row]:
    return [{"role": message["role"], "content": message["content"]} for message in _messages(row)]


def _write(rows: Iterable[Row], path: Path) -> int:
    written = 0
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
            written += 1
    return written
