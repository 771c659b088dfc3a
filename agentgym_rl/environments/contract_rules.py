"""The rules of the environment contract: one function each, whose docstring is the promise that it checks.

The earlier rules record the episodes that the later ones read. A rule raises `Broken` where the promise is not kept,
and `NotChecked` where the environment's facts don't make it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle, islice

from agentgym_rl.environment import Environment, Facts, StepResult
from agentgym_rl.environments import registry
from agentgym_rl.environments.contract_play import GARBAGE, Broken, Episode, Subject, Way
from agentgym_rl.errors import AgentGymError
from agentgym_rl.messages import Message

INSTANCES = 8
"""How many play at once."""
LISTED_ACTIONS = 32
"""How many of the first listed actions are tried, each on an instance of its own."""


class NotChecked(Exception):
    """There is nothing to check here; the message says why."""


def facts_of(name: str, isolation: registry.Isolation) -> Facts:
    """Instances are made without arguments, and their `facts` make sense."""
    registry.environment_class(name)
    try:
        facts = registry.make(name, isolation).facts
    except Exception as error:  # a constructor is foreign code, and this is its boundary
        raise Broken(f"making an instance raised {type(error).__name__}: {error}") from error
    if not isinstance(facts, Facts):
        raise Broken(f"`facts` must be a Facts; given: {type(facts).__name__}")
    low, high = facts.reward_range
    if not low <= high:
        raise Broken(f"reward_range must be (lowest, highest); given: {facts.reward_range}")
    if facts.max_turns < 1:
        raise Broken(f"max_turns must be at least 1; given: {facts.max_turns}")
    if facts.expert_success is not None and not 0 < facts.expert_success <= 1:
        raise Broken(f"expert_success is a share in (0, 1], or None without expert; given: {facts.expert_success}")
    return facts


async def answers(subject: Subject) -> None:
    """Reset and step answer every call of an ordinary episode, by the deadline, with what they should return."""
    way = Way.GARBAGE
    if subject.facts.expert_success is not None:
        way = Way.EXPERT
    elif subject.facts.lists_actions:
        way = Way.LISTED
    for task in subject.tasks:
        subject.main.append(await subject.record(task, way))


async def invalid_action(subject: Subject) -> None:
    """Text that is no action is answered with valid=False and an observation, or ends the episode unsolved.

    Where facts.any_text, it may be an action that goes on.
    """
    for task in subject.tasks:
        episode = await subject.record(task, Way.GARBAGE)
        subject.others.append(episode)
        for action, step in zip(episode.actions, episode.steps, strict=True):
            _require_refusal(action, step, subject.facts.any_text)


def _require_refusal(action: str, step: StepResult, any_text: bool) -> None:
    if step.terminated or step.truncated:
        if step.success:
            raise Broken(f"the action {action!r} solved the task")
    elif step.valid and not any_text:
        raise Broken(f"the action {action!r} was taken as valid; answer with StepResult.going_on(..., valid=False)")
    elif not _says_something(step.observation):
        raise Broken(f"the action {action!r} was refused without a word; the observation must say what is allowed")


async def listed_actions(subject: Subject) -> None:
    """Where facts.lists_actions, every action that is listed is valid."""
    if not subject.facts.lists_actions:
        raise NotChecked("facts.lists_actions is False")
    for task in subject.tasks:
        episode = await subject.record(task, Way.LISTED)
        subject.others.append(episode)
        for action, step in zip(episode.actions, episode.steps, strict=True):
            _require_valid(action, step)
    async with subject.opened() as environment:
        await subject.reset(environment, subject.tasks[0])
        listed = await subject.listed(environment)
    for action in listed[:LISTED_ACTIONS]:
        async with subject.opened() as environment:
            await subject.reset(environment, subject.tasks[0])
            _require_valid(action, await subject.step(environment, action))


def _require_valid(action: str, step: StepResult) -> None:
    if not step.valid:
        raise Broken(f"the action {action!r} was listed, but answered with valid=False")


async def observations(subject: Subject) -> None:
    """The first observation, and each while the episode goes on, says something, as the user or a tool."""
    for episode in _episodes(subject):
        _require_observation(episode.opening, f"the first observation of task {episode.task.id!r}")
        for turn, step in enumerate(episode.steps):
            what = f"the observation of turn {turn} of task {episode.task.id!r}"
            _require_observation(step.observation, what, may_be_empty=step.terminated or step.truncated)


def _require_observation(messages: Sequence[Message], what: str, may_be_empty: bool = False) -> None:
    if not may_be_empty and not _says_something(messages):
        raise Broken(f"{what} is empty")
    for message in messages:
        if message.role not in ("user", "tool"):
            raise Broken(
                f"{what} has a message of role {message.role!r}; allowed: user, tool (a system prompt belongs into"
                " `instructions`)"
            )


def _says_something(messages: Sequence[Message]) -> bool:
    return any(message.content.strip() for message in messages)


async def rewards(subject: Subject) -> None:
    """Every reward is a finite number inside facts.reward_range."""
    low, high = subject.facts.reward_range
    for episode in _episodes(subject):
        for turn, step in enumerate(episode.steps):
            where = f"the reward of turn {turn} of task {episode.task.id!r} is {step.reward!r}"
            if not math.isfinite(step.reward):
                raise Broken(f"{where}; a reward is a finite number")
            if not low - 1e-9 <= step.reward <= high + 1e-9:
                raise Broken(f"{where}, outside of facts.reward_range {subject.facts.reward_range}")


async def ends_by_limit(subject: Subject) -> None:
    """Every episode ends by the task's max_turns, or facts.max_turns, whatever the policy says."""
    for episode in _episodes(subject):
        if not episode.ended:
            raise Broken(
                f"task {episode.task.id!r} had not ended after {len(episode.steps)} turns of {episode.way.value}"
                " actions; count every turn, and answer the last with StepResult.cut_off()"
            )


async def one_ending(subject: Subject) -> None:
    """No step is terminated and truncated at once."""
    for episode in _episodes(subject):
        if episode.steps and episode.steps[-1].terminated and episode.steps[-1].truncated:
            raise Broken(
                f"turn {len(episode.steps) - 1} of task {episode.task.id!r} is terminated and truncated; a task that"
                " came to its own end is StepResult.at_end(), a limit is StepResult.cut_off()"
            )


async def reproducible(subject: Subject) -> None:
    """Where facts.deterministic, the same task and actions give the same observations, rewards and end."""
    if not subject.facts.deterministic:
        raise NotChecked("facts.deterministic is False")
    for episode in subject.main:
        async with subject.opened() as environment:
            await subject.replay(environment, episode, "when it was played again")


async def no_leak(subject: Subject) -> None:
    """Two instances that take turns play as each does on its own."""
    pair = list(islice(cycle(subject.main), 2))
    await subject.replay_interleaved(pair, "while another instance took turns with it (state of a class or module?)")


async def concurrent(subject: Subject) -> None:
    """`INSTANCES` instances at the same time play as each does on its own."""
    episodes = list(islice(cycle(subject.main), INSTANCES))
    await subject.replay_at_once(episodes, f"beside {INSTANCES - 1} other instances")


async def close_twice(subject: Subject) -> None:
    """Close may be called twice: before a reset, after one, and after a call that failed."""

    async def nothing(environment: Environment) -> None:
        pass

    async def reset(environment: Environment) -> None:
        await subject.reset(environment, subject.tasks[0])

    async def failed_step(environment: Environment) -> None:
        with contextlib.suppress(AgentGymError):
            await subject.step(environment, GARBAGE[1])

    for when, prepare in {"before reset": nothing, "after reset": reset, "after a failed step": failed_step}.items():
        environment = registry.make(subject.name, subject.isolation)
        await prepare(environment)
        for time in ("first", "second"):
            await subject.call(environment.close(), f"the {time} close {when}", registry.CLOSE_SECONDS)


async def reusable(subject: Subject) -> None:
    """Where facts.reusable, an instance plays one task after another, also one that was left half-way."""
    if not subject.facts.reusable:
        raise NotChecked("facts.reusable is False")
    first, second = islice(cycle(subject.main), 2)
    async with subject.opened() as environment:
        await subject.replay(environment, first, "on a new instance", stop=len(first.actions) // 2)
        await subject.replay(environment, second, "after another task was left half-way")
        await subject.replay(environment, first, "after another task had ended")


async def expert(subject: Subject) -> None:
    """The expert solves at least facts.expert_success of the tasks."""
    claimed = subject.facts.expert_success
    if claimed is None:
        raise NotChecked("facts.expert_success is None")
    unsolved = [e.task.id for e in subject.main if not (e.ended and e.steps[-1].success)]
    share = 1 - len(unsolved) / len(subject.main)
    if share < claimed - 1e-9:
        raise Broken(
            f"the expert solved {share:.2f} of {len(subject.main)} tasks, facts.expert_success claims {claimed};"
            f" unsolved: {', '.join(unsolved[:5])}"
        )


async def snapshot(subject: Subject) -> None:
    """Where facts.can_snapshot, the same continuation follows a restore, in the same and in a new instance."""
    if not subject.facts.can_snapshot:
        raise NotChecked("facts.can_snapshot is False")
    for episode in subject.main[:2]:
        half = len(episode.actions) // 2
        async with subject.opened() as environment, subject.opened() as fresh:
            await subject.replay(environment, episode, "before its snapshot", stop=half)
            state = await subject.call(environment.snapshot(), "snapshot")
            if not isinstance(state, bytes):
                raise Broken(f"a snapshot is bytes; given: {type(state).__name__}")
            await subject.replay(environment, episode, "after its snapshot was taken", start=half)
            for instance, which in ((environment, "the same instance"), (fresh, "a new instance")):
                await subject.call(instance.restore(state), f"restore in {which}", subject.limits.reset_seconds)
                await subject.replay(instance, episode, f"after a restore in {which}", start=half)


def _episodes(subject: Subject) -> list[Episode]:
    return subject.main + subject.others


Rule = Callable[[Subject], Awaitable[None]]

RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        answers,
        invalid_action,
        listed_actions,
        observations,
        rewards,
        ends_by_limit,
        one_ending,
        reproducible,
        no_leak,
        concurrent,
        close_twice,
        reusable,
        expert,
        snapshot,
    )
}
