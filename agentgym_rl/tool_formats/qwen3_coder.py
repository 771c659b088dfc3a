"""qwen3-coder: a call is a function tag with a tag for each parameter, whose value is bare text or JSON.

A value is text where its schema lets it be text or is not known, and JSON otherwise. One line break behind the opening
tag and one before the closing tag belong to the form and not to the value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from agentgym_rl.errors import DataError
from agentgym_rl.messages import ToolCall
from agentgym_rl.tool_formats.hermes import describe, find_between_tags
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

_FUNCTION = re.compile(r"<function=([^>\n]+)>")
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?")
_FUNCTION_END, _PARAMETER_END = "</function>", "</parameter>"
_NAME = re.compile(r"[^>\s](?:[^>\n]*[^>\s])?")
FORM = (
    "<tool_call>\n<function=function-name>\n<parameter=parameter-name>\nvalue\n</parameter>\n</function>\n</tool_call>"
)


def find(text: str, tools: Sequence[ToolSchema]) -> Found:
    schemas = {tool.name: tool.parameters.get("properties", {}) for tool in tools}
    return find_between_tags(text, partial(_read_call, schemas), FORM)


def render_call(call: ToolCall) -> str:
    """
    Raises:
        DataError: a name or value would break the form.
    """
    lines = [f"<function={_name(call.name)}>"]
    for name, value in call.arguments.items():
        text = value if isinstance(value, str) else write_json(value)
        if _PARAMETER_END in text or "</think>" in text:
            raise DataError(f"the form can't write {text[:80]!r}: a value may not hold {_PARAMETER_END} or </think>")
        lines.append(f"<parameter={_name(name)}>\n{text}\n{_PARAMETER_END}")
    return "\n".join(["<tool_call>", *lines, _FUNCTION_END, "</tool_call>"])


def render_tools(tools: Sequence[ToolSchema]) -> str:
    return describe(tools) + f"\n\nTo call a function, write its name and arguments between these tags:\n{FORM}"


def _name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise DataError(f"the form can't write the name {name!r}: a name is a line without '>'")
    return name


def _read_call(schemas: Mapping[str, Any], text: str, start: int) -> Value:
    at = skip_space(text, start)
    function = _FUNCTION.match(text, at)
    if not function:
        raise Malformed(f"<function=...> is missing at {shown(text, at)}")
    parameters = schemas.get(function[1], {})
    arguments: dict[str, Any] = {}
    at = skip_space(text, function.end())
    while parameter := _PARAMETER.match(text, at):
        name, begin = parameter[1], parameter.end()
        end = text.find(_PARAMETER_END, begin)
        if end < 0:
            raise Malformed(f"{_PARAMETER_END} is missing after <parameter={name[:80]}>")
        if name in arguments:
            raise Malformed(f"the parameter {name[:80]!r} stands there twice")
        arguments[name] = _value(text[begin:end].removesuffix("\n"), parameters.get(name, {}), name)
        at = skip_space(text, end + len(_PARAMETER_END))
    if not text.startswith(_FUNCTION_END, at):
        raise Malformed(f"{_FUNCTION_END} is missing at {shown(text, at)}")
    return Value(ToolCall(function[1], arguments), at + len(_FUNCTION_END))


def _value(text: str, schema: Mapping[str, Any], name: str) -> Any:
    if may_be_text(schema):
        return text
    try:
        value, end = read_json(text, 0)
    except Malformed as error:
        raise Malformed(f"the value of {name[:80]!r} is {error}") from error
    end = skip_space(text, end)
    if end < len(text):
        raise Malformed(f"the value of {name[:80]!r} goes on behind its JSON: {shown(text, end)}")
    return value
