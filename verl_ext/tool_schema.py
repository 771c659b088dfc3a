"""A tool's whole JSON schema behind verl's schema class.

verl's own (verl/tools/schemas.py) keeps a parameter's type, description and enum: what is nested, `items`, `default`,
`anyOf` and bounds would never reach the prompt. Here its fields stay readable to verl's code, while what goes into the
prompt (`model_dump`) is the schema as it was given.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import PrivateAttr
from verl.tools.schemas import OpenAIFunctionToolSchema

from agentgym_rl.tools import ToolSchema


class WholeToolSchema(OpenAIFunctionToolSchema):
    """Made by `of`."""

    _chat: dict[str, Any] = PrivateAttr(default_factory=dict)

    @classmethod
    def of(cls, schema: ToolSchema) -> WholeToolSchema:
        chat = copy.deepcopy(schema.to_chat())
        properties = {name: _readable(of) for name, of in schema.parameters.get("properties", {}).items()}
        parameters = {"type": "object", "required": schema.parameters.get("required", []), "properties": properties}
        function = {"name": schema.name, "description": schema.description, "parameters": parameters}
        made = cls.model_validate({"type": "function", "function": function})
        made._chat = chat
        return made

    def model_dump(self, *_: Any, **__: Any) -> dict[str, Any]:
        """The schema as it was given, whatever is asked to be left out: a default of null is part of it."""
        return copy.deepcopy(self._chat)


def tool_schema(schema: OpenAIFunctionToolSchema) -> ToolSchema:
    """A schema of verl's as ours."""
    function = schema.model_dump(exclude_unset=True, exclude_none=True)["function"]
    return ToolSchema(function["name"], function["description"], function.get("parameters", {}))


def _readable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter in verl's words, which need a type."""
    kind = schema.get("type") or [choice["type"] for choice in schema.get("anyOf", ()) if "type" in choice]
    return {
        "type": kind or "string",
        "description": schema.get("description"),
        "enum": schema.get("enum"),
    }
