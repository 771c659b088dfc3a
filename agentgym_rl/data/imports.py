"""Files of conversations -> a store: JSON Lines, JSON arrays and parquet, of the layouts that `chat_files` reads.

Lines of `trajectory_json` (`eval --save-trajectories`) are read as well, and whole.

A conversation's id comes from the file's name, its place and what it says, so that a file that was imported already
adds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_rl.data.appender import Appender
from agentgym_rl.data.chat_files import KEY_OF, from_line
from agentgym_rl.data.only_writer import only_writer
from agentgym_rl.data.record import Provenance, Record, record_id
from agentgym_rl.data.store import RECORDS_AT_ONCE, TrajectoryStore
from agentgym_rl.data.trajectory_json import from_dict
from agentgym_rl.data.versions import code_version
from agentgym_rl.errors import DataError
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Trajectory

SOURCE = "import"
CONVERSATION_KEYS = (*KEY_OF.values(), "opening", "turns")


class Imported(NamedTuple):
    """What became of a file's conversations."""

    added: int
    found: int
    """Were in the store already."""


def import_file(path: str | Path, store: TrajectoryStore, environment: str | None = None) -> Imported:
    """Add the conversations of a file.

    Args:
        environment: of conversations; None: each line says it (`environment` or `data_source`), or the name before the
            last "_" of its `item_id`.

    Raises:
        DataError: no such file, another kind of file, or a conversation that can't be read, named by its place; what
            stands before it was added.
        ConfigurationError: another process adds to the store.
    """
    path, version = Path(path), code_version()
    found = added = 0
    with only_writer(store.folder), Appender(store) as out:
        there = store.ids()
        for number, line in enumerate(_lines(path), start=1):
            id = record_id(SOURCE, path.name, number, [line.get(key) for key in CONVERSATION_KEYS])
            if id in there:
                found += 1
                continue
            try:
                trajectory = _trajectory(line, environment, f"{path.stem}-{number}")
            except DataError as error:
                raise DataError(f"conversation {number} of {path}: {error}") from error
            out.append(Record(id, trajectory, Provenance(SOURCE, policy=f"file {path.name}", code_version=version)))
            added += 1
    return Imported(added, found)


def _trajectory(line: Mapping[str, Any], environment: str | None, otherwise: str) -> Trajectory:
    if "turns" in line:
        return from_dict(line)
    item = line.get("item_id") or line.get("task_id") or otherwise
    before, _, number = str(item).rpartition("_")
    named = environment or line.get("environment") or line.get("data_source") or (before if number.isdigit() else "")
    if not named:
        raise DataError(f"no environment is given for it, nor in `environment`, `data_source` or item_id ({item!r})")
    return from_line(line, Task(str(item), named))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    readers = {".jsonl": _json_lines, ".json": _json_array, ".parquet": _parquet}
    if path.suffix not in readers:
        raise DataError(f"conversations come from a file that ends in {', '.join(readers)}; given: {path}")
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    for number, line in enumerate(readers[path.suffix](path), start=1):
        if not isinstance(line, dict):
            raise DataError(f"conversation {number} of {path} must be an object; given: {type(line).__name__}")
        yield line


def _json_lines(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield _loads(line, f"line {number} of {path}")


def _json_array(path: Path) -> Iterator[Any]:
    read = _loads(path.read_text(encoding="utf-8"), str(path))
    if not isinstance(read, list):
        raise DataError(f"{path} must hold a JSON array; given: {type(read).__name__}")
    yield from read


def _loads(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataError(f"{where} is no JSON ({error})") from error


def _parquet(path: Path) -> Iterator[Any]:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{path} is no parquet file: {error}") from error
    with file:
        for batch in file.iter_batches(RECORDS_AT_ONCE):
            yield from batch.to_pylist()
