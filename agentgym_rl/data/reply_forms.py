"""What a reply's text is made of, whatever the environment: whether it calls a tool, and whether it only acts."""

from __future__ import annotations

import ast

from agentgym_rl.messages import Message
from agentgym_rl.tool_calls import Parsed, ToolFormat, parse

_FORMATS: tuple[ToolFormat, ...] = ("hermes", "qwen3-coder", "llama-3", "react")


def calls_a_tool(message: Message) -> bool:
    """Whether there is a call in a reply, in any form that policies write them in."""
    return bool(message.tool_calls) or _parsed(message.content) is not None or _is_python_calls(message.content)


def is_bare(message: Message) -> bool:
    """Whether a reply is its action alone: calls and nothing else, or a single line."""
    if message.tool_calls:
        return not message.content.strip()
    parsed = _parsed(message.content)
    if parsed is not None:
        return not parsed.content and not parsed.reasoning
    return len(message.content.strip().splitlines()) <= 1 and "</think>" not in message.content


def _parsed(content: str) -> Parsed | None:
    """A reply with calls; None: it has none."""
    for format in _FORMATS:
        parsed = parse(content, format)
        if parsed.calls and not parsed.problem:
            return parsed
    return None


def _is_python_calls(content: str) -> bool:
    """BFCL's own form: a list of Python calls."""
    try:
        read = ast.parse(content.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return isinstance(read, ast.List) and bool(read.elts) and all(isinstance(one, ast.Call) for one in read.elts)
