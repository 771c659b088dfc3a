"""`play()`: the only loop in which a policy and an environment meet.

Invariant: a trajectory comes back for every episode, by its deadline, whatever the environment or policy does; only
wrong configuration raises. Deadlines are checked here and nowhere else.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from agentgym_rl.alarm import Alarm
from agentgym_rl.beginning import Beginning, require_prefix_fits
from agentgym_rl.environment import Environment, Opening, StepResult, fingerprint, opening
from agentgym_rl.environments.written_action import WrittenAction
from agentgym_rl.errors import (
    BoundaryError,
    BudgetExhausted,
    ConfigurationError,
    EnvironmentFailed,
    PolicyFailed,
    boundary,
    require_type,
)
from agentgym_rl.messages import Message
from agentgym_rl.policy import Act, Policy, Reply
from agentgym_rl.prefix import written
from agentgym_rl.reply_form import FORMS
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn

T = TypeVar("T")

LEASE_MARGIN = 60.0
"""Seconds that a lease outlives its episode's own deadline; play() ends first, the lease is the net below it."""


@dataclass(frozen=True)
class Limits:
    """What one episode may take. Nothing waits longer than these say."""

    max_turns: int = 64
    """Turns of the policy; those of a task's prefix don't count."""
    reset_seconds: float = 60.0
    """Deadline of the environment's reset."""
    step_seconds: float = 30.0
    """Deadline of one step of the environment."""
    reply_seconds: float = 300.0
    """Deadline of one reply of the policy."""
    turn_seconds: float = math.inf
    """Deadline of a reply and its step together; a truncation, not a failure."""
    episode_seconds: float = 1800.0
    """Deadline of the whole episode; a truncation, not a failure."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise ConfigurationError(f"{field.name} must be above 0; given: {getattr(self, field.name)}")

    @property
    def lease_seconds(self) -> float:
        """For how long an environment is borrowed for one episode."""
        return self.episode_seconds + LEASE_MARGIN


class _Clock:
    """Puts calls under the smallest of their own deadline and what is left of the turn's and the episode's."""

    def __init__(self, episode_seconds: float):
        self.now = asyncio.get_running_loop().time
        self.alarm = Alarm()
        self._end = self.now() + episode_seconds
        self._turn_end = math.inf
        self.truncation: StopReason | None = None
        """What ended the last call: the turn's or the episode's deadline; None: neither."""

    def begin_turn(self, seconds: float) -> None:
        self._turn_end = self.now() + seconds

    def call(self, call: Awaitable[T], failed: type[BoundaryError], what: str, seconds: float) -> Awaitable[T]:
        left = min(self._end, self._turn_end) - self.now()
        self.truncation = None
        cut = self._cut if left < seconds else None
        return boundary(call, failed, what, max(min(seconds, left), 1e-3), self.alarm, cut)

    def _cut(self) -> None:
        self.truncation = StopReason.TURN_DEADLINE if self._turn_end < self._end else StopReason.EPISODE_DEADLINE


async def play(
    policy: Policy,
    environment: Environment,
    task: Task,
    limits: Limits | None = None,
    on_turn: Callable[[Turn], None] | None = None,
    on_opening: Callable[[Opening], None] | None = None,
    beginning: Beginning | None = None,
) -> Trajectory:
    """Play one task to its end.

    Args:
        policy: answers; made for this episode if it keeps state.
        environment: borrowed; it is reset here, and closed by whoever lent it.
        task: what to play. Its prefix is played before the policy's first turn, and stands in the opening.
        limits: turns and deadlines. Turns of `beginning` count; its seconds don't.
        on_turn, on_opening: called with each turn that is played, and with the first observation, as they happen.
        beginning: turns of an earlier episode of this task to go on from; None: from the start.

    Returns:
        The trajectory, also when something failed (`Trajectory.failure`).

    Raises:
        ConfigurationError, DataError: the task, such as its prefix, or the setup can't work.
    """
    limits = limits or Limits()
    episode = _Episode(policy, environment, task, limits)
    stop = StopReason.MAX_TURNS
    success: bool | None = False
    failure: Failure | None = None
    try:
        await (episode.resume(beginning) if beginning else episode.begin())
        if on_opening:
            on_opening(episode.start)
        while len(episode.turns) < limits.max_turns:
            result = await episode.take_turn()
            if on_turn:
                on_turn(episode.turns[-1])
            if result.terminated or result.truncated:
                stop = StopReason.TERMINATED if result.terminated else StopReason.TRUNCATED
                success = result.success
                break
    except BudgetExhausted:
        stop = StopReason.TOKEN_BUDGET
    except BoundaryError as error:
        if episode.clock.truncation:
            stop = episode.clock.truncation
        else:
            stop, success, failure = StopReason.FAILED, None, Failure.from_error(error)
    finally:
        episode.clock.alarm.stop()
    start = episode.start
    return Trajectory(task, start.messages, tuple(episode.turns), stop, success, failure, start.fingerprint)


class _Episode:
    """What was played so far; each method makes some calls, under their deadlines, and notes what they gave."""

    def __init__(self, policy: Policy, environment: Environment, task: Task, limits: Limits):
        self._policy = policy
        self._environment, self._task = environment, task
        self._form = FORMS[task.reply_form]
        if not self._form.is_bare:
            self._environment = written = WrittenAction(environment)
            self._task = written.task(task)
        self._limits = limits
        self._name = f"environment {task.environment!r}"
        self.clock = _Clock(limits.episode_seconds)
        self._conversation: list[Message] = []
        self.start = Opening((), "")
        self.turns: list[Turn] = []

    async def begin(self) -> None:
        self.start = await self._start()
        self._conversation = list(self.start.messages)

    async def resume(self, beginning: Beginning) -> None:
        self.start, self.turns = beginning.opening, list(beginning.turns)
        self._conversation = beginning.conversation()
        if beginning.snapshot is not None:
            restoring = self._environment.restore(beginning.snapshot)
            await self.clock.call(restoring, EnvironmentFailed, f"restore of {self._name}", self._limits.reset_seconds)
        else:
            await self._replay(beginning)

    async def take_turn(self) -> StepResult:
        self.clock.begin_turn(self._limits.turn_seconds)
        asked = self.clock.now()
        reply = await self.clock.call(
            _reply(self._policy, self._conversation), PolicyFailed, "reply of the policy", self._limits.reply_seconds
        )
        if isinstance(reply, Act):
            reply = Reply(replace(reply.message, content=self._form.write(reply.message.content)), reply.complete)
        replied = self.clock.now()
        result = await self._step(reply.message)
        done = self.clock.now()
        turn = Turn(
            reply, result.observation, result.reward, result.valid, replied - asked, done - replied, result.info
        )
        self.turns.append(turn)
        self._conversation += [reply.message, *result.observation]
        return result

    async def _replay(self, beginning: Beginning) -> None:
        beginning.require_same_start(self._name, await self._start())
        if not self._environment.facts.deterministic:
            raise ConfigurationError(f"{self._name} is not deterministic: go on from a snapshot, not by a replay")
        for number, turn in enumerate(beginning.turns):
            beginning.require_same_turn(self._name, number, await self._step(turn.reply.message))

    async def _start(self) -> Opening:
        """The opening, to which the task's prefix belongs; the fingerprint is of all that was observed."""
        seen = await self.clock.call(
            _reset(self._environment, self._task),
            EnvironmentFailed,
            f"reset of {self._name}",
            self._limits.reset_seconds,
        )
        start = opening(self._task, self._environment.instructions, seen)
        if not self._task.prefix:
            return start
        if not self._environment.facts.deterministic:
            raise ConfigurationError(f"task {self._task.id!r} has a prefix, and {self._name} is not deterministic")
        messages, observed = list(start.messages), list(seen)
        for number, reply in enumerate(written(self._task.prefix, self._form)):
            result = await self._step(reply, f"turn {number} of the prefix of task {self._task.id!r} in {self._name}")
            require_prefix_fits(self._task, number, result)
            messages += [reply, *result.observation]
            observed += result.observation
        return Opening(tuple(messages), fingerprint(observed))

    def _step(self, action: Message, what: str = "") -> Awaitable[StepResult]:
        step = _step(self._environment, action)
        return self.clock.call(step, EnvironmentFailed, what or f"step of {self._name}", self._limits.step_seconds)


async def _reset(environment: Environment, task: Task) -> tuple[Message, ...]:
    return _messages(await environment.reset(task))


async def _reply(policy: Policy, conversation: Sequence[Message]) -> Reply:
    return require_type(await policy.reply(conversation), Reply)


async def _step(environment: Environment, action: Message) -> StepResult:
    result = require_type(await environment.step(action), StepResult)
    _messages(result.observation)
    if not math.isfinite(result.reward):
        raise ValueError(f"a reward is a finite number; given: {result.reward}")
    return result


def _messages(observation: Sequence[Message]) -> tuple[Message, ...]:
    return tuple(require_type(message, Message) for message in observation)
