"""Columns of a store's parquet files -> records, many at a time, as `record_rows.schema` has them.

Each column becomes one list of Python values before the first object is made: row by row, as nested dictionaries, it
takes twice the time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from agentgym_rl.data.record import Provenance, Record
from agentgym_rl.messages import Message, ToolCall
from agentgym_rl.policy import Reply, SampledTokens
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn

Columns = Mapping[str, Any]
"""Name -> Arrow array; all of one length."""


def to_records(batch: Any) -> list[Record]:
    """The records of an Arrow record batch with every column of the schema.

    Raises:
        DataError, ValueError, TypeError, KeyError: one of them can't be read.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    annotations = map(json.loads, values(columns["annotations"]))
    return list(map(Record, values(columns["id"]), _trajectories(columns), _provenances(columns), annotations))


def values(array: Any) -> list[Any]:
    """An Arrow array as a list; by way of numpy, which is much faster, where numpy does not turn None into NaN."""
    import pyarrow as pa

    if array.null_count and pa.types.is_primitive(array.type):
        return array.to_pylist()
    return array.to_numpy(zero_copy_only=False).tolist()


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
        map(json.loads, values(columns["sampling"])),
        values(columns["environment_version"]),
        values(columns["code_version"]),
        values(columns["parent"]),
        values(columns["perturbation"]),
    )


def _turns(array: Any) -> Iterable[Turn]:
    fields = _fields(array)
    return map(
        Turn,
        map(Reply, _messages(fields["message"]), values(fields["complete"]), _tokens(fields["tokens"])),
        _lists(fields["observation"], _messages),
        values(fields["reward"]),
        values(fields["valid"]),
        values(fields["policy_seconds"]),
        values(fields["environment_seconds"]),
        map(json.loads, values(fields["info"])),
    )


def _tokens(array: Any) -> list[SampledTokens | None]:
    fields = _fields(array)
    ids, logprobs = _lists(fields["ids"], values), _lists(fields["logprobs"], values)
    known = values(array.is_valid())
    return [SampledTokens(*said) if there else None for there, *said in zip(known, ids, logprobs, strict=True)]


def _messages(array: Any) -> Iterable[Message]:
    fields = _fields(array)
    calls = _lists(fields["tool_calls"], _calls)
    return map(Message, values(fields["role"]), values(fields["content"]), calls, values(fields["tool_call_id"]))


def _calls(array: Any) -> Iterable[ToolCall]:
    fields = _fields(array)
    return map(ToolCall, values(fields["name"]), map(json.loads, values(fields["arguments"])), values(fields["id"]))


def _fields(array: Any) -> Columns:
    return {field.name: column for field, column in zip(array.type, array.flatten(), strict=True)}


def _lists(array: Any, read: Callable[[Any], Iterable[Any]]) -> list[tuple[Any, ...]]:
    """The items of each list, which are read all together."""
    items = tuple(read(array.flatten()))
    offsets = values(array.offsets)
    return [items[begin - offsets[0] : end - offsets[0]] for begin, end in pairwise(offsets)]
