"""A function's parameters as a JSON schema and as a check of what a policy gave for them.

Invariant: schema and check come from one pydantic model, so what the schema allows is what the check lets through. The
schema holds no references, which chat templates and many parsers of tool schemas don't follow.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

import pydantic

from agentgym_rl.errors import ConfigurationError, did_you_mean
from agentgym_rl.inline_schema import inlined
from agentgym_rl.tool_docstring import read_docstring
from agentgym_rl.tools import WrongCall

_SHOWN = 80
"""Characters of a wrong name or value that its message shows."""
_PROBLEMS = 5
"""How many of the things that are wrong are named."""
_ANYTHING = pydantic.TypeAdapter(Any)
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _SHOWN


@dataclass(frozen=True)
class Arguments:
    """What a function may be called with."""

    name: str
    description: str
    schema: Mapping[str, Any]
    _model: type[pydantic.BaseModel]

    @classmethod
    def of(cls, function: Callable[..., Any], name: str) -> Arguments:
        """Read a function's signature and docstring.

        Raises:
            ConfigurationError: a parameter has no type hint or no name, or its type has no JSON schema.
        """
        docstring = read_docstring(inspect.getdoc(function) or "")
        parameters = _parameters(function, name)
        strangers = set(docstring.arguments) - set(parameters)
        if strangers:
            raise ConfigurationError(
                f"the docstring of tool {name!r} describes {sorted(strangers)[0]!r}, which is no parameter of it; "
                f"{did_you_mean(sorted(strangers)[0], parameters)}"
            )
        try:
            model = _model(parameters, docstring.arguments)
            schema = inlined(model.model_json_schema(by_alias=True), name)
        except pydantic.errors.PydanticUserError as error:
            raise ConfigurationError(f"the parameters of tool {name!r} have no JSON schema: {error}") from error
        return cls(name, docstring.description, {"type": "object", "properties": {}, **schema}, model)

    def validate(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with the types that the function asks for.

        Raises:
            WrongCall: they don't fit; says each thing that is wrong, and what the tool takes.
        """
        try:
            model = self._model.model_validate(given)
        except pydantic.ValidationError as error:
            details = error.errors(include_url=False)
            wrong = "; ".join([self._explained(detail) for detail in details[:_PROBLEMS]])
            more = f"; and {len(details) - _PROBLEMS} more" if len(details) > _PROBLEMS else ""
            raise wrong_call(self.name, f"{wrong}{more}", self.schema) from error
        return {
            field.alias or "": getattr(model, key)
            for key, field in type(model).model_fields.items()
            if key in model.model_fields_set
        }

    def to_text(self, value: Any) -> str:
        """What a function returned, as a result's text."""
        if value is None:
            return "done"
        return value if isinstance(value, str) else _ANYTHING.dump_json(value).decode()

    def _explained(self, detail: Any) -> str:
        where = ".".join(map(str, detail["loc"]))[:_SHOWN]
        if not where:
            return f"the arguments must be an object; given: {_SHORT.repr(detail['input'])}"
        if detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1:
            return f"there is no parameter {where!r} ({did_you_mean(where, self.schema['properties'])})"
        if detail["type"] == "missing":
            return f"{where} is missing"
        return f"{where}: {detail['msg']}; given: {_SHORT.repr(detail['input'])}"


def wrong_call(name: str, wrong: str, schema: Mapping[str, Any]) -> WrongCall:
    """What a call is refused with: what was wrong with it, and what its tool takes."""
    required = schema.get("required", ())
    allowed = [
        f"{parameter} ({_kind(of)}{'' if parameter in required else ', optional'})"
        for parameter, of in schema.get("properties", {}).items()
    ]
    return WrongCall(f"{name} was called wrongly: {wrong}. It takes: {', '.join(allowed) or 'no arguments'}")


def _parameters(function: Callable[..., Any], name: str) -> dict[str, tuple[Any, Any]]:
    """Type hint and default (`...`: it has none) of each parameter."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise ConfigurationError(f"the type hints of tool {name!r} can't be read: {error}") from error
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigurationError(f"every parameter of tool {name!r} must have a name; given: {parameter}")
        if parameter.name not in hints:
            raise ConfigurationError(f"the parameter {parameter.name!r} of tool {name!r} needs a type hint")
        default = ... if parameter.default is parameter.empty else parameter.default
        found[parameter.name] = (hints[parameter.name], default)
    return found


def _model(parameters: Mapping[str, tuple[Any, Any]], descriptions: Mapping[str, str]) -> type[pydantic.BaseModel]:
    """Its fields are numbered and known by their aliases, as a parameter may have a name that a model's method has."""
    fields: dict[str, Any] = {
        f"argument_{index}": (kind, pydantic.Field(default, alias=name, description=descriptions.get(name)))
        for index, (name, (kind, default)) in enumerate(parameters.items())
    }
    return pydantic.create_model("Arguments", __config__=pydantic.ConfigDict(extra="forbid"), **fields)


def _kind(schema: Mapping[str, Any]) -> str:
    """A schema in a few words."""
    if "enum" in schema:
        return "one of " + ", ".join(map(repr, schema["enum"]))
    if "const" in schema:
        return repr(schema["const"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(map(_kind, schema[key]))
    kind = schema.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array" and "items" in schema:
        return f"array of {_kind(schema['items'])}"
    if kind == "object" and schema.get("properties"):
        return "object with " + ", ".join(schema["properties"])
    return kind
