"""native: the server or the chat template shows the tools, and the server reads the calls; text is an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.messages import ToolCall
from agentgym_rl.tool_formats.reading import Found
from agentgym_rl.tools import ToolSchema


def find(text: str, tools: Sequence[ToolSchema]) -> Found:
    return Found(text.strip(), ())


def render_call(call: ToolCall) -> NoReturn:
    raise ConfigurationError(
        f"native calls are no text; the call of {call.name!r} belongs into a message's tool_calls. An expert writes "
        "text: give its task another tool_format, such as 'hermes'"
    )


def render_tools(tools: Sequence[ToolSchema]) -> str:
    return ""


def render_result(text: str) -> str:
    return text
