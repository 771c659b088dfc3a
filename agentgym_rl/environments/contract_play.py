"""How the contract check plays: without a policy, step by step, every call under its deadline.

An episode is recorded once and then replayed with the same actions in other circumstances; where the environment calls
itself deterministic, a replay that differs from the record is a broken rule.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from agentgym_rl.environment import Environment, Facts, StepResult
from agentgym_rl.environments import registry
from agentgym_rl.episode import Limits
from agentgym_rl.errors import AgentGymError, EnvironmentFailed, boundary, require_type
from agentgym_rl.messages import Message, assistant
from agentgym_rl.task import Task

T = TypeVar("T")

GARBAGE = ("", "this is no action of any environment", '<tool_call>{"name": "no_such_tool", "arguments": ')
"""What a policy may say instead of an action: nothing, words, a call that breaks off."""


class Broken(AgentGymError):
    """A rule of the contract does not hold; the message says what to fix."""


class Way(Enum):
    """Who chooses the actions."""

    EXPERT = "expert"  # what `expert_action` says
    LISTED = "listed"  # at random from `actions`, by the task's seed
    GARBAGE = "garbage"  # `GARBAGE` in turn


@dataclass(frozen=True)
class Episode:
    """One recorded episode."""

    task: Task
    way: Way
    opening: tuple[Message, ...]
    actions: tuple[str, ...]
    steps: tuple[StepResult, ...]

    @property
    def ended(self) -> bool:
        return bool(self.steps) and _is_end(self.steps[-1])


@dataclass
class Subject:
    """The environment under test; the first rules record the episodes that later ones read."""

    name: str
    facts: Facts
    tasks: tuple[Task, ...]
    limits: Limits
    isolation: registry.Isolation
    main: list[Episode] = field(default_factory=list)
    """One episode a task, by the best way there is."""
    others: list[Episode] = field(default_factory=list)
    """Played another way."""

    def opened(self) -> AbstractAsyncContextManager[Environment]:
        return registry.opened(self.name, self.isolation)

    def max_turns(self, task: Task) -> int:
        return task.arguments.get("max_turns", self.facts.max_turns)

    async def call(self, call: Awaitable[T], what: str, seconds: float | None = None) -> T:
        return await boundary(call, EnvironmentFailed, what, seconds or self.limits.step_seconds)

    async def reset(self, environment: Environment, task: Task) -> tuple[Message, ...]:
        return await self.call(_reset(environment, task), f"reset for task {task.id!r}", self.limits.reset_seconds)

    async def step(self, environment: Environment, action: str) -> StepResult:
        return await self.call(_step(environment, action), f"step with {action[:80]!r}")

    async def record(self, task: Task, way: Way) -> Episode:
        """Play a task to its end, or to its limit of turns."""
        chance = random.Random(task.seed)
        actions: list[str] = []
        steps: list[StepResult] = []
        async with self.opened() as environment:
            opening = await self.reset(environment, task)
            while len(steps) < self.max_turns(task) and not (steps and _is_end(steps[-1])):
                actions.append(await self._choose(environment, way, len(steps), chance))
                steps.append(await self.step(environment, actions[-1]))
        return Episode(task, way, opening, tuple(actions), tuple(steps))

    async def _choose(self, environment: Environment, way: Way, turn: int, chance: random.Random) -> str:
        if way is Way.EXPERT:
            return require_type(await self.call(environment.expert_action(), "expert_action"), str)
        if way is Way.LISTED:
            return chance.choice(await self.listed(environment))
        return GARBAGE[turn % len(GARBAGE)]

    async def listed(self, environment: Environment) -> list[str]:
        actions = list(await self.call(environment.actions(), "actions"))
        if not actions or not all(isinstance(action, str) for action in actions):
            raise Broken(f"while an episode is open, `actions` names at least one action as text; given: {actions}")
        return actions

    async def replay(
        self, environment: Environment, episode: Episode, when: str, start: int | None = None, stop: int | None = None
    ) -> None:
        """Play turns `start` to `stop` of an episode again; without a `start` it is reset first.

        Raises:
            Broken: it went differently, in an environment that calls itself deterministic.
        """
        async for _ in self.replay_stepwise(environment, episode, when, start, stop):
            pass

    async def replay_stepwise(
        self, environment: Environment, episode: Episode, when: str, start: int | None = None, stop: int | None = None
    ) -> AsyncIterator[None]:
        """`replay`, pausing after the reset and after each turn."""
        where = f"task {episode.task.id!r} went differently {when}"
        if start is None:
            opening = await self.reset(environment, episode.task)
            self._compare(opening, episode.opening, f"{where}: its first observation")
            yield
        for turn in range(start or 0, len(episode.actions) if stop is None else stop):
            step = await self.step(environment, episode.actions[turn])
            for name in ("observation", "reward", "terminated", "truncated", "success", "valid"):
                what = f"{where}: the {name} of turn {turn}"
                self._compare(getattr(step, name), getattr(episode.steps[turn], name), what)
            yield
            if _is_end(step):
                return

    async def replay_interleaved(self, episodes: Sequence[Episode], when: str) -> None:
        """Replay each episode on an instance of its own, all taking turns."""
        async with AsyncExitStack() as stack:
            environments = [await stack.enter_async_context(self.opened()) for _ in episodes]
            running = [self.replay_stepwise(*pair, when) for pair in zip(environments, episodes, strict=True)]
            while running:
                running = [replay for replay in running if await anext(replay, _DONE) is not _DONE]

    async def replay_at_once(self, episodes: Sequence[Episode], when: str) -> None:
        """Replay each episode on an instance of its own, all at the same time."""
        async with AsyncExitStack() as stack:
            environments = [await stack.enter_async_context(self.opened()) for _ in episodes]
            replays = [self.replay(*pair, when) for pair in zip(environments, episodes, strict=True)]
            outcomes = await asyncio.gather(*replays, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _compare(self, given: object, recorded: object, what: str) -> None:
        if self.facts.deterministic and given != recorded:
            raise Broken(f"{what} was {_shown(given)}; on its own it was {_shown(recorded)}")


_DONE = object()


async def _reset(environment: Environment, task: Task) -> tuple[Message, ...]:
    return tuple(require_type(message, Message) for message in await environment.reset(task))


async def _step(environment: Environment, action: str) -> StepResult:
    return require_type(await environment.step(assistant(action)), StepResult)


def _is_end(step: StepResult) -> bool:
    return step.terminated or step.truncated


def _shown(value: object) -> str:
    """Short enough for a message; of messages only their text."""
    if isinstance(value, tuple):
        value = "\n".join(message.content for message in value)
    text = repr(value)
    return text if len(text) <= 160 else text[:157] + "..."
