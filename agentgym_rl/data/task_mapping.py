"""A table's columns -> the fields of a task: which column is what, declared and not guessed.

    columns:
      id: question_id
      arguments.question: question
      arguments.options: options:json        # the cell holds JSON text
      reference_answer: answer.text          # a field of an object in the column `answer`
    constants:
      environment: my_shop:Prices
      arguments.max_turns: 8

A mapping of constants alone is for what are tasks already: it changes these fields of each. A field that is not mapped,
or null, keeps its default. A number is taken as an id, and text as a seed, where it is one;
nothing else is converted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from agentgym_rl.errors import ConfigurationError, DataError, did_you_mean
from agentgym_rl.task import Task

FIELDS = tuple(one.name for one in fields(Task))
PREFIX = "arguments."
JSON = ":json"
NEEDED = ("id", "environment")


@dataclass(frozen=True)
class TaskMapping:
    """Where each field of a task comes from; `arguments.NAME` is a field too."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Field -> column; "a.b" is the field b of the object in column a; ":json" behind it: the cell is JSON text."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Field -> its value in every task."""

    def __post_init__(self) -> None:
        for name in [*self.columns, *self.constants]:
            if name not in FIELDS and not name.startswith(PREFIX):
                known = did_you_mean(name, [*FIELDS, f"{PREFIX}NAME"])
                raise ConfigurationError(f"a task has no field {name!r}; {known}")
        both = self.columns.keys() & self.constants.keys()
        if both:
            raise ConfigurationError(f"{sorted(both)[0]!r} is mapped to a column and to a constant")
        for name in NEEDED:
            if self.columns and name not in self.columns and name not in self.constants:
                maps = ", ".join([*self.columns, *self.constants]) or "nothing"
                raise ConfigurationError(f"a mapping must say where a task's {name!r} comes from; it maps {maps}")

    @classmethod
    def read(cls, path: str | Path) -> TaskMapping:
        """The mapping in a YAML file with `columns` and `constants`.

        Raises:
            ConfigurationError: there is none, or it says something else.
        """
        import yaml

        try:
            given = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ConfigurationError(f"there is no file {path}") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path} is no YAML: {error}") from error
        parts = given if isinstance(given, dict) else {}
        known = parts and set(parts) <= {"columns", "constants"}
        if not known or not all(isinstance(part, dict) for part in parts.values()):
            raise ConfigurationError(f"{path} must hold the mappings `columns` and `constants`; given: {given!r}")
        return cls({name: str(column) for name, column in parts.get("columns", {}).items()}, parts.get("constants", {}))

    def named_like(self, names: Sequence[str]) -> TaskMapping:
        """The same constants, and otherwise the columns that are named like the fields."""
        return TaskMapping({name: name for name in names if name not in self.constants}, self.constants)

    def over(self, task: Task) -> Task:
        """The task with these constants.

        Raises:
            DataError: a value is none that a task can have.
        """
        given, inside = _sorted_out(self.constants.items())
        arguments = {**_object(given.get("arguments", task.arguments)), **inside}
        return replace(task, **{**given, "arguments": arguments})

    def task(self, row: Mapping[str, Any]) -> Task:
        """The task of a row.

        Raises:
            DataError: a column is missing or empty, or a value is none that a task can have.
        """
        cells = [(name, _cell(row, column)) for name, column in self.columns.items()]
        given, inside = _sorted_out([*self.constants.items(), *cells])
        for name in NEEDED:
            if name not in given:
                raise DataError(f"{name} is empty (column {self.columns.get(name)!r})")
        if inside:
            given["arguments"] = {**_object(given.get("arguments", {})), **inside}
        return Task(**given)


def _cell(row: Mapping[str, Any], column: str) -> Any:
    name = column.removesuffix(JSON)
    value = _inside(row, name)
    if name == column or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise DataError(f"column {name!r} holds no JSON ({error}); given: {value[:80]!r}") from error


def _inside(row: Mapping[str, Any], name: str) -> Any:
    """A column of that very name, or a field of the object in the column before the first dot."""
    if name in row:
        return row[name]
    head, dot, rest = name.partition(".")
    if dot and isinstance(row.get(head), Mapping):
        return _inside(row[head], rest)
    raise DataError(f"there is no column {name!r}; {did_you_mean(name, row)}")


def _sorted_out(values: Iterable[tuple[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of a task, and single arguments; a null is none."""
    given: dict[str, Any] = {}
    inside: dict[str, Any] = {}
    for name, value in values:
        if value is None:
            continue
        _require_json(name, value)
        if name.startswith(PREFIX):
            inside[name.removeprefix(PREFIX)] = value
        else:
            given[name] = _converted(name, value)
    return given, inside


def _require_json(name: str, value: Any) -> None:
    """Raise a DataError where a value is none that a task can hold, such as a time or bytes of a parquet file."""
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be a JSON value ({error}); given: {value!r:.80}") from error


def _converted(name: str, value: Any) -> Any:
    if name == "id" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if name == "seed" and isinstance(value, str):
        try:
            return int(value)
        except ValueError as error:
            raise DataError(f"a task's seed must be a whole number; given: {value!r}") from error
    return value


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise DataError(f"a task's arguments must be an object; given: {value!r}")
    return value
