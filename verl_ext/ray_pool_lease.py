"""A lease at a Ray actor as its holder sees it: an `Environment` whose every call goes to the actor and back.

Invariant: each call is answered by the end of the lease at the latest. An actor or node that is gone is the typed
failure `environment_crashed`, which names both; what the environment raised arrives as it was raised there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any
from uuid import uuid4

import ray
from ray.exceptions import NodeDiedError, ObjectLostError, RayActorError, WorkerCrashedError

from agentgym_rl.environment import Environment, StepResult
from agentgym_rl.environments.wire import decode_error
from agentgym_rl.errors import EnvironmentFailed, Manner, boundary
from agentgym_rl.messages import Message
from agentgym_rl.task import Task
from verl_ext.ray_pool_actor import PATIENCE_SECONDS, Offer, Reply

ANSWER_SECONDS = 5.0
"""How long an actor's answer may be under way on top of what was asked for."""
REST_SECONDS = 1.0
"""Pause before an actor is asked again that did not answer; Ray needs longer than this to restart one."""
_GONE = (RayActorError, NodeDiedError, WorkerCrashedError, ObjectLostError)


class Host:
    """One actor as this process sees it.

    Args:
        name: of the actor.
        handle: to call it with.
    """

    def __init__(self, name: str, handle: ray.actor.ActorHandle):
        self.load = 0
        """Leases and requests there, by its last answer and what went back since."""
        self.heard = time.monotonic()
        """Time of its last answer."""
        self.asked_again = 0.0
        """Time until which it is not asked for leases."""
        self._name = name
        self._node = "a node that it has not named yet"
        self._handle = handle
        self.fault = f"{self} has not answered yet"
        """What was wrong with it when it last did not answer."""

    def __str__(self) -> str:
        return f"actor {self._name!r} on {self._node}"

    async def acquire(self, id: str, seconds: float, what: str) -> Offer | None:
        """Ask for a lease; None: no answer, and no more questions for a while."""
        try:
            offer: Offer = (await self.answer(what, PATIENCE_SECONDS + ANSWER_SECONDS, "acquire", id, seconds)).result
        except EnvironmentFailed as error:
            if error.manner is Manner.RAISED:
                raise
            self.fault = str(error)
            self.asked_again = time.monotonic() + REST_SECONDS
            return None
        self.heard, self.load, self._node = time.monotonic(), offer.load, offer.node
        return offer

    async def answer(self, what: str, seconds: float, method: str, *arguments: Any) -> Reply:
        """Call the actor.

        Args:
            what: names the call in messages.
            seconds: deadline of the answer.

        Raises:
            EnvironmentFailed: the actor is gone or late, or that is what it answered.
            AgentGymError: what it answered.
        """
        reply = await boundary(self._reply(what, method, *arguments), EnvironmentFailed, f"{what} at {self}", seconds)
        if reply.error is not None:
            raise decode_error(reply.error, what)
        return reply

    def release(self, id: str, sound: bool) -> None:
        """Tell the actor, without waiting for its answer: a lease that it does not hear of ends by its deadline."""
        released: Future = self._handle.release.remote(id, sound).future()
        released.add_done_callback(Future.exception)  # otherwise Ray logs what nobody took

    async def _reply(self, what: str, method: str, *arguments: Any) -> Reply:
        try:
            return await getattr(self._handle, method).remote(*arguments)
        except _GONE as error:
            raise EnvironmentFailed(f"{what}: {self} is gone ({type(error).__name__})", Manner.CRASHED) from error


class RemoteEnvironment(Environment):
    """An environment at an actor, from the request for it to its release.

    Args:
        name: of the environment.
        host: the actor that is asked for it.
        seconds: deadline of the lease.
    """

    def __init__(self, name: str, host: Host, seconds: float):
        self.host = host
        self._id = uuid4().hex
        self._name = name
        self._seconds = seconds
        self._end = 0.0
        self._granted = False
        self._sound = True
        self._released = False

    async def acquire(self) -> bool:
        """Ask for the lease; returns whether it was granted.

        Raises:
            AgentGymError: the actor can't make such an environment.
        """
        offer = await self.host.acquire(self._id, self._seconds, f"lease of environment {self._name!r}")
        if offer is None or offer.hello is None:
            return False
        self.facts, self.instructions, self.tools = offer.hello
        self._end = time.monotonic() + self._seconds
        self._granted = True
        return True

    def spoil(self) -> None:
        """Say that nobody should borrow this instance again."""
        self._sound = False

    def release(self) -> None:
        """Give it back, or withdraw the request. Nothing can be called after it."""
        self._released = True
        self.host.load -= self._granted
        self.host.release(self._id, self._sound)

    async def reset(self, task: Task) -> Sequence[Message]:
        return await self._call("reset", task)

    async def step(self, action: Message) -> StepResult:
        return await self._call("step", action)

    async def close(self) -> None:
        """Close the instance; whoever lent it takes it back, but won't lend it again."""
        self.spoil()
        await self._call("close")

    async def expert_action(self) -> str:
        return await self._call("expert_action")

    async def actions(self) -> Sequence[str]:
        return await self._call("actions")

    async def snapshot(self) -> bytes:
        return await self._call("snapshot")

    async def restore(self, snapshot: bytes) -> None:
        await self._call("restore", snapshot)

    async def _call(self, method: str, *arguments: Any) -> Any:
        if self._released:
            raise EnvironmentFailed(f"environment {self._name!r} was used after its lease")
        left = self._end - time.monotonic()
        if left <= 0:
            late = f"the lease of environment {self._name!r} ended after {self._seconds:.3g} s"
            raise EnvironmentFailed(late, Manner.TIMED_OUT)
        what = f"{method} of environment {self._name!r}"
        try:
            reply = await self.host.answer(what, left + ANSWER_SECONDS, "call", self._id, method, *arguments)
        except BaseException:
            self.spoil()
            raise
        if reply.hello is not None:
            self.facts, self.instructions, self.tools = reply.hello
        return reply.result
