"""The APIs of a query as ToolBench's files describe them, and the functions that a policy is shown for them.

Names go to the server as ToolBench makes them, since it looks answers up by them; the name of a function is only read
here, and is its own within a query.

Source: Qin et al. 2023, ToolBench (ToolLLM), https://arxiv.org/abs/2307.16789.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.tool_arguments import wrong_call
from agentgym_rl.tools import ToolSchema

DESCRIPTION_CHARACTERS = 256
"""Of an API's or a parameter's description that are shown, as in ToolBench; some hold a whole manual."""
NAME_CHARACTERS = 64
"""Longest name of a function that OpenAI-compatible servers take."""

_TEXT_FIELDS = ("category_name", "tool_name", "api_name", "api_description")
_PARAMETER_FIELDS = ("required_parameters", "optional_parameters")
FIELDS = (*_TEXT_FIELDS, *_PARAMETER_FIELDS)
"""What is read of an API."""

_RESERVED = ("from", "class", "return", "false", "true", "id", "and")
_JSON_TYPES = {kind.upper(): kind for kind in ("string", "number", "boolean", "array", "object")}
"""ToolBench's names of types, of which others ("ENUM", "DATE (YYYY-MM-DD)") are text."""


@dataclass(frozen=True)
class Api:
    """One API, under the names that the server knows."""

    category: str
    tool_name: str
    api_name: str
    schema: ToolSchema
    """Of the function that calls it."""

    def require_fitting(self, arguments: Mapping[str, Any]) -> None:
        """Types are not looked at: the files give many wrongly, and an API takes "3" for 3 or says that it doesn't.

        Raises:
            WrongCall: a required argument is missing, or there is no such parameter.
        """
        schema = self.schema.parameters
        problems = [f"{name} is missing" for name in schema["required"] if name not in arguments]
        problems += [f"there is no parameter {name[:80]!r}" for name in arguments if name not in schema["properties"]]
        if problems:
            raise wrong_call(self.schema.name, "; ".join(problems[:5]), schema)


def apis_of(rows: Any) -> tuple[Api, ...]:
    """Read a query's `api_list`; an API that stands in it twice is one.

    Raises:
        ConfigurationError: there is none, or one is malformed.
    """
    if not isinstance(rows, Sequence) or isinstance(rows, str) or not rows:
        raise ConfigurationError(f"a ToolBench task needs at least one API, in a list; given: {rows!r:.200}")
    found: dict[tuple[str, str, str], Api] = {}
    names: set[str] = set()
    for row in rows:
        _require_fields(row)
        key = (row["category_name"], standard_name(row["tool_name"]), _python_name(row["api_name"]))
        if key not in found:
            name = _free_name(f"{key[2]}_for_{key[1]}", names)
            names.add(name)
            found[key] = Api(*key, ToolSchema(name, _description(row), _parameters(row)))
    return tuple(found.values())


def standard_name(text: str) -> str:
    """A tool's name as the server knows it: lower case, with one "_" for all that is no letter or digit."""
    name = re.sub(r"[^\u4e00-\u9fa5a-zA-Z0-9_^]", "_", text)
    name = re.sub("_+", "_", name).lower().strip("_")
    return f"get_{name}" if name[:1].isdigit() else name


def function_names(pairs: Any, apis: Sequence[Api]) -> frozenset[str]:
    """The functions of a query's `relevant APIs`.

    Args:
        pairs: (tool, API), as the files name them.
        apis: of the query.

    Raises:
        ConfigurationError: a pair names none of them.
    """
    by_name = {(api.tool_name, api.api_name): api.schema.name for api in apis}
    found = set()
    for pair in pairs:
        if not isinstance(pair, Sequence) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise ConfigurationError(f"a relevant API is a pair of tool and API; given: {pair!r:.200}")
        key = (standard_name(pair[0]), _python_name(pair[1]))
        if key not in by_name:
            raise ConfigurationError(f"the relevant API {pair[1]!r} of {pair[0]!r} is none of the task's APIs")
        found.add(by_name[key])
    return frozenset(found)


def _python_name(text: str) -> str:
    """An API's or a parameter's name as the server knows it."""
    name = standard_name(text)
    return f"is_{name}" if name in _RESERVED else name


def _require_fields(row: Any) -> None:
    if not isinstance(row, Mapping):
        raise ConfigurationError(f"an API is an object with {', '.join(FIELDS)}; given: {row!r:.200}")
    for name in _TEXT_FIELDS:
        if not isinstance(row.get(name), str):
            raise ConfigurationError(f"an API needs the field {name!r}, a text; given: {row.get(name)!r:.200}")
    for name in ("tool_name", "api_name"):
        if not standard_name(row[name]):
            raise ConfigurationError(f"an API's {name!r} needs a letter or a digit; given: {row[name]!r:.200}")
    for name in _PARAMETER_FIELDS:
        if not isinstance(row.get(name), Sequence) or not all(map(_is_parameter, row[name])):
            raise ConfigurationError(
                f"the {name!r} of API {row['api_name']!r} must be a list of objects with name, type and description;"
                f" given: {row.get(name)!r:.200}"
            )


def _is_parameter(given: Any) -> bool:
    texts = ("name", "type", "description")
    return isinstance(given, Mapping) and all(isinstance(given.get(name), str) for name in texts)


def _free_name(name: str, taken: Container[str]) -> str:
    """Cut at its end, as APIs of one tool differ at the beginning; numbered where that is not enough."""
    free = name[:NAME_CHARACTERS]
    for number in count(2):
        if free not in taken:
            break
        free = f"{name[: NAME_CHARACTERS - len(f'_{number}')]}_{number}"
    return free


def _description(row: Mapping[str, Any]) -> str:
    said = " ".join(row["api_description"].split())[:DESCRIPTION_CHARACTERS]
    of = f"{row['api_name']} of {row['tool_name']}"
    return f"{of}: {said}" if said else of


def _parameters(row: Mapping[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required = []
    for parameter in [*row["required_parameters"], *row["optional_parameters"]]:
        name = _python_name(parameter["name"])
        if name in properties:
            continue  # a few APIs name a parameter twice
        properties[name] = _parameter(parameter)
        if parameter in row["required_parameters"]:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def _parameter(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the files call a default is an example: an argument that is left out is not sent."""
    schema: dict[str, Any] = {"type": _JSON_TYPES.get(given["type"].upper(), "string")}
    if given["description"]:
        schema["description"] = given["description"][:DESCRIPTION_CHARACTERS]
    if given.get("default") not in ("", None):
        schema["examples"] = [given["default"]]
    return schema
