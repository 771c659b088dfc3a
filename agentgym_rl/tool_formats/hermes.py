"""hermes: each call is JSON between <tool_call> and </tool_call>, as Hermes 3, Qwen2.5 and Qwen3 write it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from agentgym_rl.messages import ToolCall
from agentgym_rl.tool_formats.reading import Found, Malformed, Value, call_json, call_of, read_json, shown, skip_space
from agentgym_rl.tools import ToolSchema

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
FORM = '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'


def find(text: str, tools: Sequence[ToolSchema]) -> Found:
    return find_between_tags(text, _read_call, FORM)


def find_between_tags(text: str, read: Callable[[str, int], Value], form: str) -> Found:
    """The calls between tags, each read by `read(text, place behind the opening tag)`."""
    content: list[str] = []
    calls: list[ToolCall] = []
    at = 0
    while (begin := text.find(_OPEN, at)) >= 0:
        content.append(text[at:begin].strip())
        try:
            call, end = read(text, begin + len(_OPEN))
            end = skip_space(text, end)
            if not text.startswith(_CLOSE, end):
                raise Malformed(f"{_CLOSE} is missing at {shown(text, end)}")
        except Malformed as error:
            problem = f"call {len(calls) + 1} is malformed: {error}; the form is {form!r}"
            return Found("\n".join(filter(None, content)), tuple(calls), problem)
        calls.append(call)
        at = end + len(_CLOSE)
    content.append(text[at:].strip())
    rest = "\n".join(filter(None, content))
    problem = f"{_CLOSE} stands without {_OPEN}; the form is {form!r}" if _CLOSE in rest else ""
    return Found(rest, tuple(calls), problem)


def render_call(call: ToolCall) -> str:
    return f"{_OPEN}\n{call_json(call, 'arguments')}\n{_CLOSE}"


def render_tools(tools: Sequence[ToolSchema]) -> str:
    return describe(tools) + f"\n\nTo call a function, write its name and arguments as JSON between these tags:\n{FORM}"


def describe(tools: Sequence[ToolSchema]) -> str:
    """Each tool's schema as a line of JSON."""
    lines = "\n".join(json.dumps(tool.to_chat(), ensure_ascii=False) for tool in tools)
    return f"# Tools\n\nYou may call these functions:\n<tools>\n{lines}\n</tools>"


def render_result(text: str) -> str:
    return f"<tool_response>\n{text}\n</tool_response>"


def _read_call(text: str, start: int) -> Value:
    value, end = read_json(text, start)
    return Value(call_of(value, "arguments"), end)
