"""Trajectory <-> one conversation of a file that others read: OpenAI fine-tuning lines, and ShareGPT / AgentTraj.

Both ways keep every message up to the last reply, tool calls and which replies are trained; what was seen after the
last reply is left out, for trainers take no conversation that does not end with the assistant. What these files have
no place for is not in them: rewards, seconds, token ids, tools. A call that was read without an id gets one. A
trajectory that was read from one has rewards of 0, no verdict, and its environment's name from the line, so that
filters and SFT can take it; it can't be replayed.

Layouts: OpenAI's chat fine-tuning (`messages`, `weight` 0 or 1 on the assistant's); AgentTraj and OpenManus-RL
(`conversations` of `from`, `value`, `loss`; `item_id`). ShareGPT has no place for tool calls: they are a turn from
`function_call` whose value is JSON, answered from `observation`, as LLaMA-Factory reads it. It passes over the text
that a reply has beside its calls, and conversations with two turns of one side in a row.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args

from agentgym_rl.data.encodable import encodable
from agentgym_rl.data.reasoning import split, with_reasoning
from agentgym_rl.data.sft_parquet import TRAINED, is_trained
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message, ToolCall
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason, Trajectory, Turn

ChatLayout = Literal["openai", "sharegpt"]
ROLE_OF_OPENAI = {"developer": "system", "function": "tool"}
"""Other names that its files have for a role."""
SPEAKER = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}
ROLE = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}
ROLE |= {"system": "system", "observation": "tool", "tool": "tool", "function_response": "tool"}
ROLE |= dict.fromkeys(("chatgpt", "bing", "bard"), "assistant")
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
            said = [read(entry) for entry in line[KEY_OF[layout]]]
            return _trajectory(list(_linked([*_told(line, said), *said])), task)
    known = " or ".join(f"{key!r}" for key in KEY_OF.values())
    raise DataError(f"a conversation is a list under {known}; given: {', '.join(line) or 'no fields'}")


def _told(line: Mapping[str, Any], said: Sequence[Said]) -> list[Said]:
    """A system prompt that stands beside the turns, as ShareGPT files for LLaMA-Factory have it; one among them is the
    one that counts."""
    prompt = line.get("system")
    if not isinstance(prompt, str) or not prompt or (said and said[0].message.role == "system"):
        return []
    return [Said(Message("system", prompt), False)]


def _linked(said: Iterable[Said]) -> Iterator[Said]:
    """Calls without an id get one, and the answers to them that have none are theirs in order."""
    numbers = itertools.count(1)
    unanswered: list[str] = []
    for message, trained in said:
        if message.role == "tool" and not message.tool_call_id and unanswered:
            yield Said(replace(message, tool_call_id=unanswered.pop(0)), trained)
            continue
        calls = tuple(call if call.id else replace(call, id=f"call_{next(numbers)}") for call in message.tool_calls)
        if message.role == "assistant":
            unanswered = [new.id for new, old in zip(calls, message.tool_calls, strict=True) if not old.id]
        yield Said(replace(message, tool_calls=calls), trained)


def _said(trajectory: Trajectory) -> list[Said]:
    """Up to the last reply."""
    said = [Said(message, False) for message in trajectory.opening]
    for turn in trajectory.turns:
        role = turn.reply.message.role
        if role != "assistant":
            raise DataError(f"task {trajectory.task.id!r}: a reply must be the assistant's; given: the {role}'s")
        said += [Said(turn.reply.message, is_trained(turn)), *(Said(message, False) for message in turn.observation)]
    seen_last = len(trajectory.turns[-1].observation) if trajectory.turns else 0
    return said[: len(said) - seen_last]


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
    message = Message.from_chat({**entry, **_as_it_is_now(entry)})
    return Said(message, entry.get("weight") != 0 and entry.get("loss") is not False)


def _as_it_is_now(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What OpenAI's files may also write: texts as a list of parts, a refusal for a text, calls as they once were."""
    content, call = entry.get("content"), entry.get("function_call")
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = "\n".join(map(_text_of_part, content))
    if content is None and entry.get("refusal"):
        content = entry["refusal"]
    chat = {"role": ROLE_OF_OPENAI.get(str(entry.get("role")), entry.get("role")), "content": content}
    return {**chat, "tool_calls": [{"function": call}]} if call else chat


def _text_of_part(part: Any) -> str:
    text = part.get("text") if isinstance(part, Mapping) else None
    if not isinstance(text, str):
        raise DataError(f"a part of a message must be text; given: {part!r:.200}")
    return text


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
        written, reasoning = split(value)
        content = entry.get("content") or with_reasoning("", reasoning)
        return Said(Message("assistant", content, _calls(written)), trained)
    if speaker not in ROLE:
        raise DataError(f"a turn is from one of {', '.join([*ROLE, CALLS])}; given: {speaker!r}")
    chat = {"role": ROLE[speaker], "content": value, "tool_call_id": entry.get("tool_call_id")}
    return Said(Message.from_chat(chat), trained)


def _calls(text: str) -> tuple[ToolCall, ...]:
    """One call, or a list of them."""
    try:
        read = json.loads(text)
        return tuple(map(_call, read if isinstance(read, list) else [read]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"a {CALLS} is JSON with `name` and `arguments`; given: {text!r}") from error


def _call(call: Mapping[str, Any]) -> ToolCall:
    """Some files have the arguments as JSON text."""
    arguments = call["arguments"]
    return ToolCall(
        call["name"], dict(json.loads(arguments) if isinstance(arguments, str) else arguments), call.get("id") or ""
    )
