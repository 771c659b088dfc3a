"""A trajectory of the Agent Data Protocol (ADP) -> Trajectory.

Actions with no observation between them are one reply: API and code actions are its tool calls, descriptions and
messages its text, reasoning stands before it as `<think>`. What is seen after a reply with calls answers them, by
`tool_call_id` or else in order, whoever it is from: the published files name the user where a tool spoke. Other text
is the user's; text that an observation has from the agent is a reply that is not trained. The outcome is unknown. An
observation that is nothing but an image has no place in a trajectory and is refused; names of participants, lists of
what was available and `details` are passed over.

Source: schema 1.0 to 1.5, https://github.com/neulab/agent-data-protocol/blob/main/schema/SCHEMA.md; Song et al.
(2025), https://arxiv.org/abs/2510.24702. Later ADP files are ATIF documents (`atif_read.py`).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from agentgym_rl.data.reasoning import with_reasoning
from agentgym_rl.data.sft_parquet import TRAINED
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message, ToolCall, assistant, user
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason, Trajectory, Turn

VERSIONS = re.compile(r"1\.[0-5]\.\d+")
ACTIONS = ("api_action", "code_action", "message_action")
OBSERVATIONS = ("text_observation", "web_observation", "image_observation")
SOURCES = ("user", "agent", "environment")
CODE_TOOL = "execute_code"
"""Name of the call that a code action becomes; its arguments are the action's `language` and `content`."""


def is_adp(line: Mapping[str, Any]) -> bool:
    return "id" in line and isinstance(line.get("content"), list)


class _Call(NamedTuple):
    """A call of the last reply that was not answered yet."""

    id: str
    named: bool
    """The file gives its id, so that an answer says it too."""


def from_adp(line: Mapping[str, Any], task: Task) -> Trajectory:
    """Read a line as an episode of that task.

    Raises:
        DataError: another version, an entry that breaks the schema (named by its place), or no action.
    """
    _check(line)
    opening: list[Message] = []
    turns: list[Turn] = []
    calls: list[_Call] = []
    place = 1
    for acts, entries in itertools.groupby(line["content"], _is_action):
        group = list(entries)
        try:
            if acts:
                turns.append(Turn(_reply(group, place), (), _reward(group)))
                calls = _open_calls(group, place)
            else:
                for message in _observed(group, calls):
                    _append(message, opening, turns)
                if turns:
                    turns[-1] = replace(turns[-1], reward=turns[-1].reward + _reward(group))
        except DataError as error:
            raise DataError(f"entries {place} to {place + len(group) - 1}: {error}") from error
        place += len(group)
    if not any(map(_is_action, line["content"])):
        raise DataError("a trajectory needs an action")
    return Trajectory(task, tuple(opening), tuple(turns), StopReason.TERMINATED)


def _check(line: Mapping[str, Any]) -> None:
    version = line.get("schema_version", "1.0.0")
    if not isinstance(version, str) or not VERSIONS.fullmatch(version):
        raise DataError(f"versions that can be read are 1.0 to 1.5; given: {version!r}")
    for place, entry in enumerate(line["content"], start=1):
        if not isinstance(entry, Mapping) or entry.get("class_") not in (*ACTIONS, *OBSERVATIONS):
            known = ", ".join([*ACTIONS, *OBSERVATIONS])
            raise DataError(f"entry {place} must be an object whose `class_` is one of {known}; given: {entry!r:.200}")


def _is_action(entry: Mapping[str, Any]) -> bool:
    return entry["class_"] in ACTIONS


def _append(message: Message, opening: list[Message], turns: list[Turn]) -> None:
    if message.role == "assistant":
        turns.append(Turn(Reply(message), (), 0.0, info={TRAINED: False}))
    elif turns:
        turns[-1] = replace(turns[-1], observation=(*turns[-1].observation, message))
    else:
        opening.append(message)


def _reply(actions: Sequence[Mapping[str, Any]], place: int) -> Reply:
    said = [text for action in actions for text in (_optional(action, "description"), _message(action))]
    thoughts = [_optional(action, "reasoning_content") for action in actions]
    calls = tuple(
        _call(action, _call_id(action, number))
        for number, action in enumerate(actions, start=place)
        if action["class_"] != "message_action"
    )
    text, reasoning = "\n\n".join(filter(None, said)), "\n\n".join(filter(None, thoughts))
    return Reply(assistant(with_reasoning(text, reasoning or None), calls))


def _message(action: Mapping[str, Any]) -> str:
    return _text(action, "content") if action["class_"] == "message_action" else ""


def _call_id(action: Mapping[str, Any], number: int) -> str:
    return action.get("tool_call_id") or f"call_{number}"


def _call(action: Mapping[str, Any], id: str) -> ToolCall:
    if action["class_"] == "code_action":
        return ToolCall(CODE_TOOL, {name: _text(action, name) for name in ("language", "content")}, id)
    if not isinstance(action.get("kwargs"), Mapping):
        raise DataError(f"`kwargs` must be an object; given: {action.get('kwargs')!r}")
    return ToolCall(_text(action, "function"), action["kwargs"], id)


def _open_calls(actions: Sequence[Mapping[str, Any]], place: int) -> list[_Call]:
    return [
        _Call(_call_id(action, number), bool(action.get("tool_call_id")))
        for number, action in enumerate(actions, start=place)
        if action["class_"] != "message_action"
    ]


def _observed(entries: Sequence[Mapping[str, Any]], calls: list[_Call]) -> Iterator[Message]:
    """An answer without an id is that of the first open call that has none in the file either, or, where it says that
    it is the environment's, of the first open call."""
    for entry in entries:
        text, named = _seen(entry), entry.get("tool_call_id")
        by_environment = entry["class_"] == "web_observation" or entry["source"] == "environment"
        fits = [call for call in calls if (call.id == named if named else by_environment or not call.named)]
        if fits:
            calls.remove(fits[0])
            yield Message("tool", text, tool_call_id=fits[0].id)
        elif entry.get("source") == "agent":
            yield assistant(text)
        else:
            yield user(text)


def _seen(entry: Mapping[str, Any]) -> str:
    if entry["class_"] == "text_observation":
        if entry.get("source") not in SOURCES:
            raise DataError(f"its source must be one of {', '.join(SOURCES)}; given: {entry.get('source')!r}")
        return _text(entry, "content")
    if entry["class_"] == "web_observation" and (page := _page(entry)) is not None:
        return page
    raise DataError("an image can't be read; what is seen must be text, or a page with `axtree` or `html`")


def _page(entry: Mapping[str, Any]) -> str | None:
    """A page of which nothing was kept is its address; None: it is there as an image alone."""
    text = entry.get("axtree") or entry.get("html")
    if not text and entry.get("image_observation"):
        return None
    text = text or entry.get("url") or ""
    if not isinstance(text, str):
        raise DataError(f"`axtree`, `html` and `url` of a page must be text; given: {text!r:.200}")
    return text


def _reward(entries: Sequence[Mapping[str, Any]]) -> float:
    """Of all entries; one without counts 0."""
    for entry in entries:
        reward = entry.get("reward")
        if reward is not None and not (isinstance(reward, int | float) and math.isfinite(reward)):
            raise DataError(f"`reward` of a {entry['class_']} must be a finite number; given: {reward!r}")
    return float(sum(entry.get("reward") or 0.0 for entry in entries))


def _text(entry: Mapping[str, Any], name: str) -> str:
    if not isinstance(entry.get(name), str):
        raise DataError(f"`{name}` of a {entry['class_']} must be text; given: {entry.get(name)!r}")
    return entry[name]


def _optional(entry: Mapping[str, Any], name: str) -> str:
    return _text(entry, name) if entry.get(name) is not None else ""
