"""A document of the Agent Trajectory Interchange Format (ATIF) -> Trajectory.

A result of a call is the tool's message, any other result the user's. Reasoning stands before the reply as `<think>`,
the way chat templates write it. A step that was copied from another trajectory, or that no model said, is not trained;
of a document of ours, those of the opening belong to it. Without `openmanus_rl` in its `extra` objects
(`atif_write.py`) rewards are 0 and the outcome is unknown. When a step was taken, by which model, its counts of tokens
and its cost go into the turn's `info` under `atif`.

A step that replaces the context ends one trajectory and begins another, with what the step shows, or else says. Images
and sound have no place in a trajectory and are refused; subagents are documents of their own and are not read, which is
said. The agent's tools, totals and notes are passed over, and so are fields that the format does not name.

Source: ATIF-v1.8, https://github.com/harbor-framework/harbor/blob/main/rfcs/0001-trajectory-format.md
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from agentgym_rl.data.atif_write import OURS
from agentgym_rl.data.reasoning import with_reasoning
from agentgym_rl.data.sft_parquet import TRAINED
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message, ToolCall, assistant, user
from agentgym_rl.policy import Reply, SampledTokens
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn

logger = logging.getLogger(__name__)

VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(9))
SOURCES = ("system", "user", "agent")
TOLD = "atif"
"""In a turn's `info`: what the format tells of a step that a turn has no other place for."""
TOLD_OF_STEP = ("timestamp", "model_name", "reasoning_effort")
TOLD_OF_METRICS = ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")


class _Context(NamedTuple):
    """A conversation that only grows."""

    opening: list[Message]
    turns: list[Turn]

    def add(self, said: Turn | list[Message]) -> None:
        if isinstance(said, Turn):
            self.turns.append(said)
        elif self.turns:
            self.turns[-1] = replace(self.turns[-1], observation=(*self.turns[-1].observation, *said))
        else:
            self.opening.extend(said)


def is_atif(document: Mapping[str, Any]) -> bool:
    """Whether it says so, in whatever version; without one, as Harbor reads it, it has an agent and steps."""
    if document.get("schema_version") is not None:
        return str(document["schema_version"]).startswith("ATIF")
    return isinstance(document.get("agent"), Mapping) and isinstance(document.get("steps"), list)


def task_of(document: Mapping[str, Any]) -> Task | None:
    """The task of a document that `to_atif` made; None: another's."""
    given = _ours(document).get("task")
    try:
        return Task(**given) if given is not None else None
    except TypeError as error:
        raise DataError(f"extra.{OURS}.task is no task: {given!r}") from error


def from_atif(document: Mapping[str, Any], task: Task) -> list[Trajectory]:
    """Read a document as episodes of that task: one, and another each time that its context was replaced.

    Raises:
        DataError: another version, a step that breaks the format (named by its number), no step of an agent, or what
            a trajectory has no place for.
    """
    version, ours = document.get("schema_version"), _ours(document)
    if version is not None and version not in VERSIONS:
        raise DataError(f"versions that can be read are {VERSIONS[0]} to {VERSIONS[-1]}; given: {version!r}")
    contexts = [_Context([], [])]
    for number, step in enumerate(_typed(document, "steps", list), start=1):
        try:
            _add(step, number, contexts, task)
        except DataError as error:
            raise DataError(f"step {number}: {error}") from error
    acted = [context for context in contexts if context.turns]
    if not acted and "stop" not in ours:
        raise DataError("in no step an agent says or does anything")
    _warn(document, task)
    if not ours and _takes_apart(document["steps"]):
        acted = [_without_tokens(context) for context in acted]
    *before, last = acted or contexts
    cut_off = {"stop": StopReason.TOKEN_BUDGET.value}
    last = _begun(last, _opening_replies(ours, task))
    return [_trajectory(task, context, cut_off) for context in before] + [_trajectory(task, last, ours)]


def _opening_replies(ours: Mapping[str, Any], task: Task) -> int:
    """How many turns belong to the opening; earlier documents of ours don't say it: at least the task's prefix."""
    if "opening_replies" in ours:
        return int(_typed(ours, "opening_replies", int))
    return len(task.prefix) if ours else 0


def _begun(context: _Context, turns: int) -> _Context:
    """The context, with its first so many turns in the opening."""
    spoken = [message for turn in context.turns[:turns] for message in (turn.reply.message, *turn.observation)]
    return _Context([*context.opening, *spoken], context.turns[turns:])


def _warn(document: Mapping[str, Any], task: Task) -> None:
    """Say what a trajectory can't hold."""
    if document.get("subagent_trajectories"):
        number = len(_typed(document, "subagent_trajectories", list))
        logger.warning("%s: %d trajectories of subagents in its document are not read", task.id, number)
    cut = [str(step["step_id"]) for step in document["steps"] if _boundary(step) == "truncate"]
    if cut:
        what = "stays in it, for nobody says what it was"
        logger.warning("%s: what step %s took out of the context %s", task.id, ", ".join(cut), what)


def _add(step: Any, number: int, contexts: list[_Context], task: Task) -> None:
    said = _read(step, number)
    if _boundary(step) == "replace":
        shown = _results(step, ())
        if isinstance(said, Turn):
            contexts[-1].add(said)
        elif not shown:
            shown = said
        elif said != shown:
            logger.warning("%s: what step %d says beside the new context that it shows is not read", task.id, number)
        contexts.append(_Context([], []))
        said = shown
    contexts[-1].add(said)


def _boundary(step: Mapping[str, Any]) -> Any:
    """How a step changed the context: "replace", "append", "truncate", another word or None."""
    return _object(_object(step, "extra"), "context_management").get("boundary")


def _takes_apart(steps: list[Mapping[str, Any]]) -> bool:
    """Whether calls or reasoning stand beside the text of a reply: what the ids of its replies read, nobody knows."""
    return any(step.get("tool_calls") or step.get("reasoning_content") for step in steps)


def _without_tokens(context: _Context) -> _Context:
    return _Context(context.opening, [replace(turn, reply=replace(turn.reply, tokens=None)) for turn in context.turns])


def _trajectory(task: Task, context: _Context, ours: Mapping[str, Any]) -> Trajectory:
    try:
        stop, failure = StopReason(ours.get("stop", "terminated")), ours.get("failure")
        return Trajectory(
            task,
            tuple(context.opening),
            tuple(context.turns),
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
    if source == "agent" and not _only_observes(step):
        return _turn(step)
    if source != "agent" and step.get("tool_calls"):
        raise DataError(f"only an agent calls tools; given: source {source!r}")
    text, seen = _text(step, "message"), _results(step, ())
    if not text and (seen or source == "agent"):
        return seen
    return [Message("system" if source == "system" else "user", text), *seen]


def _only_observes(step: Mapping[str, Any]) -> bool:
    """Whether an agent's step holds only what was seen, which is how ADP writes an observation of its own."""
    if _ours(step) or any(step.get(name) for name in ("message", "tool_calls", "reasoning_content")):
        return False
    calls = step.get("llm_call_count")
    return calls == 0 or (calls is None and bool(step.get("observation")) and not step.get("metrics"))


def _turn(step: Mapping[str, Any]) -> Turn:
    ours = _ours(step)
    calls = tuple(map(_call, _typed(step, "tool_calls", list))) if step.get("tool_calls") else ()
    content = with_reasoning(_text(step, "message"), _reasoning(step))
    return Turn(
        Reply(assistant(content, calls), ours.get("complete", True), _tokens(step)),
        tuple(_results(step, calls)),
        ours.get("reward", 0.0),
        ours.get("valid", True),
        ours.get("policy_seconds", 0.0),
        ours.get("environment_seconds", 0.0),
        ours["info"] if "info" in ours else _info(step),
    )


def _info(step: Mapping[str, Any]) -> dict[str, Any]:
    not_said = step.get("is_copied_context") is True or step.get("llm_call_count") == 0
    metrics = _object(step, "metrics")
    given = {name: step.get(name) for name in TOLD_OF_STEP} | {name: metrics.get(name) for name in TOLD_OF_METRICS}
    told = {name: value for name, value in given.items() if value is not None}
    return ({TRAINED: False} if not_said else {}) | ({TOLD: told} if told else {})


def _reasoning(step: Mapping[str, Any]) -> str | None:
    """None: there is none; others also write it as an empty text."""
    if step.get("reasoning_content") is None:
        return None
    reasoning: str = _typed(step, "reasoning_content", str)
    return reasoning if reasoning or _ours(step) else None


def _call(call: Any) -> ToolCall:
    id, name = _typed(call, "tool_call_id", str), _typed(call, "function_name", str)
    return ToolCall(name, _typed(call, "arguments", dict), _ours(call).get("id", id))


def _results(step: Mapping[str, Any], calls: tuple[ToolCall, ...]) -> list[Message]:
    """A result whose call is not of this step is the user's message, like one of no call."""
    if step.get("observation") is None:
        return []
    ids = [call.id for call in calls]
    messages = (_result(result, ids) for result in _typed(step["observation"], "results", list))
    return [message for message in messages if message is not None]


def _result(result: Any, ids: list[str]) -> Message | None:
    """None: it answers no call and shows nothing, such as one that only points to a subagent's trajectory."""
    if not isinstance(result, Mapping):
        raise DataError(f"a result is an object; given: {result!r}")
    content = None if result.get("content") is None else _text(result, "content")
    if result.get("source_call_id") in ids:
        return Message("tool", content or "", tool_call_id=result["source_call_id"])
    if content is None:
        return None
    ours = _ours(result)
    return Message.from_chat({**ours, "content": content}) if "role" in ours else user(content)


def _tokens(step: Mapping[str, Any]) -> SampledTokens | None:
    """Ids without the log-prob of each, or of several calls of a model together, are not those of one reply."""
    metrics = _object(step, "metrics")
    ids = _numbers(metrics.get("completion_token_ids"), int)
    logprobs = _numbers(metrics.get("logprobs"), (int, float))
    if ids is None or logprobs is None or len(ids) != len(logprobs) or step.get("llm_call_count") not in (None, 1):
        return None
    return SampledTokens(tuple(ids), tuple(logprobs))


def _numbers(value: Any, kind: Any) -> list[Any] | None:
    """The value if it is a list of them."""
    return value if isinstance(value, list) and all(isinstance(one, kind) for one in value) else None


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
