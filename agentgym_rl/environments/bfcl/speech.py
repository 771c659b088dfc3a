"""How BFCL's functions are shown to a policy, and how its calls are read and written, in each format.

"python" is BFCL's own: `[cd(folder="docs"), ls()]`. The others are those of `agentgym_rl.tool_calls`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

from agentgym_rl.environments.bfcl.python_calls import Call, read_calls, write_calls
from agentgym_rl.environments.tool_replies import Told, result_messages, show_tools
from agentgym_rl.errors import ConfigurationError, DataError, did_you_mean
from agentgym_rl.messages import Message, ToolCall, user
from agentgym_rl.tool_calls import ToolFormat, parse_message, render_calls, render_tools
from agentgym_rl.tools import ToolSchema

FORMATS = ("python", *get_args(ToolFormat))

_PYTHON = (
    "To call functions, end your reply with a list of calls whose arguments are literals:\n"
    "[function_name(parameter=value, ...), ...]"
)


class Said(NamedTuple):
    """What a reply of the policy says."""

    calls: tuple[Call, ...] = ()
    problem: str = ""
    """Why it can't be understood; empty: it can. Without calls it is then an answer in words."""


def require_format(format: Any) -> None:
    """
    Raises:
        ConfigurationError: no such format.
    """
    if format not in FORMATS:
        raise ConfigurationError(f"no tool format {format!r} in BFCL; {did_you_mean(str(format), FORMATS)}")


def understood(reply: Message, format: str, functions: Sequence[ToolSchema]) -> Said:
    """Read a reply."""
    if format == "python" and not reply.tool_calls:
        return _python(reply.content)
    parsed = parse_message(reply, _tool_format(format), functions)
    if parsed.problem:
        return Said(problem=parsed.problem)
    if not parsed.calls and not parsed.content:
        return Said(problem=_NOTHING)
    return Said(tuple(Call(call.name, (), call.arguments) for call in parsed.calls))


def written(calls: Sequence[Call], format: str) -> str:
    """The reply that makes calls whose arguments all have names."""
    if format == "python":
        return write_calls(calls)
    return render_calls([ToolCall(call.name, call.named) for call in calls], _tool_format(format))


def told(instructions: str, functions: Sequence[ToolSchema], format: str) -> Told:
    """How a policy gets to know the functions at the start."""
    if format != "python":
        return show_tools(instructions, functions, _tool_format(format))
    return Told("\n\n".join([instructions, _signatures(functions), _PYTHON]), ())


def added(functions: Sequence[ToolSchema], format: str) -> str:
    """How a policy gets to know functions that were held back; empty: there are none."""
    if not functions or format == "python":
        return _signatures(functions) if functions else ""
    return render_tools(functions, _tool_format(format)) or "\n".join(json.dumps(f.to_chat()) for f in functions)


def answered(action: Message, results: Sequence[str], format: str) -> tuple[Message, ...]:
    """What the calls of an action came to."""
    if format == "python" and not action.tool_calls:
        return (user("\n".join(results)),)
    return result_messages(action, results, _tool_format(format))


_NOTHING = "the reply is empty; call a function, or answer in words"


def _python(text: str) -> Said:
    said = text.rpartition("</think>")[2].strip()
    if not said:
        return Said(problem=_NOTHING)
    try:
        return Said(read_calls(said))
    except DataError as error:
        return Said(problem=f"{error}\n{_PYTHON}")


def _tool_format(format: str) -> Any:
    """Calls that a server read need no format in text."""
    return "native" if format == "python" else format


def _signatures(functions: Sequence[ToolSchema]) -> str:
    return "\n".join(["Functions:", *map(_signature, functions)])


def _signature(function: ToolSchema) -> str:
    """`- name(parameter: type, other: type = default): description`, and a line for each parameter."""
    properties = function.parameters["properties"]
    shown = ", ".join(f"{name}: {_kind(schema)}{_default(schema)}" for name, schema in properties.items())
    lines = [f"- {function.name}({shown}): {function.description}"]
    lines += [f"    {name}: {schema['description']}" for name, schema in properties.items() if "description" in schema]
    return "\n".join(lines)


def _kind(schema: dict[str, Any]) -> str:
    return f"array of {schema['items']['type']}" if "items" in schema else schema["type"]


def _default(schema: dict[str, Any]) -> str:
    if "default" not in schema:
        return ""
    default = schema["default"]
    return f" = {None if default == 'None' else default!r}"  # as the package writes what is left out
