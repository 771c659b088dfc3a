"""BFCL's multi-turn entries and function descriptions, as the package `bfcl-eval` ships them.

Nothing of the package is imported here but its data; what is missing is said with the commands that install it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentgym_rl.environments.bfcl.python_calls import Call, read_calls
from agentgym_rl.errors import ConfigurationError, did_you_mean
from agentgym_rl.tools import ToolSchema

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
"""Plain; a function is held back for some requests; a request lacks a value at first; the worlds are full of text."""

INSTALL = 'pip install "openmanus-rl[bfcl]" && pip install --no-deps bfcl-eval==2026.3.23'
"""In two steps: the package pins numpy and the software kits of ten vendors for what is not used here."""

_DOCUMENTS = {
    "GorillaFileSystem": "gorilla_file_system.json",
    "MathAPI": "math_api.json",
    "MessageAPI": "message_api.json",
    "TicketAPI": "ticket_api.json",
    "TradingBot": "trading_bot.json",
    "TravelAPI": "travel_booking.json",
    "TwitterAPI": "posting_api.json",
    "VehicleControlAPI": "vehicle_control.json",
}
_JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array"}
"""BFCL's names of types; the others are JSON schema's own."""


@dataclass(frozen=True)
class Entry:
    """One conversation: the user's requests in order, and what a right answer calls for each."""

    id: str
    classes: tuple[str, ...]
    """Which stateful classes it plays on."""
    initial: Mapping[str, Any]
    """Class -> the state that it starts in."""
    requests: tuple[str | None, ...]
    """None: nothing but that functions were added."""
    ground_truth: tuple[tuple[Call, ...], ...]
    """By request; empty: nothing can be called yet."""
    held_back: Mapping[int, tuple[str, ...]]
    """Request -> functions that are there from it on."""

    @property
    def long_context(self) -> bool:
        return "long_context" in self.id


def entry(identifier: str) -> Entry:
    """
    Raises:
        ConfigurationError: no such entry, or the package is not installed.
    """
    category = identifier.removeprefix("multi_turn_").rpartition("_")[0]
    known = _entries(category) if category in CATEGORIES else {}
    if identifier not in known:
        examples = [f"multi_turn_{name}_0" for name in CATEGORIES]
        raise ConfigurationError(f"no BFCL entry {identifier!r}; {did_you_mean(identifier, known or examples)}")
    return known[identifier]


def identifiers(category: str) -> list[str]:
    """The ids of a category's entries, in the package's order.

    Raises:
        ConfigurationError: no such category, or the package is not installed.
    """
    if category not in CATEGORIES:
        raise ConfigurationError(f"no multi-turn category {category!r} in BFCL; {did_you_mean(category, CATEGORIES)}")
    return list(_entries(category))


@cache
def functions_of(kind: str) -> tuple[ToolSchema, ...]:
    """The functions of a class."""
    path = _data_folder() / "multi_turn_func_doc" / _DOCUMENTS[kind]
    return tuple(_schema(row) for row in _rows(path))


@cache
def _entries(category: str) -> dict[str, Entry]:
    name = f"BFCL_v4_multi_turn_{category}.json"
    answers = {row["id"]: row["ground_truth"] for row in _rows(_data_folder() / "possible_answer" / name)}
    return {row["id"]: _entry(row, answers[row["id"]]) for row in _rows(_data_folder() / name)}


def _entry(row: Mapping[str, Any], answer: list[list[str]]) -> Entry:
    return Entry(
        id=row["id"],
        classes=tuple(row["involved_classes"]),
        initial=row["initial_config"],
        requests=tuple(messages[0]["content"] if messages else None for messages in row["question"]),
        ground_truth=tuple(tuple(read_calls(code)[0] for code in calls) for calls in answer),
        held_back={int(turn): tuple(names) for turn, names in row.get("missed_function", {}).items()},
    )


def _schema(row: Mapping[str, Any]) -> ToolSchema:
    description = row["description"].partition("Tool description: ")[2]
    return ToolSchema(row["name"], description, _json_schema(row["parameters"]))


def _json_schema(given: Mapping[str, Any]) -> dict[str, Any]:
    schema = {**given, "type": _JSON_TYPES.get(given["type"], given["type"])}
    if "properties" in given:
        schema["properties"] = {name: _json_schema(value) for name, value in given["properties"].items()}
    if "items" in given:
        schema["items"] = _json_schema(given["items"])
    return schema


@cache
def _data_folder() -> Path:
    spec = find_spec("bfcl_eval")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(f"BFCL needs 'bfcl_eval': {INSTALL}")
    return Path(spec.submodule_search_locations[0]) / "data"


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)
