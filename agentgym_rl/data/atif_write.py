"""Trajectory -> a document of the Agent Trajectory Interchange Format (ATIF), as Harbor and terminal-bench read it.

What the format has no place for (task, rewards, outcome, seconds, info) goes into its `extra` objects under
`openmanus_rl`, where other readers pass over it: `atif_read.py` gives back an equal trajectory. An assistant's message
of the opening, which the policy did not say, is marked as copied, and how many there are is kept, for the format does
not say where an opening ends.

Source: ATIF-v1.7, https://github.com/harbor-framework/harbor/blob/main/rfcs/0001-trajectory-format.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from agentgym_rl.data.reasoning import split
from agentgym_rl.data.sft_parquet import TRAINED
from agentgym_rl.data.versions import code_version
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message
from agentgym_rl.policy import SampledTokens
from agentgym_rl.trajectory import Trajectory, Turn

OURS = "openmanus_rl"
"""Our key in an `extra` object."""
WRITTEN_VERSION = "ATIF-v1.7"
"""What came later is sound, of which there is none here; readers such as ADP's take no other version."""


def to_atif(trajectory: Trajectory, session: str = "") -> dict[str, Any]:
    """The trajectory as a document.

    Args:
        session: id of the run, such as that of its record; empty: the task's, though runs of a task then share it.

    Raises:
        DataError: it has no message, a reply is not the assistant's, or the assistant speaks in an observation.
    """
    steps = [*_opening_steps(trajectory.opening), *(_turn_step(turn) for turn in trajectory.turns)]
    if not steps:
        raise DataError(f"task {trajectory.task.id!r}: an ATIF document needs at least one message")
    ours = {
        "task": trajectory.task.to_dict(),
        "opening_replies": sum(message.role == "assistant" for message in trajectory.opening),
        "stop": trajectory.stop.value,
        "success": trajectory.success,
        "failure": asdict(trajectory.failure) if trajectory.failure else None,
        "fingerprint": trajectory.fingerprint,
    }
    return {
        "schema_version": WRITTEN_VERSION,
        "session_id": session or trajectory.task.id,
        "agent": {"name": "openmanus-rl", "version": code_version()},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
        "extra": {OURS: ours},
    }


def _opening_steps(opening: Sequence[Message]) -> Iterator[dict[str, Any]]:
    step: dict[str, Any] = {}
    for message in opening:
        if message.role == "tool" and step.get("source") == "agent":
            results = step.setdefault("observation", {"results": []})["results"]
            results.append(_result(message, step))
            continue
        if step:
            yield step
        if message.role == "assistant":
            step = {**_said(message), "is_copied_context": True, "extra": {OURS: {"info": {TRAINED: False}}}}
        else:
            step = {"source": "system" if message.role == "system" else "user", "message": message.content}
    if step:
        yield step


def _turn_step(turn: Turn) -> dict[str, Any]:
    message = turn.reply.message
    if message.role != "assistant":
        raise DataError(f"a reply must be the assistant's; given: the {message.role}'s")
    step = _said(message)
    if turn.observation:
        step["observation"] = {"results": [_result(seen, step) for seen in turn.observation]}
    if turn.reply.tokens:
        step["metrics"] = _metrics(turn.reply.tokens)
    ours = {
        "reward": turn.reward,
        "valid": turn.valid,
        "complete": turn.reply.complete,
        "policy_seconds": turn.policy_seconds,
        "environment_seconds": turn.environment_seconds,
        "info": dict(turn.info),
    }
    return {**step, "extra": {OURS: ours}}


def _said(message: Message) -> dict[str, Any]:
    said, reasoning = split(message.content)
    step: dict[str, Any] = {"source": "agent", "message": said}
    if reasoning is not None:
        step["reasoning_content"] = reasoning
    calls: list[dict[str, Any]] = []
    for number, call in enumerate(message.tool_calls, start=1):
        written = {"tool_call_id": call.id, "function_name": call.name, "arguments": dict(call.arguments)}
        if not call.id or call.id in [other["tool_call_id"] for other in calls]:
            written |= {"tool_call_id": f"unnamed_{number}", "extra": {OURS: {"id": call.id}}}
        calls.append(written)
    return {**step, "tool_calls": calls} if calls else step


def _result(message: Message, step: dict[str, Any]) -> dict[str, Any]:
    """Whatever a reader can't tell from the format itself stands in `extra`."""
    if message.role == "assistant":
        raise DataError("the assistant speaks in an observation, for which ATIF has no place")
    named = [call["tool_call_id"] for call in step.get("tool_calls", ()) if "extra" not in call]
    if message.role == "tool" and message.tool_call_id in named:
        return {"source_call_id": message.tool_call_id, "content": message.content}
    result: dict[str, Any] = {"content": message.content}
    if message.role != "user":
        result["extra"] = {OURS: {"role": message.role, "tool_call_id": message.tool_call_id}}
    return result


def _metrics(tokens: SampledTokens) -> dict[str, Any]:
    ids, logprobs = list(tokens.ids), list(tokens.logprobs)
    return {"completion_tokens": len(ids), "completion_token_ids": ids, "logprobs": logprobs}
