"""Users' own tasks: a JSON Lines, JSON, CSV or parquet file, a task a line, as it is or through a mapping of columns.

A file is taken whole or not at all, and every bad line is named at once, so that it is mended in one go.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_rl.data.encodable import encodable
from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.data.replaced import replaced
from agentgym_rl.data.rows import SUFFIXES, rows_of, text_lines
from agentgym_rl.data.task_mapping import TaskMapping
from agentgym_rl.environments import registry
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.task import Task

Line = tuple[str, "Task | DataError"]
"""Where it stands, such as "line 3"; the task there, or why it is none."""


class Placed(NamedTuple):
    """A task, and where in its file it stands."""

    place: str
    task: Task


class TaskFile(NamedTuple):
    """What a file holds."""

    tasks: list[Placed]
    problems: list[str]
    """Of the lines that are no task: where, and why not."""


def load_tasks(path: str | Path, mapping: TaskMapping | None = None) -> list[Task]:
    """The tasks of a file, in its order.

    Args:
        path: .jsonl, .json (an array, or one task), .csv or .parquet; blank lines don't count.
        mapping: of its columns; None: its fields are named like those of a task, or `write_tasks` wrote it.

    Raises:
        DataError: no such file, another kind of file, no task in it, or bad lines: all of them, each with its reason.
    """
    read = read_task_file(path, mapping)
    if read.problems:
        lines = "bad line" if len(read.problems) == 1 else "bad lines"
        raise DataError("\n  ".join([f"{path} has {len(read.problems)} {lines}:", *read.problems]))
    return [placed.task for placed in read.tasks]


def write_jsonl(tasks: Iterable[Task], path: str | Path) -> None:
    """Write a task a line; the file appears whole or not at all."""
    with replaced(path) as beside, beside.open("w", encoding="utf-8", newline="\n") as file:
        for task in tasks:
            file.write(encodable(task.to_json()) + "\n")


def read_task_file(path: str | Path, mapping: TaskMapping | None = None) -> TaskFile:
    """Everything that is in a file, good and bad.

    Raises:
        DataError: no such file, another kind of file, or nothing in it.
        ConfigurationError: a CSV file whose columns are not those of a task, and no mapping is given.
    """
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        raise DataError(f"tasks come from a file that ends in {', '.join(SUFFIXES)}; given: {path}")
    if suffix == ".parquet" and (mapping is None or not mapping.columns):
        written = [Placed(f"row {number}", task) for number, task in enumerate(read_tasks(path), 1)]
        if mapping is None:
            return TaskFile(written, [])
        read = _checked((place, _or_error(mapping.over, task)) for place, task in written)
    elif mapping is not None or suffix == ".csv":
        read = _checked(_mapped(path, mapping or TaskMapping()))
    else:
        read = _checked(_tasks_of_lines(path) if suffix == ".jsonl" else _tasks_of_array(path))
    if not read.tasks and not read.problems:
        raise DataError(f"{path} holds no task")
    return read


def _tasks_of_lines(path: str | Path) -> Iterator[Line]:
    for place, text in text_lines(path):
        yield place, text if isinstance(text, DataError) else _or_error(Task.from_json, text)


def _tasks_of_array(path: str | Path) -> Iterator[Line]:
    for place, row in rows_of(path):
        yield place, row if isinstance(row, DataError) else _or_error(Task.from_json, json.dumps(row))


def _mapped(path: str | Path, mapping: TaskMapping) -> Iterator[Line]:
    one_head = Path(path).suffix == ".csv"

    def task_of(row: dict[str, Any]) -> Task:
        try:
            used = mapping if mapping.columns else mapping.named_like(list(row))
        except ConfigurationError as error:
            if one_head:  # it is wrong for every line
                raise
            raise DataError(str(error)) from error
        return used.task(row)

    for place, row in rows_of(path):
        yield place, row if isinstance(row, DataError) else _or_error(task_of, row)


def _or_error(read: Callable[[Any], Task], given: Any) -> Task | DataError:
    try:
        return read(given)
    except DataError as error:
        return error


def _checked(lines: Iterable[Line]) -> TaskFile:
    tasks: list[Placed] = []
    problems: list[str] = []
    place_of_id: dict[str, str] = {}
    for place, task in lines:
        try:
            if isinstance(task, DataError):
                raise task
            registry.target(task.environment)
            if task.id in place_of_id:
                raise DataError(f"the id {task.id!r} is that of {place_of_id[task.id]}")
        except (DataError, ConfigurationError) as error:
            problems.append(f"{place}: {error}")
            continue
        place_of_id[task.id] = place
        tasks.append(Placed(place, task))
    return TaskFile(tasks, problems)
