"""Trajectory <-> one conversation of a file that others read: OpenAI fine-tuning lines, and ShareGPT / AgentTraj.

Both ways keep every message, tool call and which replies are trained. What these files have no place for is not in
them: rewards, seconds, token ids, tools. A trajectory that was read from one has rewards of 0, no verdict, and its
environment's name from the line, so that filters and SFT can take it; it can't be replayed.

Layouts: OpenAI's chat fine-tuning (`messages`, `weight` 0 or 1 on the assistant's); AgentTraj and OpenManus-RL
(`conversations` of `from`, `value`, `loss`; `item_id`). ShareGPT has no place for tool calls: they are a turn from
`function_call` whose value is JSON, answered from `observation`, as common trainers read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from agentgym_rl.data.encodable import encodable
from agentgym_rl.data.sft_parquet import TRAINED, is_trained
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message, ToolCall
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason, Trajectory, Turn

ChatLayout = Literal["openai", "sharegpt"]
SPEAKER = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}
ROLE = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}
ROLE |= {"system": "system", "observation": "tool", "tool": "tool"}
CALLS = "function_call"
KEY_OF: Mapping[ChatLayout, str] = {"openai": "messages", "sharegpt": "conversations"}


class Said(NamedTuple):
    """A message, and whether it is to be imitated."""

    message: Message
    trained: bool


def to_line(trajectory: Trajectory, layout: ChatLayout) -> dict[str, Any]:
    """The trajectory in that layout.

    Raises:
        DataError: a reply is not the assistant's.
    """
    said = _said(trajectory)
    if layout == "openai":
        return {"messages": [_to_openai(one) for one in said]}
    head = {"item_id": trajectory.task.id, "environment": trajectory.task.environment}
    return {**head, "conversations": [_to_sharegpt(one) for one in said]}


def from_line(line: Mapping[str, Any], task: Task) -> Trajectory:
    """Read a line of either layout, as an episode of that task.

    Raises:
        DataError: it has neither `messages` nor `conversations`, or one that can't be read.
    """
    for layout in get_args(ChatLayout):
        if isinstance(line.get(KEY_OF[layout]), Sequence):
            read = _from_openai if layout == "openai" else _from_sharegpt
            return _trajectory([read(entry) for entry in line[KEY_OF[layout]]], task)
    known = " or ".join(f"{key!r}" for key in KEY_OF.values())
    raise DataError(f"a conversation is a list under {known}; given: {', '.join(line) or 'no fields'}")


def _said(trajectory: Trajectory) -> list[Said]:
    said = [Said(message, False) for message in trajectory.opening]
    for turn in trajectory.turns:
        role = turn.reply.message.role
        if role != "assistant":
            raise DataError(f"task {trajectory.task.id!r}: a reply must be the assistant's; given: the {role}'s")
        said += [Said(turn.reply.message, is_trained(turn)), *(Said(message, False) for message in turn.observation)]
    return said


def _trajectory(said: Sequence[Said], task: Task) -> Trajectory:
    """Every message of the assistant is a reply, and what follows it the observation."""
    places = [place for place, one in enumerate(said) if one.message.role == "assistant"]
    if not places:
        raise DataError("a conversation needs a reply of the assistant")
    turns = [
        Turn(
            Reply(said[place].message),
            _messages(said[place + 1 : end]),
            0.0,
            info={} if said[place].trained else {TRAINED: False},
        )
        for place, end in zip(places, [*places[1:], len(said)], strict=True)
    ]
    return Trajectory(task, _messages(said[: places[0]]), tuple(turns), StopReason.TERMINATED)


def _messages(said: Iterable[Said]) -> tuple[Message, ...]:
    return tuple(one.message for one in said)


def _to_openai(said: Said) -> dict[str, Any]:
    chat = said.message.to_chat()
    for call in chat.get("tool_calls", ()):
        call["function"]["arguments"] = encodable(json.dumps(call["function"]["arguments"], ensure_ascii=False))
    return {**chat, "weight": int(said.trained)} if said.message.role == "assistant" else chat


def _from_openai(entry: Any) -> Said:
    """Our own SFT files say `loss` where OpenAI's say `weight`."""
    if not isinstance(entry, Mapping):
        raise DataError(f"a message is an object; given: {entry!r}")
    return Said(Message.from_chat(entry), entry.get("weight") != 0 and entry.get("loss") is not False)


def _to_sharegpt(said: Said) -> dict[str, Any]:
    message = said.message
    entry: dict[str, Any] = {"from": SPEAKER[message.role], "value": message.content, "loss": None}
    if message.role == "assistant":
        entry["loss"] = said.trained
    if message.tool_calls:
        calls = [{"name": call.name, "arguments": dict(call.arguments), "id": call.id} for call in message.tool_calls]
        entry.update({"from": CALLS, "value": encodable(json.dumps(calls, ensure_ascii=False))})
        if message.content:
            entry["content"] = message.content
    if message.tool_call_id is not None:
        entry["tool_call_id"] = message.tool_call_id
    return entry


def _from_sharegpt(entry: Any) -> Said:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("value"), str):
        raise DataError(f"a turn is an object with `from` and `value`, both text; given: {entry!r}")
    speaker, value, trained = entry.get("from"), entry["value"], entry.get("loss") is not False
    if speaker == CALLS:
        return Said(Message("assistant", entry.get("content") or "", _calls(value)), trained)
    if speaker not in ROLE:
        raise DataError(f"a turn is from one of {', '.join([*ROLE, CALLS])}; given: {speaker!r}")
    chat = {"role": ROLE[speaker], "content": value, "tool_call_id": entry.get("tool_call_id")}
    return Said(Message.from_chat(chat), trained)


def _calls(text: str) -> tuple[ToolCall, ...]:
    """One call, or a list of them."""
    try:
        read = json.loads(text)
        calls = read if isinstance(read, list) else [read]
        return tuple(ToolCall(call["name"], dict(call["arguments"]), call.get("id") or "") for call in calls)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"a {CALLS} is JSON with `name` and `arguments`; given: {text!r}") from error
