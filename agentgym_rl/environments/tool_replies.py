"""How an environment tells a policy of its tools, and of what its calls came to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentgym_rl.messages import Message, user
from agentgym_rl.tool_calls import ToolFormat, render_result, render_tools
from agentgym_rl.tools import ToolSchema


class Told(NamedTuple):
    """An environment's `instructions` and `tools`."""

    instructions: str
    tools: tuple[ToolSchema, ...]


def show_tools(instructions: str, tools: Sequence[ToolSchema], format: ToolFormat) -> Told:
    """Tools are told of in one way: in the instructions, or natively, where the format says nothing of them."""
    described = render_tools(tools, format)
    return Told("\n\n".join(filter(None, [instructions, described])), () if described else tuple(tools))


def result_messages(action: Message, results: Sequence[str], format: ToolFormat) -> tuple[Message, ...]:
    """One message for each call that a server read; for calls in text, one message with all results in order.

    Args:
        action: the message that called.
        results: of its calls, in order.
        format: in which it called.
    """
    if action.tool_calls:
        pairs = zip(action.tool_calls, results, strict=True)
        return tuple(Message("tool", text, tool_call_id=call.id or None) for call, text in pairs)
    return (user("\n".join(render_result(text, format) for text in results)),)
