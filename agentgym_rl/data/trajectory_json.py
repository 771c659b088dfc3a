"""Trajectory <-> dictionary of JSON values, and JSON Lines files of them: one trajectory a line, in order.

Field names are those of the dataclasses; nothing is left out, so that what is read back equals what was written
(as far as an environment's `info` consists of JSON values).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message, ToolCall
from agentgym_rl.policy import Reply, SampledTokens
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn


def to_dict(trajectory: Trajectory) -> dict[str, Any]:
    """A dictionary that `json.dumps` takes."""
    return {**asdict(trajectory), "task": trajectory.task.to_dict(), "stop": trajectory.stop.value}


def from_dict(row: Mapping[str, Any]) -> Trajectory:
    """Read what `to_dict` gave.

    Raises:
        DataError: a field is missing, unknown, or not what it should be.
    """
    try:
        failure = row["failure"]
        return Trajectory(
            **{
                **row,
                "task": Task(**row["task"]),
                "opening": _messages(row["opening"]),
                "turns": tuple(_turn(turn) for turn in row["turns"]),
                "stop": StopReason(row["stop"]),
                "failure": None if failure is None else Failure(**failure),
            }
        )
    except DataError:
        raise
    except KeyError as error:
        raise DataError(f"a trajectory needs the field {error}; given: {', '.join(row) or 'no fields'}") from error
    except (TypeError, ValueError) as error:
        raise DataError(f"not a trajectory: {error}") from error


def to_line(trajectory: Trajectory) -> str:
    """One line of a JSON Lines file.

    Raises:
        DataError: the trajectory holds something that is no JSON value.
    """
    try:
        return json.dumps(to_dict(trajectory)) + "\n"
    except (TypeError, ValueError) as error:
        raise DataError(f"the trajectory of task {trajectory.task.id!r} can't be written as JSON: {error}") from error


def read_trajectories(path: str | Path) -> list[Trajectory]:
    """The trajectories of a JSON Lines file.

    Raises:
        DataError: no such file, or a line that is no trajectory, named by its number.
    """
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            return [read_line(line, number, path) for number, line in enumerate(file, start=1)]
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error


def read_line(line: str | bytes, number: int, path: str | Path) -> Trajectory:
    """The trajectory of a line of a file; its number, from 1, and the path are for messages.

    Raises:
        DataError: it is none.
    """
    try:
        row = json.loads(line)
        if not isinstance(row, dict):
            raise DataError(f"a trajectory is a JSON object; given: {type(row).__name__}")
        return from_dict(row)
    except json.JSONDecodeError as error:
        raise DataError(f"line {number} of {path} is no JSON ({error.msg})") from error
    except UnicodeDecodeError as error:
        raise DataError(f"line {number} of {path} is no UTF-8 ({error})") from error
    except DataError as error:
        raise DataError(f"line {number} of {path}: {error}") from error


def _turn(row: Mapping[str, Any]) -> Turn:
    return Turn(**{**row, "reply": _reply(row["reply"]), "observation": _messages(row["observation"])})


def _reply(row: Mapping[str, Any]) -> Reply:
    tokens = row["tokens"]
    sampled = None if tokens is None else SampledTokens(tuple(tokens["ids"]), tuple(tokens["logprobs"]))
    return Reply(_message(row["message"]), row["complete"], sampled)


def _messages(rows: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    return tuple(_message(row) for row in rows)


def _message(row: Mapping[str, Any]) -> Message:
    return Message(**{**row, "tool_calls": tuple(ToolCall(**call) for call in row["tool_calls"])})
