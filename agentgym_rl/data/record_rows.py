"""Record -> row of a store's parquet files.

Messages, tool calls and turns are nested columns, for pandas, `datasets` and DuckDB to query. What has another shape in
every environment (a task, a call's arguments, a turn's info, sampling, annotations) is JSON text: as nested columns,
parquet would give every row the union of all rows' names. The columns up to `failure_cause` repeat what the trajectory
says, so that it can be asked for without being read. Half a surrogate pair is written as its escape.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_rl.data.encodable import encodable
from agentgym_rl.data.record import Record
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message
from agentgym_rl.trajectory import Turn


def schema() -> Any:
    """The one Arrow schema of all stores."""
    import pyarrow as pa

    text = pa.string()
    call = pa.struct([("name", text), ("arguments", text), ("id", text)])
    message = pa.struct([("role", text), ("content", text), ("tool_calls", pa.list_(call)), ("tool_call_id", text)])
    tokens = pa.struct([("ids", pa.list_(pa.int64())), ("logprobs", pa.list_(pa.float64()))])
    turn = pa.struct(
        [
            ("message", message),
            ("complete", pa.bool_()),
            ("tokens", tokens),
            ("observation", pa.list_(message)),
            ("reward", pa.float64()),
            ("valid", pa.bool_()),
            ("policy_seconds", pa.float64()),
            ("environment_seconds", pa.float64()),
            ("info", text),
        ]
    )
    asked = [("id", text), ("task_id", text), ("environment", text), ("split", text), ("source", text)]
    outcome = [("success", pa.bool_()), ("return", pa.float64()), ("num_turns", pa.int64()), ("stop", text)]
    failure = [("failure_cause", text), ("failure_message", text), ("failure_traceback", text)]
    whole = [("task", text), ("opening", pa.list_(message)), ("turns", pa.list_(turn)), ("fingerprint", text)]
    origin = [("episode", pa.int64()), ("policy", text), ("sampling", text), ("environment_version", text)]
    lineage = [("code_version", text), ("parent", text), ("perturbation", text), ("annotations", text)]
    return pa.schema([*asked, *outcome, *failure, *whole, *origin, *lineage])


def to_table(records: Sequence[Record]) -> Any:
    """An Arrow table of the records.

    Raises:
        DataError: a record holds what can't be written, such as a value that is no JSON.
    """
    import pyarrow

    try:
        return pyarrow.Table.from_pylist([_to_row(record) for record in records], schema=schema())
    except (TypeError, ValueError, OverflowError) as error:
        ids = ", ".join(record.id for record in records[:3])
        raise DataError(f"{len(records)} records ({ids}, ...) can't be written: {error}") from error


def _to_row(record: Record) -> dict[str, Any]:
    trajectory, provenance = record.trajectory, record.provenance
    task, failure = trajectory.task, trajectory.failure
    return {
        "id": record.id,
        "task_id": task.id,
        "environment": task.environment,
        "split": task.split,
        "success": trajectory.success,
        "return": trajectory.environment_return,
        "num_turns": len(trajectory.turns),
        "stop": trajectory.stop.value,
        "failure_cause": failure.cause if failure else None,
        "failure_message": encodable(failure.message) if failure else None,
        "failure_traceback": encodable(failure.traceback) if failure else None,
        "task": encodable(task.to_json()),
        "opening": [_message_row(message) for message in trajectory.opening],
        "turns": [_turn_row(turn) for turn in trajectory.turns],
        "fingerprint": trajectory.fingerprint,
        **encodable(vars(provenance)),
        "sampling": _json(provenance.sampling),
        "annotations": _json(record.annotations),
    }


def _turn_row(turn: Turn) -> dict[str, Any]:
    sampled = turn.reply.tokens
    return {
        "message": _message_row(turn.reply.message),
        "complete": turn.reply.complete,
        "tokens": {"ids": sampled.ids, "logprobs": sampled.logprobs} if sampled else None,
        "observation": [_message_row(message) for message in turn.observation],
        "reward": turn.reward,
        "valid": turn.valid,
        "policy_seconds": turn.policy_seconds,
        "environment_seconds": turn.environment_seconds,
        "info": _json(turn.info),
    }


def _message_row(message: Message) -> dict[str, Any]:
    return {
        "role": message.role,
        "content": encodable(message.content),
        "tool_calls": [
            {"name": encodable(call.name), "arguments": _json(call.arguments), "id": encodable(call.id)}
            for call in message.tool_calls
        ],
        "tool_call_id": encodable(message.tool_call_id),
    }


def _json(value: Mapping[str, Any]) -> str:
    return encodable(json.dumps(dict(value), ensure_ascii=False))
