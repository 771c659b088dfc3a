"""Store -> a file that a trainer reads. The file appears whole or not at all; what is left out is counted and said."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from agentgym_rl.data.atif_write import to_atif
from agentgym_rl.data.chat_files import ChatLayout, to_line
from agentgym_rl.data.encodable import encodable
from agentgym_rl.data.imports import SOURCE as IMPORT
from agentgym_rl.data.parquet import write_tasks
from agentgym_rl.data.preferences import preference_pairs
from agentgym_rl.data.prefix_tasks import prefix_tasks
from agentgym_rl.data.record import Record
from agentgym_rl.data.replaced import replaced
from agentgym_rl.data.sft_parquet import imitable, report_left_out, write_sft
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.store_query import Query
from agentgym_rl.data.trajectory_json import to_dict
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Trajectory

Format = Literal["sft", "tasks", "openai", "sharegpt", "dpo", "atif", "trajectories"]
"""verl's SFT parquet, and that of tasks for reinforcement learning; as JSON Lines: OpenAI fine-tuning, ShareGPT
(AgentTraj), preference pairs, ATIF, our own."""


class Exported(NamedTuple):
    """Rows that were written, and what the rest was."""

    written: int
    given: int
    """Trajectories, or pairs of them, that were looked at."""


def export(
    store: TrajectoryStore,
    format: Format,
    out: str | Path,
    query: Query | None = None,
    pairs_per_task: int = 1,
    start: str | None = None,
) -> Exported:
    """Write what the store has, in its order.

    Args:
        query: which records.
        pairs_per_task: of preference pairs, at most.
        start: of tasks: where in its trajectory each begins, as `prefix_tasks` has it; None: where it did.

    Raises:
        DataError: nothing is left to write, or a trajectory has no place in that format.
        ConfigurationError: there is no such start, or the format has none.
    """
    if start is not None and format != "tasks":
        raise ConfigurationError(f"only tasks have a start; given: the format {format!r} and the start {start!r}")
    if format == "dpo":
        return _write_pairs(preference_pairs(store, query, pairs_per_task), out)
    if format == "tasks":
        return _write_tasks(store, query, out) if start is None else _write_prefix_tasks(store, query, out, start)
    given: Counter[str] = Counter()
    records = _counted(store.records(query), given)
    if format == "atif":
        return Exported(_write_atif(records, out), given.total())
    trajectories = (record.trajectory for record in records)
    if format == "sft":
        written = write_sft(trajectories, out)
    elif format == "trajectories":
        with replaced(out) as beside:
            written = _write_lines(map(to_dict, trajectories), beside)
            report_left_out(out, written, Counter())
    else:
        written = _write_chats(trajectories, format, out)
    return Exported(written, given.total())


def _write_tasks(store: TrajectoryStore, query: Query | None, out: str | Path) -> Exported:
    """Each task once, such as those that a filter found neither too easy nor too hard.

    A conversation that was imported from others has none that can be played. Another task of the same id, such as one
    of another environment, gets a number behind it, for ids are unique in a file.
    """
    played: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for text, source, fingerprint in store.columns("task", "source", "fingerprint", query=query):
        if source == IMPORT and not fingerprint:
            left_out["imported"] += 1
        else:
            played[text] += 1
    report_left_out(out, played.total(), left_out)
    write_tasks(_with_own_ids(map(Task.from_json, played)), out)
    return Exported(len(played), played.total() + left_out.total())


def _write_prefix_tasks(store: TrajectoryStore, query: Query | None, out: str | Path, start: str) -> Exported:
    """Each task once; trajectories that went the same way give the same."""
    begun: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    begun.update(task.to_json() for task in prefix_tasks(store.records(query), start, left_out))
    report_left_out(out, begun.total(), left_out)
    write_tasks(_with_own_ids(map(Task.from_json, begun)), out)
    return Exported(len(begun), begun.total() + left_out.total())


def _with_own_ids(tasks: Iterable[Task]) -> list[Task]:
    taken: dict[str, Task] = {}
    for task in tasks:
        id, number = task.id, 1
        while id in taken:
            number += 1
            id = f"{task.id}-{number}"
        taken[id] = replace(task, id=id)
    return list(taken.values())


def _counted(records: Iterable[Record], given: Counter[str]) -> Iterator[Record]:
    for record in records:
        given["all"] += 1
        yield record


def _write_chats(trajectories: Iterable[Trajectory], layout: ChatLayout, out: str | Path) -> int:
    left_out: Counter[str] = Counter()
    with replaced(out) as beside:
        written = _write_lines((to_line(one, layout) for one in imitable(trajectories, left_out)), beside)
        report_left_out(out, written, left_out)
    return written


def _write_atif(records: Iterable[Record], out: str | Path) -> int:
    """Failed episodes too, unless they failed before anything was said."""
    left_out: Counter[str] = Counter()

    def documents() -> Iterator[dict[str, Any]]:
        for record in records:
            if record.trajectory.messages:
                yield to_atif(record.trajectory, record.id)
            else:
                left_out["without a message"] += 1

    with replaced(out) as beside:
        written = _write_lines(documents(), beside)
        report_left_out(out, written, left_out)
    return written


def _write_pairs(pairs: Iterable[dict[str, Any] | None], out: str | Path) -> Exported:
    found: Counter[bool] = Counter()

    def lines() -> Iterator[dict[str, Any]]:
        for pair in pairs:
            found[pair is not None] += 1
            if pair is not None:
                yield pair

    with replaced(out) as beside:
        if not _write_lines(lines(), beside):
            raise DataError(
                f"there is no pair to write to {out}: no two episodes of a task have different outcomes"
                if not found
                else f"there is no pair to write to {out}: none of {found.total()} parts by a reply worth imitating"
            )
    return Exported(found[True], found.total())


def _write_lines(lines: Iterable[dict[str, Any]], path: Path) -> int:
    written = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for line in lines:
            file.write(encodable(json.dumps(line, ensure_ascii=False)) + "\n")
            written += 1
    return written
