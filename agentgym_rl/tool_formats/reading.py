"""What reading a call takes in every form: JSON that begins at a place in a text, and what was found so far."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from agentgym_rl.errors import DataError
from agentgym_rl.messages import ToolCall

_SHOWN = 60
"""Characters of a malformed call that its problem shows."""
_SPACE = re.compile(r"\s*")


class Found(NamedTuple):
    """The calls in a text."""

    content: str
    calls: tuple[ToolCall, ...]
    problem: str = ""


class Malformed(Exception):
    """What begins like a call is none; the text says why."""


class Value(NamedTuple):
    """A JSON value, and where the text goes on behind it."""

    value: Any
    end: int


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def skip_space(text: str, start: int) -> int:
    """The place of the next character that is no white space."""
    found = _SPACE.match(text, start)
    return found.end() if found else start


def read_json(text: str, start: int) -> Value:
    """The JSON value that begins at `start`, after white space.

    Raises:
        Malformed: none does.
    """
    start = skip_space(text, start)
    try:
        return Value(*_DECODER.raw_decode(text, start))
    except json.JSONDecodeError as error:
        raise Malformed(f"no valid JSON ({error.msg}) at {shown(text, error.pos)}") from error
    except (ValueError, RecursionError) as error:  # NaN, a number of thousands of digits, too deeply nested
        raise Malformed(f"no valid JSON ({error}) at {shown(text, start)}") from error


def shown(text: str, start: int) -> str:
    """The beginning of what stands at a place, for a problem's text."""
    return repr(text[start : start + _SHOWN]) if start < len(text) else "the end of the text"


def call_of(value: Any, *keys: str) -> ToolCall:
    """The call in a JSON object.

    Args:
        value: read from a text.
        keys: under any of which the arguments may stand.

    Raises:
        Malformed: it is no call.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise Malformed('a call is an object with a "name"')
    arguments = next((value[key] for key in keys if key in value), None)
    if not isinstance(arguments, Mapping):
        raise Malformed(f'the call of {value["name"][:_SHOWN]!r} needs "{keys[0]}", an object')
    return ToolCall(value["name"], arguments)


def may_be_text(schema: Mapping[str, Any]) -> bool:
    """Whether a value may be a string, for forms that write text without quotes; a schema that says nothing lets it."""
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return any(map(may_be_text, schema[key]))
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    kind = schema.get("type", "string")
    kinds = kind if isinstance(kind, list) else [kind]
    return any(isinstance(value, str) for value in values) if values else "string" in kinds


def call_json(call: ToolCall, arguments_key: str) -> str:
    """A call as JSON. No text in it looks like a closing tag: JSON may write a slash as `\\/`."""
    return write_json({"name": call.name, arguments_key: dict(call.arguments)})


def write_json(value: Any) -> str:
    """
    Raises:
        DataError: the value is no JSON.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("</", "<\\/")
    except (TypeError, ValueError) as error:
        raise DataError(f"the arguments of a tool call must be JSON values ({error}); given: {value!r}") from error
