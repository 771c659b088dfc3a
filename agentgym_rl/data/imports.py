"""Files of conversations -> a store: JSON Lines, JSON and parquet, of the layouts that `chat_files` reads.

So are lines of `trajectory_json` (`eval --save-trajectories`), ATIF documents (`atif_read.py`) and ADP (`adp_read.py`).

A conversation's id comes from the file's name, its place, what it says and what Harbor found out about its trial, so
that a file that was imported already adds nothing, and a trial whose outcome is known since is another record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_rl.data import adp_read, atif_read
from agentgym_rl.data.appender import Appender
from agentgym_rl.data.chat_files import KEY_OF, from_line
from agentgym_rl.data.harbor_trial import HarborTrial, trial_of
from agentgym_rl.data.only_writer import only_writer
from agentgym_rl.data.record import Provenance, Record, record_id
from agentgym_rl.data.rows import rows_of
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.trajectory_json import from_dict
from agentgym_rl.data.versions import code_version
from agentgym_rl.errors import DataError
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Trajectory

SOURCE = "import"
SUFFIXES = (".jsonl", ".json", ".parquet")
CONVERSATION_KEYS = (*KEY_OF.values(), "opening", "turns", "session_id", "steps", "content")
DOCUMENTS = ("trajectory.json", "trajectory.cont-*.json")
"""How Harbor calls the ATIF documents of a trial, and those that continue it with another context."""
UNKNOWN = HarborTrial(None, None)
"""Harbor says nothing of it."""


class Imported(NamedTuple):
    """What became of a file's conversations."""

    added: int
    found: int
    """Were in the store already."""


def import_file(path: str | Path, store: TrajectoryStore, environment: str | None = None) -> Imported:
    """Add the conversations of a file, or of every `trajectory.json` in a folder, which is how Harbor keeps a job's,
    with the documents that continue it (`trajectory.cont-1.json`) and the outcome of each trial (`result.json`).

    Args:
        environment: of conversations; None: each line says it (`environment` or `data_source`), or the name before the
            last "_" of its `item_id`. An ATIF document of ours says it; no other does, and no ADP trajectory.

    Raises:
        DataError: no such file, another kind of file, or a conversation that can't be read, named by its place; what
            stands before it was added.
        ConfigurationError: another process adds to the store.
    """
    path = Path(path)
    with only_writer(store.folder), Appender(store) as out:
        there = store.ids()
        counts = Counter(
            new
            for file in _files(path)
            for where, line in _placed(file, path)
            for new in _added(line, environment, where, there, out)
        )
    return Imported(counts[True], counts[False])


class _Place(NamedTuple):
    """Where a conversation stands."""

    file: Path
    name: str
    """Of the file, in the folder that was given or by itself."""
    number: int
    """Of the conversation in the file, from 1."""


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = {file for name in DOCUMENTS for file in path.rglob(name)}
    if not found:
        raise DataError(f"the folder {path} has no file {DOCUMENTS[0]}")
    return sorted(found, key=lambda file: (file.parent, len(file.name), file.name))


def _placed(file: Path, given: Path) -> Iterator[tuple[_Place, dict[str, Any]]]:
    name = file.name if file == given else file.relative_to(given).as_posix()
    for number, line in enumerate(_lines(file), start=1):
        yield _Place(file, name, number), line


def _added(
    line: dict[str, Any], environment: str | None, where: _Place, there: set[str], out: Appender
) -> Iterator[bool]:
    """Of each trajectory of a conversation, whether it was new."""
    here = f"conversation {where.number} of {where.file}"
    try:
        trial = _trial(line, where.file)
        who = _who(line, where, trial)
        id = _id(who)
        trajectories = _trajectories(line, environment, where, trial)
    except DataError as error:
        raise DataError(f"{here}: {error}") from error
    made_by = Provenance(SOURCE, policy=f"file {where.name}", code_version=code_version())
    for number, trajectory in enumerate(trajectories):
        id = record_id(*who, number) if number else id
        if id not in there:
            out.append(Record(id, trajectory, made_by))
        yield id not in there


def _trial(line: Mapping[str, Any], file: Path) -> HarborTrial:
    """What Harbor keeps beside a document of another's."""
    is_others = "turns" not in line and atif_read.is_atif(line) and atif_read.task_of(line) is None
    return (trial_of(file) if is_others else None) or UNKNOWN


def _who(line: Mapping[str, Any], where: _Place, trial: HarborTrial) -> list[Any]:
    """What tells a conversation from others."""
    prompt = line.get("system")
    told = [prompt] if isinstance(prompt, str) and prompt else []
    outcome = [] if trial == UNKNOWN else [[trial.task, trial.reward]]
    return [SOURCE, where.name, where.number, [line.get(key) for key in CONVERSATION_KEYS], *told, *outcome]


def _id(who: list[Any]) -> str:
    try:
        return record_id(*who)
    except TypeError as error:  # such as bytes in a parquet file
        raise DataError(f"it holds what is no JSON: {error}") from error


def _trajectories(
    line: Mapping[str, Any], environment: str | None, where: _Place, trial: HarborTrial
) -> list[Trajectory]:
    otherwise = f"{where.name.rpartition('.')[0]}-{where.number}"
    if "turns" in line:
        return [from_dict(line)]
    if atif_read.is_atif(line):
        return _of_atif(line, environment, otherwise, trial)
    if adp_read.is_adp(line):
        return [adp_read.from_adp(line, _task_of((line.get("id"), otherwise), environment))]
    item = line.get("item_id") or line.get("task_id") or otherwise
    before, _, number = str(item).rpartition("_")
    named = environment or line.get("environment") or line.get("data_source") or (before if number.isdigit() else "")
    if not named:
        raise DataError(f"no environment is given for it, nor in `environment`, `data_source` or item_id ({item!r})")
    return [from_line(line, Task(str(item), named))]


def _of_atif(line: Mapping[str, Any], environment: str | None, otherwise: str, trial: HarborTrial) -> list[Trajectory]:
    """With the outcome of the trial, if another's; a run's last trajectory has the reward."""
    ours = atif_read.task_of(line)
    if ours is not None:
        return atif_read.from_atif(line, ours)
    ids = (trial.task, line.get("trajectory_id"), line.get("session_id"), otherwise)
    *before, last = atif_read.from_atif(line, _task_of(ids, environment))
    judged = [trial.judge(one, is_last=False) for one in before]
    return [*judged, trial.judge(last, is_last=not line.get("continued_trajectory_ref"))]


def _task_of(ids: tuple[Any, ...], environment: str | None) -> Task:
    """The first of the ids that there is."""
    if environment is None:
        raise DataError("such a trajectory does not say its environment: give one")
    return Task(next(str(id) for id in ids if id), environment)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix not in SUFFIXES:
        raise DataError(f"conversations come from a file that ends in {', '.join(SUFFIXES)}; given: {path}")
    for place, line in rows_of(path):
        if isinstance(line, DataError):
            raise DataError(f"{place} of {path}: {line}") from line
        yield line
