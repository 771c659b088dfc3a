"""The chat words that every part shares: a message and a tool call, in the OpenAI chat format's terms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from agentgym_rl.errors import DataError

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that a policy asks for: a tool's name with its arguments, already parsed from JSON."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `tool_calls` belong to the assistant, `tool_call_id` to the tool's answer."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    def to_chat(self) -> dict[str, Any]:
        """The dictionary that chat templates and OpenAI-compatible servers take."""
        chat: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            chat["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
                for call in self.tool_calls
            ]
        if self.tool_call_id is not None:
            chat["tool_call_id"] = self.tool_call_id
        return chat

    @classmethod
    def from_chat(cls, chat: Mapping[str, Any]) -> Message:
        """Read a chat dictionary.

        Raises:
            DataError: the role is unknown, the content is no text, or a tool call is malformed.
        """
        role: Any = chat.get("role")
        content = chat.get("content")
        if role not in get_args(Role):
            raise DataError(f"a message's role was {role!r}; allowed: {', '.join(get_args(Role))}")
        calls = tuple(map(_tool_call, chat.get("tool_calls") or ()))
        if content is None and calls:
            content = ""  # how servers send a message that only calls tools
        if not isinstance(content, str):
            raise DataError(f"a message's content must be text; the {role} message has {type(content).__name__}")
        return cls(role, content, calls, chat.get("tool_call_id"))


def _tool_call(chat: Mapping[str, Any]) -> ToolCall:
    """Arguments are an object to a chat template, and its JSON text in a server's answer: both are read."""
    try:
        name, arguments = chat["function"]["name"], chat["function"]["arguments"]
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise DataError(f"a tool call needs function.name and function.arguments (JSON); given: {chat!r}") from error
    if not isinstance(arguments, Mapping):
        raise DataError(f"the arguments of tool call {name!r} must be an object; given: {arguments!r}")
    return ToolCall(name, arguments, chat.get("id") or "")


def system(content: str) -> Message:
    return Message("system", content)


def user(content: str) -> Message:
    return Message("user", content)


def assistant(content: str, tool_calls: tuple[ToolCall, ...] = ()) -> Message:
    return Message("assistant", content, tool_calls)
