"""What a judge is shown of a trajectory: one JSON object a line, so that no message can pass for two or for another's.

Left out is whatever gives the verdict away: rewards, success, the reason of the end. A judge that saw them would agree
with the environment without having judged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message
from agentgym_rl.trajectory import Trajectory

_encode = json.JSONEncoder(ensure_ascii=False).encode  # `json.dumps` makes a new encoder each time


def transcript(trajectory: Trajectory) -> str:
    """The conversation with its turns numbered from 1 (0 is the opening), after the reference answer if there is one.

    Raises:
        DataError: a tool call's argument or the reference answer is no JSON value.
    """
    try:
        lines = "\n".join(map(_encode, _lines(trajectory)))
    except (TypeError, ValueError) as error:
        raise DataError(f"the trajectory of task {trajectory.task.id!r} can't be shown to a judge: {error}") from error
    # Half a surrogate pair, which a policy may well say, is no UTF-8; in JSON its escape says the same.
    return lines.encode("utf-8", "backslashreplace").decode("utf-8")


def digest(text: str) -> str:
    """Names a text in a file of results; 64 bits of SHA-256."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def _lines(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    if trajectory.task.reference_answer is not None:
        yield {"reference_answer": trajectory.task.reference_answer}
    for message in trajectory.opening:
        yield _line(0, message)
    for number, turn in enumerate(trajectory.turns, start=1):
        yield _line(number, turn.reply.message)
        for message in turn.observation:
            yield _line(number, message)


def _line(turn: int, message: Message) -> dict[str, Any]:
    line: dict[str, Any] = {"turn": turn, "role": message.role, "content": message.content}
    if message.tool_calls:
        line["calls"] = [_call(call.name, call.arguments) for call in message.tool_calls]
    return line


def _call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "arguments": dict(arguments)}
