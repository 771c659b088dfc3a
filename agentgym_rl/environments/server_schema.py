"""What a server's JSON schema says of a value, so that the schema can't harm who reads it.

Its references lead to places in itself, and no other address is asked. What regular expressions decide is left to the
server: one may take for ever, and no other thread runs meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from agentgym_rl.errors import DataError

_REFERENCES = ("$ref", "$dynamicRef")
_OF_EXPRESSIONS = ("pattern", "patternProperties", "unevaluatedProperties")
"""Keywords that need regular expressions; `additionalProperties` does beside `patternProperties`."""


def validator_of(schema: Mapping[str, Any]) -> Any:
    """jsonschema's validator (draft 2020-12) of a schema, without regular expressions and other addresses."""
    import referencing

    return _kind()({key: of for key, of in schema.items() if key != "$schema"}, registry=referencing.Registry())


def require_sound(schema: Mapping[str, Any]) -> None:
    """Every part of a schema is one, and every reference leads to one.

    Raises:
        DataError: it is not so.
    """
    from jsonschema import Draft202012Validator, SchemaError
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    try:
        Draft202012Validator.check_schema(schema)
        root = DRAFT202012.create_resource({key: of for key, of in schema.items() if key != "$schema"})
        waiting, seen = [(root, Registry().resolver_with_root(root))], set()
        while waiting:
            part, resolver = waiting.pop()
            given = part.contents
            if not isinstance(given, Mapping) or id(given) in seen:
                continue
            if "$schema" in given:
                raise DataError(f"a part of it has a '$schema' of its own: {given['$schema']!r:.200}")
            seen.add(id(given))
            waiting += [(inner, resolver.in_subresource(inner)) for inner in part.subresources()]
            for reference in (given[name] for name in _REFERENCES if name in given):
                try:
                    found = resolver.lookup(reference)
                except (Unresolvable, ValueError, TypeError) as error:
                    raise DataError(f"{reference!r:.200} is not defined in it") from error
                Draft202012Validator.check_schema(found.contents)
                waiting.append((DRAFT202012.create_resource(found.contents), found.resolver))
    except SchemaError as error:
        raise DataError(f"{error.message:.200}") from error


@cache
def _kind() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    stock = Draft202012Validator.VALIDATORS["additionalProperties"]

    def additional(validator: Any, value: Any, given: Any, schema: Mapping[str, Any]) -> Any:
        return () if "patternProperties" in schema else stock(validator, value, given, schema)

    unchecked = dict.fromkeys(_OF_EXPRESSIONS, lambda *_: ())
    return extend(Draft202012Validator, {**unchecked, "additionalProperties": additional})
