"""A trajectory of the Agent Data Protocol (ADP) -> Trajectory.

Actions with no observation between them are one reply: API and code actions are its tool calls, descriptions and
messages its text, reasoning stands before it as `<think>`. What the environment says after a reply with calls answers
them, by `tool_call_id` or else in order; all other text is the user's. The outcome is unknown. An observation that is
nothing but an image has no place in a trajectory and is refused.

Source: schema 1.0.0 to 1.5.0, https://github.com/neulab/agent-data-protocol/blob/main/schema/SCHEMA.md; Song et al.
(2025), https://arxiv.org/abs/2510.24702. Later ADP files are ATIF documents (`atif_read.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_rl.data.reasoning import with_reasoning
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message, ToolCall, assistant, user
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason, Trajectory, Turn

VERSIONS = tuple(f"1.{minor}.0" for minor in range(6))
ACTIONS = ("api_action", "code_action", "message_action")
OBSERVATIONS = ("text_observation", "web_observation", "image_observation")
SOURCES = ("user", "agent", "environment")
CODE_TOOL = "execute_code"
"""Name of the call that a code action becomes; its arguments are the action's `language` and `content`."""


def is_adp(line: Mapping[str, Any]) -> bool:
    return "id" in line and isinstance(line.get("content"), list)


def from_adp(line: Mapping[str, Any], task: Task) -> Trajectory:
    """Read a line as an episode of that task.

    Raises:
        DataError: another version, an entry that breaks the schema (named by its place), or no action.
    """
    version = line.get("schema_version", VERSIONS[0])
    if version not in VERSIONS:
        raise DataError(f"versions that can be read are {VERSIONS[0]} to {VERSIONS[-1]}; given: {version!r}")
    for place, entry in enumerate(line["content"], start=1):
        if not isinstance(entry, Mapping) or entry.get("class_") not in (*ACTIONS, *OBSERVATIONS):
            known = ", ".join([*ACTIONS, *OBSERVATIONS])
            raise DataError(f"entry {place} must be an object whose `class_` is one of {known}; given: {entry!r:.200}")
    opening: tuple[Message, ...] = ()
    turns: list[Turn] = []
    place = 1
    for acts, entries in itertools.groupby(line["content"], lambda entry: entry["class_"] in ACTIONS):
        group = list(entries)
        try:
            if acts:
                turns.append(Turn(_reply(group, place), (), _reward(group)))
            elif not turns:
                opening = _observed(group, ())
            else:
                turns[-1] = _answered(turns[-1], group)
        except DataError as error:
            raise DataError(f"entries {place} to {place + len(group) - 1}: {error}") from error
        place += len(group)
    if not turns:
        raise DataError("a trajectory needs an action")
    return Trajectory(task, opening, tuple(turns), StopReason.TERMINATED)


def _reply(actions: Sequence[Mapping[str, Any]], place: int) -> Reply:
    said = [text for action in actions for text in (_optional(action, "description"), _message(action))]
    thoughts = [_optional(action, "reasoning_content") for action in actions]
    calls = tuple(
        _call(action, f"call_{number}")
        for number, action in enumerate(actions, start=place)
        if action["class_"] != "message_action"
    )
    text, reasoning = "\n\n".join(filter(None, said)), "\n\n".join(filter(None, thoughts))
    return Reply(assistant(with_reasoning(text, reasoning or None), calls))


def _message(action: Mapping[str, Any]) -> str:
    return _text(action, "content") if action["class_"] == "message_action" else ""


def _call(action: Mapping[str, Any], otherwise: str) -> ToolCall:
    id = action.get("tool_call_id") or otherwise
    if action["class_"] == "code_action":
        return ToolCall(CODE_TOOL, {name: _text(action, name) for name in ("language", "content")}, id)
    if not isinstance(action.get("kwargs"), Mapping):
        raise DataError(f"`kwargs` must be an object; given: {action.get('kwargs')!r}")
    return ToolCall(_text(action, "function"), action["kwargs"], id)


def _answered(turn: Turn, entries: Sequence[Mapping[str, Any]]) -> Turn:
    seen = _observed(entries, [call.id for call in turn.reply.message.tool_calls])
    return Turn(turn.reply, seen, turn.reward + _reward(entries))


def _observed(entries: Sequence[Mapping[str, Any]], calls: Sequence[str]) -> tuple[Message, ...]:
    open_calls = list(calls)
    messages = []
    for entry in entries:
        text, named = _seen(entry), entry.get("tool_call_id")
        by_environment = entry["class_"] == "web_observation" or entry["source"] == "environment"
        if named is None and by_environment and open_calls:
            named = open_calls[0]
        if named in open_calls:
            open_calls.remove(named)
            messages.append(Message("tool", text, tool_call_id=named))
        else:
            messages.append(user(text))
    return tuple(messages)


def _seen(entry: Mapping[str, Any]) -> str:
    if entry["class_"] == "text_observation":
        if entry.get("source") not in SOURCES:
            raise DataError(f"its source must be one of {', '.join(SOURCES)}; given: {entry.get('source')!r}")
        return _text(entry, "content")
    text = entry.get("axtree") or entry.get("html")
    if not isinstance(text, str):
        raise DataError("an image can't be read; what is seen must be text, or a page with `axtree` or `html`")
    return text


def _reward(entries: Sequence[Mapping[str, Any]]) -> float:
    """Of all entries; one without counts 0."""
    return float(sum(entry.get("reward") or 0.0 for entry in entries))


def _text(entry: Mapping[str, Any], name: str) -> str:
    if not isinstance(entry.get(name), str):
        raise DataError(f"`{name}` of a {entry['class_']} must be text; given: {entry.get(name)!r}")
    return entry[name]


def _optional(entry: Mapping[str, Any], name: str) -> str:
    return _text(entry, name) if entry.get(name) is not None else ""
