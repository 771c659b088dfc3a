"""Columns of a store's parquet files -> records, many at a time, as `record_rows.schema` has them.

Each column becomes one list of Python values before the first object is made: row by row, as nested dictionaries, it
takes twice the time.
"""

from __future__ import annotations

import dataclasses
import gc
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from json.scanner import make_scanner
from typing import Any

from agentgym_rl.data.record import Provenance, Record
from agentgym_rl.messages import Message, ToolCall
from agentgym_rl.policy import Reply, SampledTokens
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn

_scan: Any = make_scanner(json.JSONDecoder())  # type: ignore[arg-type]
Columns = Mapping[str, Any]
"""Name -> Arrow array; all of one length."""


def to_records(batch: Any) -> list[Record]:
    """The records of an Arrow record batch with every column of the schema.

    Raises:
        DataError, ValueError, TypeError, KeyError: one of them can't be read.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    annotations = map(parsed, values(columns["annotations"]))
    with _no_collection():
        return list(map(Record, values(columns["id"]), _trajectories(columns), _provenances(columns), annotations))


def parsed(text: str) -> Any:
    """`json.loads`, without what it does before and after: it matters where texts are short and many."""
    try:
        value, end = _scan(text, 0)
    except (ValueError, StopIteration):
        end = -1
    return value if end == len(text) else json.loads(text)  # white space around it, or an error that says more


def values(array: Any) -> list[Any]:
    """An Arrow array as a list; by way of numpy, which is much faster, where numpy does not turn None into NaN."""
    import pyarrow as pa

    if array.null_count and pa.types.is_primitive(array.type):
        return array.to_pylist()
    return array.to_numpy(zero_copy_only=False).tolist()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python's cycle collector rests meanwhile: it would visit all objects again and again, and none can go yet."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _trajectories(columns: Columns) -> Iterable[Trajectory]:
    return map(
        Trajectory,
        _tasks(values(columns["task"])),
        _lists(columns["opening"], _messages),
        _lists(columns["turns"], _turns),
        map(StopReason, values(columns["stop"])),
        values(columns["success"]),
        _failures(columns),
        values(columns["fingerprint"]),
    )


def _tasks(texts: Sequence[str]) -> list[Task]:
    """Episodes of one task lie side by side: each task is read once."""
    read = {text: Task.from_json(text) for text in set(texts)}
    return [read[text] for text in texts]


def _failures(columns: Columns) -> list[Failure | None]:
    parts = (values(columns[f"failure_{name}"]) for name in ("cause", "message", "traceback"))
    return [None if said[0] is None else Failure(*said) for said in zip(*parts, strict=True)]


def _provenances(columns: Columns) -> Iterable[Provenance]:
    return map(
        Provenance,
        values(columns["source"]),
        values(columns["episode"]),
        values(columns["policy"]),
        map(parsed, values(columns["sampling"])),
        values(columns["environment_version"]),
        values(columns["code_version"]),
        values(columns["parent"]),
        values(columns["perturbation"]),
    )


def _turns(array: Any) -> Iterable[Turn]:
    fields = _fields(array)
    replies = _filled(Reply, _messages(fields["message"]), values(fields["complete"]), _tokens(fields["tokens"]))
    return _filled(
        Turn,
        replies,
        _lists(fields["observation"], _messages),
        values(fields["reward"]),
        values(fields["valid"]),
        values(fields["policy_seconds"]),
        values(fields["environment_seconds"]),
        map(parsed, values(fields["info"])),
    )


def _tokens(array: Any) -> list[SampledTokens | None]:
    fields = _fields(array)
    ids, logprobs = _lists(fields["ids"], values), _lists(fields["logprobs"], values)
    sampled = zip(values(array.is_valid()), _filled(SampledTokens, ids, logprobs), strict=True)
    return [tokens if known else None for known, tokens in sampled]


def _messages(array: Any) -> list[Message]:
    fields = _fields(array)
    calls = _lists(fields["tool_calls"], _calls)
    return _filled(Message, values(fields["role"]), values(fields["content"]), calls, values(fields["tool_call_id"]))


def _calls(array: Any) -> Iterable[ToolCall]:
    fields = _fields(array)
    return map(ToolCall, values(fields["name"]), map(parsed, values(fields["arguments"])), values(fields["id"]))


def _fields(array: Any) -> Columns:
    return {field.name: column for field, column in zip(array.type, array.flatten(), strict=True)}


def _lists(array: Any, read: Callable[[Any], Iterable[Any]]) -> list[tuple[Any, ...]]:
    """The items of each list, which are read all together."""
    items = tuple(read(array.flatten()))
    offsets = array.offsets.to_numpy()
    return [items[begin:end] for begin, end in pairwise((offsets - offsets[0]).tolist())]


def _filled(kind: Any, first: Sequence[Any], *others: Iterable[Any]) -> list[Any]:
    """As `map(kind, *columns)` for a dataclass with slots that checks nothing, but a field at a time and not an object:
    half the time, as no `__init__` is run. All columns have one length."""
    made = [object.__new__(kind) for _ in first]
    for field, column in zip(dataclasses.fields(kind), (first, *others), strict=True):
        deque(map(getattr(kind, field.name).__set__, made, column), maxlen=0)
    return made
