"""`play()`: the only loop in which a policy and an environment meet.

Invariant: a trajectory comes back for every episode, by its deadline, whatever the environment or policy does; only
wrong configuration raises. Deadlines are checked here and nowhere else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

from agentgym_rl.environment import Environment, Opening, StepResult, opening
from agentgym_rl.errors import (
    BoundaryError,
    BudgetExhausted,
    ConfigurationError,
    EnvironmentFailed,
    Manner,
    PolicyFailed,
    boundary,
    require_type,
)
from agentgym_rl.messages import Message
from agentgym_rl.policy import Policy, Reply
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn

T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """What one episode may take. Nothing waits longer than these say."""

    max_turns: int = 64
    """Turns of the policy."""
    reset_seconds: float = 60.0
    """Deadline of the environment's reset."""
    step_seconds: float = 30.0
    """Deadline of one step of the environment."""
    reply_seconds: float = 300.0
    """Deadline of one reply of the policy."""
    episode_seconds: float = 1800.0
    """Deadline of the whole episode; a truncation, not a failure."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise ConfigurationError(f"{field.name} must be above 0; given: {getattr(self, field.name)}")


class _EpisodeDeadline(Exception):
    """The episode's own deadline came before that of the call under way."""


class _Clock:
    """Runs calls under the smaller of their own deadline and what is left of the episode's."""

    def __init__(self, episode_seconds: float):
        self._end = time.monotonic() + episode_seconds
        self.last_call_seconds = 0.0

    async def call(self, call: Awaitable[T], failed: type[BoundaryError], what: str, seconds: float) -> T:
        begin = time.monotonic()
        left = self._end - begin
        try:
            return await boundary(call, failed, what, max(min(seconds, left), 1e-3))
        except BoundaryError as error:
            if error.manner is Manner.TIMED_OUT and left < seconds:
                raise _EpisodeDeadline from error
            raise
        finally:
            self.last_call_seconds = time.monotonic() - begin


async def play(
    policy: Policy,
    environment: Environment,
    task: Task,
    limits: Limits | None = None,
    on_turn: Callable[[Turn], None] | None = None,
    on_opening: Callable[[Opening], None] | None = None,
) -> Trajectory:
    """Play one task to its end.

    Args:
        policy: answers; made for this episode if it keeps state.
        environment: borrowed; it is reset here, and closed by whoever lent it.
        task: what to play.
        limits: turns and deadlines.
        on_turn, on_opening: called with each turn, and with the first observation, as they happen.

    Returns:
        The trajectory, also when something failed (`Trajectory.failure`).

    Raises:
        ConfigurationError, DataError: the task or the setup can't work.
    """
    limits = limits or Limits()
    clock = _Clock(limits.episode_seconds)
    name = f"environment {task.environment!r}"
    start = Opening((), "")
    turns: list[Turn] = []
    success: bool | None = None
    failure: Failure | None = None
    try:
        observation = await clock.call(
            _reset(environment, task), EnvironmentFailed, f"reset of {name}", limits.reset_seconds
        )
        start = opening(task, environment.instructions, observation)
        if on_opening:
            on_opening(start)
        conversation = list(start.messages)
        stop = StopReason.MAX_TURNS
        while len(turns) < limits.max_turns:
            reply: Reply = await clock.call(
                _reply(policy, conversation), PolicyFailed, "reply of the policy", limits.reply_seconds
            )
            policy_seconds = clock.last_call_seconds
            result: StepResult = await clock.call(
                _step(environment, reply.message), EnvironmentFailed, f"step of {name}", limits.step_seconds
            )
            turn = Turn(
                reply,
                result.observation,
                result.reward,
                result.valid,
                policy_seconds,
                clock.last_call_seconds,
                result.info,
            )
            turns.append(turn)
            conversation += [reply.message, *result.observation]
            if on_turn:
                on_turn(turn)
            if result.terminated or result.truncated:
                success = result.success
                stop = StopReason.TERMINATED if result.terminated else StopReason.TRUNCATED
                break
    except BudgetExhausted:
        stop = StopReason.TOKEN_BUDGET
    except _EpisodeDeadline:
        stop = StopReason.EPISODE_DEADLINE
    except BoundaryError as error:
        stop, failure = StopReason.FAILED, Failure.from_error(error)
    if success is None and stop in (StopReason.MAX_TURNS, StopReason.TOKEN_BUDGET, StopReason.EPISODE_DEADLINE):
        success = False
    return Trajectory(task, start.messages, tuple(turns), stop, success, failure, start.fingerprint)


async def _reset(environment: Environment, task: Task) -> tuple[Message, ...]:
    observation = tuple(await environment.reset(task))
    for message in observation:
        require_type(message, Message)
    return observation


async def _reply(policy: Policy, conversation: Sequence[Message]) -> Reply:
    return require_type(await policy.reply(conversation), Reply)


async def _step(environment: Environment, action: Message) -> StepResult:
    result = require_type(await environment.step(action), StepResult)
    if not math.isfinite(result.reward):
        raise ValueError(f"a reward is a finite number; given: {result.reward}")
    return result
