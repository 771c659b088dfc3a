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
from agentgym_rl.episode import Limits
from agentgym_rl.errors import AgentGymError, BudgetExhausted, ConfigurationError
from agentgym_rl.evaluation.run import play_one
from agentgym_rl.messages import Message, ToolCall, assistant
from agentgym_rl.policy import Act, ExpertPolicy, Policy, Reply
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
    reference = _Reference(task, kind.answer_tool)
    try:
        trajectory = await play_one(reference.of, task, 0, LIMITS, pool)
    except AgentGymError as error:
        return Trial(task, reference.way, f"can't be set up: {error}")
    return Trial(task, reference.way, _judged(trajectory, reference.way))


class _Reference:
    """Does what the environment's expert would do, or else gives the task's reference answer once, or else nothing.

    It chooses at its first reply: the facts of another interpreter are known once the environment was reset.
    """

    def __init__(self, task: Task, answer_tool: str):
        self.way = Way.NONE
        self._answer = _answer(task.reference_answer)
        self._tool = answer_tool

    def of(self, environment: Environment, task: Task, episode: int) -> Policy:
        """A `PolicyFactory`."""
        self._environment = environment
        return self

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        facts = self._environment.facts
        if facts.expert_success is not None:
            self.way = Way.EXPERT
            return await ExpertPolicy(self._environment).reply(conversation)
        if self._answer is None or self.way is Way.ANSWER or not (self._tool or facts.any_text):
            raise BudgetExhausted("there is no other reference answer")
        self.way = Way.ANSWER
        # Beside a call its text says nothing, but a reply form refuses one without text.
        calls = (ToolCall(self._tool, {"answer": self._answer}, "answer"),) if self._tool else ()
        return Act(assistant(self._answer, calls))


def _answer(reference: Any) -> str | None:
    """A text; of several right answers the first; another JSON value as JSON."""
    if isinstance(reference, list):
        reference = reference[0] if reference else None
    if reference is None or isinstance(reference, str):
        return reference or None
    return json.dumps(reference, ensure_ascii=False)


def _judged(trajectory: Trajectory, way: Way) -> str:
    if trajectory.failure:
        return f"{trajectory.failure.cause}: {trajectory.failure.message}"
    if trajectory.success or way is Way.NONE:
        return ""
    verdict = "was not solved" if trajectory.success is False else "got no verdict"
    by = "by the expert" if way is Way.EXPERT else "by its reference answer"
    return f"{verdict} {by} (return {trajectory.environment_return:g}, turns {len(trajectory.turns)})"
