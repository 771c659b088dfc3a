"""llama-3: a call is a line that begins with its JSON object; several go one after another, with semicolons between.

A line that begins with an object whose first key is "name", "type" or "parameters" is a call, or a malformed one; other
JSON is an answer like any other text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from agentgym_rl.messages import ToolCall
from agentgym_rl.tool_formats.reading import Found, Malformed, call_json, call_of, read_json, skip_space
from agentgym_rl.tools import ToolSchema

_CALL = re.compile(r'(?:<\|python_tag\|>)?[ \t]*\{\s*"(?:name|type|parameters)"\s*:')
FORM = '{"name": <function-name>, "parameters": <args-json-object>}'


def find(text: str, tools: Sequence[ToolSchema]) -> Found:
    content: list[str] = []
    calls: list[ToolCall] = []
    at = 0
    while at < len(text):
        begin = skip_space(text, at)
        if _CALL.match(text, begin):
            try:
                value, at = read_json(text, text.index("{", begin))
                calls.append(call_of(value, "parameters", "arguments"))
            except Malformed as error:
                problem = f"call {len(calls) + 1} is malformed: {error}; the form is {FORM}"
                return Found("\n".join(content), tuple(calls), problem)
            at = _behind_semicolon(text, at)
        else:
            end = text.find("\n", begin)
            at = len(text) if end < 0 else end
            content += filter(None, [text[begin:at].strip()])
    return Found("\n".join(content), tuple(calls))


def render_call(call: ToolCall) -> str:
    return call_json(call, "parameters")


def render_tools(tools: Sequence[ToolSchema]) -> str:
    schemas = "\n\n".join(json.dumps(tool.to_chat(), ensure_ascii=False, indent=4) for tool in tools)
    return (
        f"You have access to these functions:\n\n{schemas}\n\n"
        "To call a function, answer with JSON in this form and nothing else; between two calls goes a semicolon:\n"
        f"{FORM}"
    )


def _behind_semicolon(text: str, at: int) -> int:
    semicolon = skip_space(text, at)
    return semicolon + 1 if text.startswith(";", semicolon) else at
