"""How a policy's reply becomes an action of an OpenEnv server: by the JSON schema that the server gives of its actions.

An action with a single field of text is the reply itself; any other is the reply's JSON object, checked against the
schema, but for its formats and regular expressions. What does not fit is never sent: a server that can't read an action
may end the session. The field `metadata`, which every OpenEnv action has, is no matter of the policy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from agentgym_rl.environments.server_schema import require_sound, validator_of
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed
from agentgym_rl.inline_schema import inlined

ACTION_CHARACTERS = 10**6
"""A longer reply is refused; servers cut a connection at 16 MB."""
_COMPLAINTS = 3
"""How many of the things that are wrong are named."""
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


class NoAction(Exception):
    """The reply is no action; the message says why, and what is allowed."""


@dataclass(frozen=True)
class Actions:
    """What may be said to a server."""

    schema: Mapping[str, Any]
    field: str | None
    """The only field, which holds text; None: there are others, and the reply is JSON."""

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> Actions:
        """Read a server's schema of its actions.

        Raises:
            EnvironmentFailed: it is no JSON schema of objects, or it refers to what is not in it.
            ConfigurationError: jsonschema is not installed.
        """
        try:
            require_sound(schema)
        except DataError as error:
            raise EnvironmentFailed(f"the server's schema of actions is malformed: {error}") from error
        except ModuleNotFoundError as error:
            raise ConfigurationError(f'OpenEnv needs {error.name!r}: pip install "openmanus-rl[openenv]"') from error
        with suppress(ConfigurationError):  # it contains itself, and is shown with its references
            schema = inlined(schema, "action")
        fields = {name: of for name, of in schema.get("properties", {}).items() if name != "metadata"}
        texts = [name for name, of in fields.items() if isinstance(of, Mapping) and _is_text(of)]
        return cls({**schema, "properties": fields}, texts[0] if texts and len(fields) == 1 else None)

    @property
    def instructions(self) -> str:
        """How to answer."""
        if self.field is None:
            return f"Answer with a JSON object that fits this schema: {self._shown(self.schema)}"
        of = dict(self.schema["properties"][self.field])
        told = of.pop("description", "")
        fits = {name: value for name, value in of.items() if name not in ("type", "title", "default")}
        return " ".join(
            [
                f"Your whole answer is the action's {self.field}" + (f": {told}." if told else "."),
                *([f"It must fit this schema: {self._shown(fits)}"] if fits else []),
            ]
        )

    def read(self, text: str) -> dict[str, Any]:
        """The action in a reply.

        Raises:
            NoAction: there is none, or it does not fit the schema.
        """
        if len(text) > ACTION_CHARACTERS:
            raise self._refused(f"it has {len(text)} characters, more than {ACTION_CHARACTERS}")
        action = {self.field: text.strip()} if self.field is not None else self._parsed(text)
        try:
            json.dumps(action, ensure_ascii=False, allow_nan=False).encode()
            found = validator_of(self.schema).iter_errors(action)
            wrong = [_complaint(error) for error in islice(found, _COMPLAINTS)]
        except (ValueError, RecursionError, OverflowError) as error:  # infinity, half of a character, too deep
            raise self._refused(f"it can't be written as JSON ({error})") from error
        if wrong:
            raise self._refused("; ".join(wrong))
        return action

    def _parsed(self, text: str) -> dict[str, Any]:
        """The whole reply, or its last fenced block."""
        for candidate in (text, *reversed(_FENCED.findall(text))):
            with suppress(ValueError, RecursionError):
                if isinstance(found := json.loads(candidate), dict):
                    return found
        raise self._refused("it is no JSON object")

    def _refused(self, why: str) -> NoAction:
        return NoAction(f"Not an action: {why}. {self.instructions}")

    def _shown(self, schema: Mapping[str, Any]) -> str:
        return json.dumps(schema, ensure_ascii=False)


def _is_text(schema: Mapping[str, Any]) -> bool:
    kinds = [option.get("type") for option in schema.get("anyOf", [schema]) if isinstance(option, Mapping)]
    return "string" in kinds and all(kind in ("string", "null") for kind in kinds)


def _complaint(error: Any) -> str:
    where = ".".join(map(str, error.absolute_path))
    message = error.message if len(error.message) <= 200 else f"{error.message[:200]}..."
    return f"{where}: {message}" if where else message
