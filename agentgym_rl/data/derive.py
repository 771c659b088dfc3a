"""Store -> store: a step reads one store and writes another, whole or not at all.

The new store stands beside its place until it is whole, so a step that was stopped leaves nothing behind but a folder
that the next try removes. `_step.json` in it says what it was made of and how, and what came of it: the same step on
parts with the same content is not done again, and another step never writes over it. What takes hours is first done
piece by piece (`unfinished`).
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_rl.data.appender import Appender
from agentgym_rl.data.record import Record
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.store_held import HeldStore
from agentgym_rl.errors import ConfigurationError

STEP_FILE = "_step.json"  # `datasets` passes over names that begin with "_"


class Derived(NamedTuple):
    """What a step made."""

    store: TrajectoryStore
    report: dict[str, Any]
    """What the step has to say, as JSON values."""
    done_before: bool
    """The store was there already."""


def derive(
    source: TrajectoryStore,
    out: str | Path,
    step: Mapping[str, Any],
    transform: Callable[[Iterator[Record], Path], Iterable[Record]],
    report: Callable[[], dict[str, Any]] = dict,
) -> Derived:
    """Write the store that a step makes of another.

    Args:
        source, out, step, report: as `derive_by` has them.
        transform: the records that are there -> those of the new store, one at a time; it may put files whose names
            begin with "_" into the folder that it is given.

    Raises:
        ConfigurationError: there is something else at `out`.
    """

    held = HeldStore(source)

    def fill(folder: Path) -> None:
        with Appender(TrajectoryStore(folder)) as new:
            for record in transform(held.records(), folder):
                new.append(record)

    return derive_by(held, out, step, fill, report)


def derive_by(
    source: TrajectoryStore,
    out: str | Path,
    step: Mapping[str, Any],
    fill: Callable[[Path], None],
    report: Callable[[], dict[str, Any]] = dict,
) -> Derived:
    """Likewise, for a step that writes the new store by itself.

    Args:
        source: is only read; what is added to it meanwhile may count or not, unless it is a `HeldStore`.
        out: the folder of the new store.
        step: name and settings of the step (JSON values), which tell it from others; of files that it reads, the
            `content_digest` belongs there.
        fill: writes the new store into the folder that it is given.
        report: asked when all is written.

    Raises:
        ConfigurationError: there is something else at `out`.
    """
    out, origin = Path(out), origin_of(source, step)
    return done_before(out, origin) or write_whole(out, origin, fill, report)


def origin_of(source: TrajectoryStore, step: Mapping[str, Any]) -> dict[str, Any]:
    """What tells a derived store from others, as JSON values: the step, and the content of the parts that it reads."""
    parts = [[part.name, content_digest(part)] for part in source.parts()]
    return json.loads(json.dumps({"step": dict(step), "of": parts}))


def done_before(out: Path, origin: Mapping[str, Any]) -> Derived | None:
    """The store at `out`; None: there is nothing.

    Raises:
        ConfigurationError: it is of another origin.
    """
    if not out.exists():
        return None
    try:
        found = json.loads((out / STEP_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise ConfigurationError(f"{out} exists, and no step made it; give another folder, or remove it") from error
    if said := difference(found, origin):
        raise ConfigurationError(f"{out} was made by another step ({said}); give another folder, or remove it")
    return Derived(TrajectoryStore(out), found["report"], True)


def difference(found: Mapping[str, Any], origin: Mapping[str, Any]) -> str:
    """In what an origin that was found is not the given one; empty: in nothing."""
    for what in ("step", "of"):
        if found.get(what) != origin[what]:
            return f"{what}: {found.get(what)}; given: {origin[what]}"
    return ""


def write_whole(
    out: Path, origin: Mapping[str, Any], fill: Callable[[Path], None], report: Callable[[], dict[str, Any]]
) -> Derived:
    """Write the store beside its place, and put it there once it is whole, unless another process has meanwhile.

    Raises:
        ConfigurationError: there is something else at `out`.
    """
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    _remove_leftovers(out)
    beside.mkdir(parents=True)
    try:
        fill(beside)
        said = report()
        (beside / STEP_FILE).write_text(json.dumps({**origin, "report": said}, indent=1), encoding="utf-8")
        try:
            os.rename(beside, out)
        except OSError:
            if there := done_before(out, origin):
                return there
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)  # where it is not in its place
    return Derived(TrajectoryStore(out), said, False)


def content_digest(path: str | Path) -> str:
    """16 hexadecimal digits of what is in a file, whatever its name."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


def _remove_leftovers(out: Path) -> None:
    """What a killed process left; one that still lives has its own."""
    for path in out.parent.glob(f".{glob.escape(out.name)}.*"):
        pid = path.name.rpartition(".")[2]
        if pid.isdigit() and not _lives(int(pid)):
            shutil.rmtree(path)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != os.getpid()
