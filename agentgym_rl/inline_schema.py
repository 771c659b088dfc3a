"""A JSON schema without references: what `$ref` points at stands in its place.

Titles go too: pydantic makes them from the names, and they would only cost tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentgym_rl.errors import ConfigurationError

_OF_SCHEMAS = ("properties", "patternProperties", "dependentSchemas")
"""Keywords whose value maps names to schemas; a name there may be "title" or "$ref" itself."""
_VALUES = ("default", "enum", "const", "examples", "required")
"""Keywords whose value is data and no schema."""


def inlined(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The same schema with every reference to its `$defs` (or `definitions`) replaced.

    Args:
        schema: of a tool's arguments.
        name: of the tool, for the message.

    Raises:
        ConfigurationError: a definition contains itself, or a reference points elsewhere.
    """
    definitions = {
        f"#/{key}/{defined}": found
        for key in ("$defs", "definitions")
        for defined, found in schema.get(key, {}).items()
    }
    return _inline(schema, definitions, (), name)


def _inline(value: Any, definitions: Mapping[str, Any], inside: tuple[str, ...], name: str) -> Any:
    if isinstance(value, list):
        return [_inline(item, definitions, inside, name) for item in value]
    if not isinstance(value, Mapping):
        return value
    reference = value.get("$ref")
    if reference is not None:
        if reference not in definitions or reference in inside:
            why = "contains itself" if reference in inside else "is not defined in it"
            raise ConfigurationError(f"the schema of tool {name!r} can't be written out: {reference} {why}")
        inside = (*inside, reference)
        value = {**definitions[reference], **{key: item for key, item in value.items() if key != "$ref"}}
    result = {}
    for key, item in value.items():
        if key in _VALUES:
            result[key] = item
        elif key in _OF_SCHEMAS:
            result[key] = {inner: _inline(found, definitions, inside, name) for inner, found in item.items()}
        elif key not in ("title", "$defs", "definitions"):
            result[key] = _inline(item, definitions, inside, name)
    return result
