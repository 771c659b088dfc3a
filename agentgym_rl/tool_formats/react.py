"""react: a call is the line "Action:" with a tool's name and "Action Input:" with its arguments as JSON.

Where the tool has one parameter, its value may stand there as bare text. A reply that goes on with an "Observation:"
made one up; that is told, and what follows it is not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_rl.errors import DataError
from agentgym_rl.messages import ToolCall
from agentgym_rl.tool_formats.reading import (
    Found,
    Malformed,
    Value,
    may_be_text,
    read_json,
    shown,
    skip_space,
    write_json,
)
from agentgym_rl.tools import ToolSchema

_ACTION = re.compile(r"^[ \t]*Action:(.*)$", re.MULTILINE)
_INPUT = re.compile(r"\s*Action Input:")
_OBSERVATION = re.compile(r"^[ \t]*Observation:", re.MULTILINE)
_ANSWER = re.compile(r"^[ \t]*Final Answer:", re.MULTILINE)
_FORGERY = 'the reply goes on with "Observation:"; observations come from the environment, so end the reply before it'
FORM = "Action: <tool-name>\nAction Input: <args-json-object>"


def find(text: str, tools: Sequence[ToolSchema]) -> Found:
    known = {tool.name: tool for tool in tools}
    forged = _OBSERVATION.search(text)
    text, problem = (text[: forged.start()], _FORGERY) if forged else (text, "")
    content: list[str] = []
    calls: list[ToolCall] = []
    at = 0
    while action := _ACTION.search(text, at):
        content.append(text[at : action.start()].strip())
        name = action[1].strip()
        try:
            arguments, at = _read_input(text, action, known.get(name))
        except Malformed as error:
            problem, at = f"call {len(calls) + 1} is malformed: {error}; the form is {FORM!r}", len(text)
            break
        calls.append(ToolCall(name, arguments))
    content.append(_answer(text[at:]))
    return Found("\n".join(filter(None, content)), tuple(calls), problem)


def render_call(call: ToolCall) -> str:
    """
    Raises:
        DataError: the name is no line of text.
    """
    if call.name != call.name.strip() or not call.name or "\n" in call.name:
        raise DataError(f"the form can't write the name {call.name!r}: it must be one line, without spaces around it")
    return f"Action: {call.name}\nAction Input: {write_json(dict(call.arguments))}"


def render_tools(tools: Sequence[ToolSchema]) -> str:
    described = "\n".join(
        f"- {tool.name}: {tool.description}\n  Arguments: {json.dumps(tool.parameters, ensure_ascii=False)}"
        for tool in tools
    )
    return (
        f"You have these tools:\n{described}\n\nTo use one, write:\n{FORM}\n"
        "Its result comes as an Observation. When you are done, write:\nFinal Answer: <your answer>"
    )


def render_result(text: str) -> str:
    return f"Observation: {text}"


def _read_input(text: str, action: re.Match[str], tool: ToolSchema | None) -> Value:
    """The arguments behind an action's line."""
    if not action[1].strip():
        raise Malformed('"Action:" names no tool')
    found = _INPUT.match(text, action.end())
    if not found:
        raise Malformed(f'"Action Input:" is missing at {shown(text, skip_space(text, action.end()))}')
    parameters = tool.parameters.get("properties", {}) if tool else {}
    begin = skip_space(text, found.end())
    if len(parameters) == 1 and not text.startswith("{", begin):
        [(name, schema)] = parameters.items()
        return _read_only_value(text, begin, name, schema)
    value, end = read_json(text, begin)
    if not isinstance(value, dict):
        raise Malformed(f"the input must be a JSON object; given: {shown(text, begin)}")
    return Value(value, end)


def _read_only_value(text: str, begin: int, name: str, schema: Mapping[str, Any]) -> Value:
    """The rest of the line, as the value of the tool's one parameter; quotes around it are not part of it."""
    end = text.find("\n", begin)
    end = len(text) if end < 0 else end
    line = text[begin:end].strip()
    if not line:
        raise Malformed('"Action Input:" is empty')
    try:
        value, stop = read_json(line, 0)
    except Malformed:
        return Value({name: line}, end)
    is_text = stop < len(line) or (may_be_text(schema) and not isinstance(value, str))
    return Value({name: line if is_text else value}, end)


def _answer(text: str) -> str:
    found = _ANSWER.search(text)
    return text[found.end() :].strip() if found else text.strip()
