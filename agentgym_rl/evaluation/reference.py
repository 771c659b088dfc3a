"""A dry run of tasks: each is set up, and played by its expert or with its reference answer, which must solve it.

A task that neither can play is only set up, and said to be unproved: its reward was never seen to be given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from agentgym_rl.environment import Environment
from agentgym_rl.environments import registry
from agentgym_rl.environments.interpreter import interpreter_of
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import BoundaryError, ConfigurationError, DataError, EnvironmentFailed, boundary
from agentgym_rl.evaluation.run import LEASE_MARGIN
from agentgym_rl.messages import Message, ToolCall, assistant
from agentgym_rl.policy import ExpertPolicy, Policy, Reply, ScriptedPolicy
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.task import Task
from agentgym_rl.together import all_or_cancel
from agentgym_rl.trajectory import Trajectory

LIMITS = Limits(max_turns=1000)
"""Environments end their episodes themselves; this is for one that does not."""


class Way(Enum):
    """Who played a task."""

    EXPERT = "expert"  # the environment's own
    ANSWER = "reference answer"  # the task's, said as the only reply
    NONE = "none"  # nobody


class Trial(NamedTuple):
    """What came of a task."""

    task: Task
    way: Way
    trouble: str
    """Empty: it was solved, or only set up where the way is `NONE`."""


async def try_tasks(
    tasks: Sequence[Task],
    concurrency: int = 8,
    isolation: registry.Isolation = "thread",
    on_trial: Callable[[Trial], None] | None = None,
) -> list[Trial]:
    """Try each task once, several at once; the trials stand in the order of the tasks."""
    kinds = {name: _Kind.of(name) for name in {task.environment for task in tasks}}

    async def trial_of(task: Task) -> Trial:
        kind = kinds[task.environment]
        trial = Trial(task, Way.NONE, kind.missing) if kind.missing else await _try(task, kind, pool)
        if on_trial:
            on_trial(trial)
        return trial

    async with EnvironmentPool(concurrency, isolation) as pool:
        return await all_or_cancel([trial_of(task) for task in tasks])


class _Kind(NamedTuple):
    """What is known of an environment before one is made."""

    missing: str
    """Why none can be made here; empty: it can."""
    answer_tool: str
    """That takes the answer; empty: a reply without a call is the answer."""

    @classmethod
    def of(cls, name: str) -> _Kind:
        try:
            if interpreter_of(name) is not None:  # which alone may be able to import the class
                return cls("", "")
            return cls("", getattr(registry.environment_class(name), "answer_tool", ""))
        except ConfigurationError as error:
            return cls(str(error), "")


async def _try(task: Task, kind: _Kind, pool: EnvironmentPool) -> Trial:
    way = Way.NONE
    try:
        async with pool.lease(task.environment, LIMITS.episode_seconds + LEASE_MARGIN) as environment:
            way, policy = _reference(environment, task, kind.answer_tool)
            if policy is None:
                call, what = environment.reset(task), f"reset of environment {task.environment!r}"
                await boundary(call, EnvironmentFailed, what, LIMITS.reset_seconds)
                return Trial(task, way, "")
            return Trial(task, way, _judged(await play(policy, environment, task, LIMITS), way))
    except (ConfigurationError, DataError) as error:
        return Trial(task, way, f"can't be set up: {error}")
    except BoundaryError as error:
        return Trial(task, way, f"{error.cause_name}: {error}")


def _reference(environment: Environment, task: Task, answer_tool: str) -> tuple[Way, Policy | None]:
    if environment.facts.expert_success is not None:
        return Way.EXPERT, ExpertPolicy(environment)
    answer = _answer(task.reference_answer)
    if answer is None or not (answer_tool or environment.facts.any_text):
        return Way.NONE, None
    return Way.ANSWER, _Caller(answer_tool, answer) if answer_tool else ScriptedPolicy([answer])


def _answer(reference: Any) -> str | None:
    """A text; of several right answers the first; another JSON value as JSON."""
    if isinstance(reference, list):
        reference = reference[0] if reference else None
    if reference is None or isinstance(reference, str):
        return reference or None
    return json.dumps(reference, ensure_ascii=False)


class _Caller:
    """Gives its answer by a call of the tool that takes answers."""

    def __init__(self, tool: str, answer: str):
        self._message = assistant("", (ToolCall(tool, {"answer": answer}, "answer"),))

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        return Reply(self._message)


def _judged(trajectory: Trajectory, way: Way) -> str:
    if trajectory.failure:
        return f"{trajectory.failure.cause}: {trajectory.failure.message}"
    if trajectory.success:
        return ""
    verdict = "was not solved" if trajectory.success is False else "got no verdict"
    by = "by the expert" if way is Way.EXPERT else "by its reference answer"
    return f"{verdict} {by} (return {trajectory.environment_return:g}, turns {len(trajectory.turns)})"
