"""A document of the Agent Trajectory Interchange Format (ATIF) -> Trajectory.

A result of a call is the tool's message, any other result the user's. Reasoning stands before the reply as `<think>`,
the way chat templates write it. A step that was copied from another trajectory, or that no model said, is not trained.
Without `openmanus_rl` in its `extra` objects (`atif_write.py`) rewards are 0 and the outcome is unknown. Images, and a
context that was replaced midway, have no place in a trajectory and are refused; subagents are documents of their own
and are not read. Fields that the format does not name are passed over.

Source: ATIF-v1.7, https://github.com/harbor-framework/harbor/blob/main/rfcs/0001-trajectory-format.md
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentgym_rl.data.atif_write import OURS
from agentgym_rl.data.reasoning import with_reasoning
from agentgym_rl.data.sft_parquet import TRAINED
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message, ToolCall, assistant, user
from agentgym_rl.policy import Reply, SampledTokens
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn

VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(8))
SOURCES = ("system", "user", "agent")


def is_atif(document: Mapping[str, Any]) -> bool:
    """Whether it says so, in whatever version."""
    return str(document.get("schema_version")).startswith("ATIF")


def task_of(document: Mapping[str, Any]) -> Task | None:
    """The task of a document that `to_atif` made; None: another's."""
    given = _ours(document).get("task")
    try:
        return Task(**given) if given is not None else None
    except TypeError as error:
        raise DataError(f"extra.{OURS}.task is no task: {given!r}") from error


def from_atif(document: Mapping[str, Any], task: Task) -> Trajectory:
    """Read a document as an episode of that task.

    Raises:
        DataError: another version, a step that breaks the format (named by its number), no step of an agent, or what
            a trajectory has no place for.
    """
    if document.get("schema_version") not in VERSIONS:
        known = f"{VERSIONS[0]} to {VERSIONS[-1]}"
        raise DataError(f"versions that can be read are {known}; given: {document.get('schema_version')!r}")
    opening: list[Message] = []
    turns: list[Turn] = []
    for number, step in enumerate(_typed(document, "steps", list), start=1):
        try:
            said = _read(step, number)
        except DataError as error:
            raise DataError(f"step {number}: {error}") from error
        if isinstance(said, Turn):
            turns.append(said)
        elif turns:
            turns[-1] = replace(turns[-1], observation=(*turns[-1].observation, *said))
        else:
            opening += said
    ours = _ours(document)
    if not turns and "stop" not in ours:
        raise DataError("no step has the source 'agent'")
    return _trajectory(task, opening, turns, ours)


def _trajectory(task: Task, opening: list[Message], turns: list[Turn], ours: Mapping[str, Any]) -> Trajectory:
    try:
        stop, failure = StopReason(ours.get("stop", "terminated")), ours.get("failure")
        return Trajectory(
            task,
            tuple(opening),
            tuple(turns),
            stop,
            ours.get("success"),
            Failure(**failure) if failure else None,
            ours.get("fingerprint", ""),
        )
    except (TypeError, ValueError) as error:
        raise DataError(f"extra.{OURS} can't be read: {error}") from error


def _read(step: Any, number: int) -> Turn | list[Message]:
    if not isinstance(step, Mapping):
        raise DataError(f"a step is an object; given: {step!r}")
    if step.get("step_id") != number:
        raise DataError(f"its step_id must be {number}; given: {step.get('step_id')!r}")
    source = step.get("source")
    if source not in SOURCES:
        raise DataError(f"its source must be one of {', '.join(SOURCES)}; given: {source!r}")
    if source == "agent":
        return _turn(step)
    if step.get("tool_calls"):
        raise DataError(f"only an agent calls tools; given: source {source!r}")
    if _object(_object(step, "extra"), "context_management").get("boundary") == "replace":
        raise DataError("it replaces the context; a trajectory is one conversation that only grows")
    message = Message("system" if source == "system" else "user", _text(step, "message"))
    return [message, *_results(step, ())]


def _turn(step: Mapping[str, Any]) -> Turn:
    ours = _ours(step)
    calls = tuple(_call(call) for call in step.get("tool_calls") or ())
    content = with_reasoning(_text(step, "message"), _reasoning(step))
    not_said = step.get("is_copied_context") is True or step.get("llm_call_count") == 0
    return Turn(
        Reply(assistant(content, calls), ours.get("complete", True), _tokens(step)),
        tuple(_results(step, calls)),
        ours.get("reward", 0.0),
        ours.get("valid", True),
        ours.get("policy_seconds", 0.0),
        ours.get("environment_seconds", 0.0),
        ours.get("info", {TRAINED: False} if not_said else {}),
    )


def _reasoning(step: Mapping[str, Any]) -> str | None:
    return None if step.get("reasoning_content") is None else _typed(step, "reasoning_content", str)


def _call(call: Any) -> ToolCall:
    id, name = _typed(call, "tool_call_id", str), _typed(call, "function_name", str)
    return ToolCall(name, _typed(call, "arguments", dict), _ours(call).get("id", id))


def _results(step: Mapping[str, Any], calls: tuple[ToolCall, ...]) -> list[Message]:
    """A result whose call is not of this step is the user's message, like one of no call."""
    observation = step.get("observation")
    if observation is None:
        return []
    ids = [call.id for call in calls]
    return [_result(result, ids) for result in _typed(observation, "results", list)]


def _result(result: Any, ids: list[str]) -> Message:
    subagents = isinstance(result, Mapping) and result.get("subagent_trajectory_ref")
    content = "" if subagents and result.get("content") is None else _text(result, "content")
    if result.get("source_call_id") in ids:
        return Message("tool", content, tool_call_id=result["source_call_id"])
    ours = _ours(result)
    return Message.from_chat({**ours, "content": content}) if "role" in ours else user(content)


def _tokens(step: Mapping[str, Any]) -> SampledTokens | None:
    """Ids without the log-prob of each, or of several calls of a model together, are not those of one reply.

    Where others took calls or reasoning out of a reply, nobody knows what its ids read.
    """
    taken_out = step.get("tool_calls") or step.get("reasoning_content") is not None
    if taken_out and not _ours(step):
        return None
    metrics = _object(step, "metrics")
    ids, logprobs = metrics.get("completion_token_ids"), metrics.get("logprobs")
    if not isinstance(ids, list) or not isinstance(logprobs, list) or step.get("llm_call_count") not in (None, 1):
        return None
    return SampledTokens(tuple(ids), tuple(logprobs)) if len(ids) == len(logprobs) else None


def _text(holder: Any, name: str) -> str:
    """A text, or the texts of several parts, one below the other."""
    content = _typed(holder, name, (str, list))
    if isinstance(content, str):
        return content
    parts = []
    for part in content:
        if _typed(part, "type", str) != "text":
            raise DataError(f"`{name}` has a part of the type {part['type']!r}; only text can be read")
        parts.append(_typed(part, "text", str))
    return "\n".join(parts)


def _typed(holder: Any, name: str, kind: Any) -> Any:
    value = holder.get(name) if isinstance(holder, Mapping) else None
    if not isinstance(value, kind):
        kinds = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise DataError(f"`{name}` must be of type {kinds}; given: {value!r}")
    return value


def _ours(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    return _object(_object(holder, "extra"), OURS)


def _object(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object that may be missing."""
    value = holder.get(name)
    return value if isinstance(value, Mapping) else {}
