"""What crosses the pipe between a `ProcessEnvironment` and its worker: one JSON object a line.

A request is `{"method": ..., "argument": ...}`; its answer is `{"result": ...}` or `{"error": ...}`. Everything that an
environment's methods take or give has one codec here, so both ends read the same table.
"""

from __future__ import annotations

import base64
import json
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from agentgym_rl.environment import BlockingEnvironment, Environment, Facts, StepResult
from agentgym_rl.errors import (
    AgentGymError,
    BoundaryError,
    BudgetExhausted,
    ConfigurationError,
    DataError,
    EnvironmentFailed,
    JudgeFailed,
    Manner,
    PolicyFailed,
    ToolFailed,
)
from agentgym_rl.messages import Message
from agentgym_rl.task import Task
from agentgym_rl.tools import ToolSchema

_OWN_ERRORS: dict[str, type[AgentGymError]] = {
    kind.__name__: kind
    for kind in (
        ConfigurationError,
        DataError,
        BudgetExhausted,
        EnvironmentFailed,
        ToolFailed,
        JudgeFailed,
        PolicyFailed,
    )
}


class RemoteTraceback(Exception):
    """The worker's traceback, as the cause of the error that is raised on this side."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Hello(NamedTuple):
    """What a worker says once its environment is made, and again after each reset."""

    facts: Facts
    instructions: str
    tools: tuple[ToolSchema, ...] = ()

    @classmethod
    def of(cls, environment: Environment | BlockingEnvironment) -> Hello:
        schemas = (ToolSchema(tool.name, tool.description, tool.parameters) for tool in environment.tools)
        return cls(environment.facts, environment.instructions, tuple(schemas))  # what else a tool has can't cross


class Codec(NamedTuple):
    """To a JSON value and back."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def _encode_hello(hello: Hello) -> dict[str, Any]:
    return {
        "facts": asdict(hello.facts),
        "instructions": hello.instructions,
        "tools": [(tool.name, tool.description, dict(tool.parameters)) for tool in hello.tools],
    }


def _decode_hello(row: dict[str, Any]) -> Hello:
    facts = row["facts"] | {"reward_range": tuple(row["facts"]["reward_range"])}
    return Hello(Facts(**facts), row["instructions"], tuple(ToolSchema(*tool) for tool in row["tools"]))


def _encode_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [message.to_chat() for message in messages]


def _decode_messages(rows: list[dict[str, Any]]) -> tuple[Message, ...]:
    return tuple(Message.from_chat(row) for row in rows)


def _encode_step(result: StepResult) -> dict[str, Any]:
    return {
        "observation": _encode_messages(result.observation),
        "reward": float(result.reward),
        "terminated": result.terminated,
        "truncated": result.truncated,
        "success": result.success,
        "valid": result.valid,
        "info": dict(result.info),
    }


def _decode_step(row: dict[str, Any]) -> StepResult:
    return StepResult(**row | {"observation": _decode_messages(row["observation"])})


_NOTHING = Codec(lambda _: None, lambda _: None)
_AS_IT_IS = Codec(lambda value: value, lambda value: value)
_BYTES = Codec(lambda data: base64.b64encode(data).decode(), base64.b64decode)
_MESSAGES = Codec(_encode_messages, _decode_messages)
_STEP = Codec(_encode_step, _decode_step)

HELLO = Codec(_encode_hello, _decode_hello)
ARGUMENTS: dict[str, Codec] = {
    "reset": Codec(Task.to_json, Task.from_json),
    "step": Codec(Message.to_chat, Message.from_chat),
    "restore": _BYTES,
}
"""Of the methods that take one."""
BEGINNINGS = ("reset", "restore")
"""Methods whose answer comes with a new `hello`."""
RESULTS: dict[str, Codec] = {
    "reset": _MESSAGES,
    "step": _STEP,
    "expert_action": _AS_IT_IS,
    "actions": Codec(list, list),
    "snapshot": _BYTES,
    "restore": _NOTHING,
    "close": _NOTHING,
}


def to_line(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode() + b"\n"


def encode_error(error: Exception) -> dict[str, Any]:
    return {
        "type": type(error).__name__,
        "message": str(error),
        "manner": error.manner.value if isinstance(error, BoundaryError) else None,
        "traceback": "".join(traceback.format_exception(error)),
    }


def decode_error(row: dict[str, Any], what: str) -> AgentGymError:
    """This package's errors as they were raised; any other one as `EnvironmentFailed`."""
    kind = _OWN_ERRORS.get(row["type"])
    if kind is None:
        error: AgentGymError = EnvironmentFailed(f"{what} raised {row['type']}: {row['message']}")
    elif issubclass(kind, BoundaryError):
        error = kind(row["message"], Manner(row["manner"]))
    else:
        error = kind(row["message"])
    error.__cause__ = RemoteTraceback(row["traceback"])
    return error
