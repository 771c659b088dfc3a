"""The environments that a server lends out: each with a lease, one call at a time, and no more than so many.

Invariant: nothing outlives its lease. A lease begins anew with each request; it is the deadline of that request's call
as well, so a call that hangs ends with it, and its instance is closed. The server's event loop owns everything here.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from agentgym_rl.environment import Environment, StepResult
from agentgym_rl.environments import registry
from agentgym_rl.errors import AgentGymError, BoundaryError, EnvironmentFailed, boundary, require_type
from agentgym_rl.messages import Message
from agentgym_rl.task import Task

T = TypeVar("T")

IDS = 2**53
"""Ids are drawn below this, which every JSON reader takes. At random, so that an id of a server that was started anew
is never somebody else's instance."""


class Refused(AgentGymError):
    """A request that no environment gets to see, with its HTTP status."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


@dataclass
class Instance:
    """One environment and its lease."""

    environment: Environment
    used: float
    """When the last request came."""
    call: str = ""
    """The call under way."""
    spent: bool = False
    """The next reset gets a new environment: this one failed, or may be reset only once and was."""
    observation: str = ""
    """The text that was answered last."""
    score: float = 0.0
    """Sum of the episode's rewards."""


class Instances:
    """Lends out instances of one environment.

    Args:
        name: of the environment.
        isolation: how instances are made.
        max_instances: how many there may be at once.
        lease_seconds: how long one may stay unused, and how long a call may take.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        name: str,
        isolation: registry.Isolation,
        max_instances: int,
        lease_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._name = name
        self._isolation = isolation
        self._max_instances = max_instances
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._lent: dict[int, Instance] = {}

    def __len__(self) -> int:
        return len(self._lent)

    def create(self) -> int:
        """A new instance's id.

        Raises:
            Refused: all are lent out (503).
        """
        if len(self._lent) >= self._max_instances:
            raise Refused(
                503,
                f"all {self._max_instances} instances of {self._name!r} are in use; close one, or wait until a lease of"
                f" {self._lease_seconds:g} s runs out",
            )
        id = secrets.randbelow(IDS)
        self._lent[id] = Instance(registry.make(self._name, self._isolation), self._clock())
        return id

    def get(self, id: int) -> Instance:
        """The instance, whose lease begins anew.

        Raises:
            Refused: there is none (404).
        """
        if id not in self._lent:
            raise Refused(
                404, f"there is no instance {id}; it was closed, or its lease of {self._lease_seconds:g} s ran out"
            )
        self._lent[id].used = self._clock()
        return self._lent[id]

    async def reset(self, id: int, task: Task) -> tuple[Message, ...]:
        """The first observation.

        Raises:
            Refused: there is no such instance (404), or another call is under way (409).
            AgentGymError: what the environment's reset raised.
        """
        instance = self.get(id)
        with self._turn(id, instance, "reset"):
            if instance.spent:
                await self._end(instance)
                instance.environment = registry.make(self._name, self._isolation)
            instance.spent = not instance.environment.facts.reusable
            seen = await self._call(instance, "reset", _messages(instance.environment.reset(task)))
        instance.observation, instance.score = _text(seen), 0.0
        return seen

    async def step(self, id: int, action: Message) -> StepResult:
        """What the environment answers to an action. Raises as `reset` does."""
        instance = self.get(id)
        with self._turn(id, instance, "step"):
            result = await self._call(instance, "step", _result(instance.environment.step(action)))
        instance.observation = _text(result.observation)
        instance.score += result.reward
        return result

    async def close(self, id: int) -> bool:
        """Close an instance, also with a call under way. False: there is none."""
        instance = self._lent.pop(id, None)
        if instance:
            await self._end(instance)
        return instance is not None

    async def reap(self) -> None:
        """Close what was not used for a lease."""
        latest = self._clock() - self._lease_seconds
        await self._close_all([id for id, instance in self._lent.items() if instance.used <= latest])

    async def close_all(self) -> None:
        await self._close_all(list(self._lent))

    async def _close_all(self, ids: Sequence[int]) -> None:
        await asyncio.gather(*map(self.close, ids))

    @contextmanager
    def _turn(self, id: int, instance: Instance, call: str) -> Iterator[None]:
        if instance.call:
            raise Refused(409, f"instance {id} is busy with its {instance.call}")
        instance.call = call
        try:
            yield
        finally:
            instance.call = ""

    async def _call(self, instance: Instance, call: str, awaitable: Awaitable[T]) -> T:
        what = f"{call} of environment {self._name!r}"
        try:
            return await boundary(awaitable, EnvironmentFailed, what, self._lease_seconds)
        except BoundaryError:
            instance.spent = True
            raise

    async def _end(self, instance: Instance) -> None:
        what = f"close of environment {self._name!r}"
        with suppress(BoundaryError):  # left behind, as `registry.opened` does
            await boundary(instance.environment.close(), EnvironmentFailed, what, registry.CLOSE_SECONDS)


async def _messages(reset: Awaitable[Sequence[Message]]) -> tuple[Message, ...]:
    return tuple(require_type(message, Message) for message in await reset)


async def _result(step: Awaitable[StepResult]) -> StepResult:
    return require_type(await step, StepResult)


def _text(messages: Sequence[Message]) -> str:
    return "\n".join(message.content for message in messages)
