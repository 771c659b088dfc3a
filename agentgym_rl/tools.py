"""A tool: its name, its description and the JSON schema of its parameters, and a call that answers.

Invariant: whatever arguments a policy gives, the call answers with a `ToolResult`; a call that can't be carried out is
a result that says what was wrong, given and allowed. Only what the policy is not to blame for raises: the tool's own
code crashed, or its deadline passed (`ToolFailed`). A tool that wants to say no raises `ToolError`: that is a result.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agentgym_rl.errors import AgentGymError, ConfigurationError, ToolFailed, boundary
from agentgym_rl.own_thread import OwnThread

CALL_SECONDS = 20.0
"""Deadline of a call that names none; below that of an environment's step, so that the tool is named."""


class ToolError(AgentGymError):
    """What a tool raises to answer a call that can't be carried out ("no such file"); its text is the result."""


class WrongCall(ToolError):
    """The arguments don't fit the tool's parameters."""


TOOL_ERRORS = "tool_errors"
"""In a step's `info`: how many of its calls came back with an error, where the environment tells."""


@dataclass(frozen=True)
class ToolResult:
    """What a call answers."""

    text: str
    is_error: bool = False
    """The call was wrong, or the tool said no."""
    is_wrong_call: bool = False
    """The arguments did not fit the tool's parameters; an error, too."""


@dataclass(frozen=True)
class ToolSchema:
    """What a policy is told about a tool."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments: an object, without references."""

    def to_chat(self) -> dict[str, Any]:
        """The dictionary that chat templates and OpenAI-compatible servers take in `tools`."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class Tool(ToolSchema):
    """A tool that can be called."""

    answer: Callable[[Mapping[str, Any]], Awaitable[ToolResult]]
    """Validates the arguments and carries the call out; raises `WrongCall` or `ToolError` to refuse it."""

    @classmethod
    def from_function(
        cls, function: Callable[..., Any], name: str = "", expected: tuple[type[Exception], ...] = ()
    ) -> Tool:
        """A tool made from a function's signature and docstring.

        The first paragraphs of the docstring are the tool's description; its Google-style section "Args:" describes the
        parameters. Defaults, enums and nested types (pydantic models, dataclasses, typed dictionaries) are part of the
        schema. An ordinary function runs on a thread of its own; one that is `async` is awaited.

        Args:
            function: with a type hint for every parameter; a bound method will do. What it returns is the result: text
                as it is, None as "done", any other value as JSON.
            name: of the tool; empty: the function's own.
            expected: exceptions that are results like `ToolError`, for code that knows nothing of this package.

        Raises:
            ConfigurationError: a parameter has no type hint or no name, or its type has no JSON schema.
        """
        from agentgym_rl.tool_arguments import Arguments  # pydantic: only where tools are made

        arguments = Arguments.of(function, name or function.__name__)

        async def answer(given: Mapping[str, Any]) -> ToolResult:
            call = functools.partial(function, **arguments.validate(given))
            try:
                value = await (call() if inspect.iscoroutinefunction(function) else _on_a_thread(call, arguments.name))
            except expected as error:
                raise ToolError(f"{type(error).__name__}: {error}") from error
            return value if isinstance(value, ToolResult) else ToolResult(arguments.to_text(value))

        return cls(arguments.name, arguments.description, arguments.schema, answer)

    async def call(self, arguments: Mapping[str, Any], timeout_seconds: float = CALL_SECONDS) -> ToolResult:
        """Carry a call out.

        Raises:
            ToolFailed: the tool's own code raised what is not its answer, or was late.
        """
        try:
            return await boundary(self.answer(arguments), ToolFailed, f"tool {self.name!r}", timeout_seconds)
        except ToolError as refusal:
            return ToolResult(str(refusal), is_error=True, is_wrong_call=isinstance(refusal, WrongCall))


def require_unique(names: list[str]) -> None:
    """
    Raises:
        ConfigurationError: two tools have one name.
    """
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"{names.count(name)} tools are called {name!r}; a tool's name must be its own")


async def _on_a_thread(call: Callable[[], Any], name: str) -> Any:
    thread = OwnThread(f"tool {name}", ToolFailed)
    try:
        return await thread.run(call)
    finally:
        thread.stop()
