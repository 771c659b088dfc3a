"""What a judge is shown of a trajectory: one JSON object a line, so that no message can pass for two or for another's.

Left out is whatever gives the verdict away: rewards, success, the reason of the end. A judge that saw them would agree
with the environment without having judged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

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
        lines = "\n".join(_lines(trajectory))
    except (TypeError, ValueError) as error:
        raise DataError(f"the trajectory of task {trajectory.task.id!r} can't be shown to a judge: {error}") from error
    # Half a surrogate pair, which a policy may well say, is no UTF-8; in JSON its escape says the same.
    return lines.encode("utf-8", "backslashreplace").decode("utf-8")


def digest(text: str) -> str:
    """Names a text in a file of results; 64 bits of SHA-256."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def _lines(trajectory: Trajectory) -> Iterator[str]:
    if trajectory.task.reference_answer is not None:
        yield _encode({"reference_answer": trajectory.task.reference_answer})
    for message in trajectory.opening:
        yield _line(0, message)
    for number, turn in enumerate(trajectory.turns, start=1):
        yield _line(number, turn.reply.message)
        for message in turn.observation:
            yield _line(number, message)


def _line(turn: int, message: Message) -> str:
    """The object is put together here, which takes half the time: the encoder sets itself up anew for each object."""
    calls = [{"name": call.name, "arguments": dict(call.arguments)} for call in message.tool_calls]
    last = f', "calls": {_encode(calls)}' if calls else ""
    return f'{{"turn": {turn}, "role": {_encode(message.role)}, "content": {_encode(message.content)}{last}}}'
