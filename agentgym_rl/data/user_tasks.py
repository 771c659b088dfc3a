"""Users' own tasks: a JSONL file, one task a line; `load_tasks` takes it or a parquet file.

A file is taken whole or not at all, and every bad line is named at once, so that it is mended in one go.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments import registry
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.task import Task


def load_tasks(path: str | Path) -> list[Task]:
    """The tasks of a .jsonl or .parquet file, in its order.

    Raises:
        DataError: another kind of file, or one that can't be read as tasks.
    """
    readers = {".jsonl": read_jsonl, ".parquet": read_tasks}
    suffix = Path(path).suffix
    if suffix not in readers:
        raise DataError(f"tasks come from a file that ends in {' or '.join(readers)}; given: {path}")
    return readers[suffix](path)


def read_jsonl(path: str | Path) -> list[Task]:
    """The tasks of a JSONL file; blank lines don't count.

    Raises:
        DataError: no such file, no task in it, or bad lines: all of them, each with its number and reason.
    """
    tasks: list[Task] = []
    problems: list[str] = []
    line_of_id: dict[str, int] = {}
    for number, line in _lines(path):
        try:
            task = _read_line(line)
            if task.id in line_of_id:
                raise DataError(f"the id {task.id!r} is that of line {line_of_id[task.id]}")
        except DataError as error:
            problems.append(f"line {number}: {error}")
            continue
        line_of_id[task.id] = number
        tasks.append(task)
    if problems:
        lines = "bad line" if len(problems) == 1 else "bad lines"
        raise DataError("\n  ".join([f"{path} has {len(problems)} {lines}:", *problems]))
    if not tasks:
        raise DataError(f"{path} holds no task")
    return tasks


def _lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not blank; only a newline ends a line, for JSON text may hold the other separators."""
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (FileNotFoundError, IsADirectoryError) as error:
        raise DataError(f"there is no file {path}") from error


def _read_line(line: bytes) -> Task:
    try:
        text = line.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 (byte {error.start + 1})") from error
    task = Task.from_json(text)
    try:
        registry.target(task.environment)
    except ConfigurationError as error:
        raise DataError(str(error)) from error
    return task
