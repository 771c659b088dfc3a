"""The words in braces that a plan's values may hold.

`{name}` stands for a text; a name is lower case letters, digits, `_` and `-`, and begins with a letter. That is all of
the language: whatever else stands in braces (`{max_turns: 8}`, `{}`), and `${name}`, which is the shell's and hydra's,
stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from agentgym_rl.errors import ConfigurationError, did_you_mean

NAME = re.compile(r"[a-z][a-z0-9_-]*")
_REFERENCE = re.compile(rf"(?<!\$)\{{({NAME.pattern})\}}")


def substitute(value: Any, known: Mapping[str, str], where: str, why: Callable[[str], str] | None = None) -> Any:
    """The same value with every reference replaced, in lists too; what is no text stays as it is.

    Args:
        value: of a field or variable.
        known: name -> what it stands for.
        where: begins the error's message.
        why: says of a name why it stands for nothing; the message ends with it.

    Raises:
        ConfigurationError: a reference to nothing.
    """
    if isinstance(value, list):
        return [substitute(item, known, where, why) for item in value]
    if not isinstance(value, str):
        return value

    def text_of(match: re.Match[str]) -> str:
        if match[1] not in known:
            reason = (why(match[1]) if why else "") or did_you_mean(match[1], known)
            raise ConfigurationError(f"{where}: there is no {match[0]} here; {reason}")
        return known[match[1]]

    return _REFERENCE.sub(text_of, value)


def resolve_variables(variables: Mapping[str, Any]) -> dict[str, str]:
    """Every variable as text; one may refer to others.

    Raises:
        ConfigurationError: a name or value that can't be one, a reference to no variable, or a circle of references.
    """
    for name, value in variables.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ConfigurationError(f"a variable's name is lower case, such as max_turns; given: {name!r}")
        if not isinstance(value, str | int | float):
            raise ConfigurationError(f"variable {name!r} must be text, a number, true or false; given: {value!r}")
    resolved: dict[str, str] = {}
    for name in variables:
        _resolve(name, variables, resolved, ())
    return resolved


def as_text(value: str | int | float) -> str:
    """As it stands in YAML and on a command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _resolve(name: str, variables: Mapping[str, Any], resolved: dict[str, str], path: tuple[str, ...]) -> None:
    if name in path:
        circle = " -> ".join([*path[path.index(name) :], name])
        raise ConfigurationError(f"variables refer to each other in a circle: {circle}")
    if name in resolved:
        return
    text = as_text(variables[name])
    for reference in _REFERENCE.findall(text):
        if reference in variables:
            _resolve(reference, variables, resolved, (*path, name))
    resolved[name] = substitute(text, resolved, f"variable {name!r}")
