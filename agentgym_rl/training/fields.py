"""A mapping read from YAML -> a frozen dataclass, whose fields with their annotations say what is allowed.

What came out of a reference is text, so that a number may stand as text; a text that is no number is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

from agentgym_rl.errors import ConfigurationError, require_allowed_keys
from agentgym_rl.training.references import as_text

T = TypeVar("T")


def require_fields(kind: type, given: Mapping[str, Any], where: str) -> None:
    """Raise a ConfigurationError that names an unknown or a missing field."""
    names = [field.name for field in fields(kind)]
    require_allowed_keys(given, names, where)
    for field in fields(kind):
        if field.default is MISSING and given.get(field.name) is None:
            raise ConfigurationError(f"{where} needs {field.name!r}; given: {', '.join(given) or 'nothing'}")


def defaults(kind: type) -> dict[str, Any]:
    """The fields that need not be given."""
    return {field.name: field.default for field in fields(kind) if field.default is not MISSING}


def fill(kind: type[T], given: Mapping[str, Any], where: str) -> T:
    """Make the dataclass.

    Raises:
        ConfigurationError: a field has a value of another type.
    """
    hints = get_type_hints(kind)
    values = {}
    for name, value in given.items():
        allowed, read = _READERS[hints[name]]
        try:
            values[name] = value if value is None else read(value)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{where}: {name} must be {allowed}; given: {value!r}") from error
    return kind(**values)


def _text(value: Any) -> str:
    if not isinstance(value, str | int | float):
        raise TypeError
    return as_text(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool | float):
        raise TypeError
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


def _yes_or_no(value: Any) -> bool:
    text = _text(value)
    if text not in ("true", "false"):
        raise ValueError
    return text == "true"


def _texts(value: Any) -> tuple[str, ...]:
    """One text is a list of one."""
    return tuple(map(_text, value if isinstance(value, list | tuple) else [value]))


_READERS: dict[Any, tuple[str, Callable[[Any], Any]]] = {
    str: ("text", _text),
    str | None: ("text", _text),
    int: ("a whole number", _whole),
    int | None: ("a whole number", _whole),
    float | None: ("a number", _number),
    bool: ("true or false", _yes_or_no),
    tuple[str, ...]: ("text or a list of texts", _texts),
}
"""Annotation -> (what it takes, in words; reads it)."""
