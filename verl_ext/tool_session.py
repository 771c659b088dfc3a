"""One trajectory's environment behind the calls of verl's own tool loop, which tells tools of calls and nothing else.

`play()` plays the environment in a task of its own, with a policy that waits for the next call; so deadlines, typed
failures and the end of an episode are what they are everywhere. verl has no hook for a trajectory's end: the session
ends with the `AgentData` that verl makes for each trajectory, when nobody holds that any more, and by the episode's
deadline at the latest.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agentgym_rl.messages import Message
from agentgym_rl.policy import Reply
from agentgym_rl.trajectory import Trajectory, Turn

OVER = "The episode is over."


@dataclass(frozen=True)
class Answer:
    """What a call gave."""

    text: str
    reward: float = 0.0
    ended: bool = False
    success: bool | None = None


class ToolSession:
    """Plays one task, call by call.

    Args:
        play_with: opens an environment and plays the task with a policy, as `Playing` says.
    """

    def __init__(self, play_with: Playing):
        self._calls: asyncio.Queue[tuple[Message, asyncio.Future[Answer]]] = asyncio.Queue()
        self._asked: asyncio.Future[Answer] | None = None
        self._turn: Turn | None = None
        self.playing = asyncio.ensure_future(self._play(play_with))

    async def call(self, message: Message) -> Answer:
        """Tell the environment what a call says, behind those that came before it.

        Returns:
            The answer; of a call behind the episode's end, that it is over.

        Raises:
            EpisodeFailed: environment or tool failed, now or before.
            ConfigurationError, DataError: the task can't be played.
        """
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._calls.put_nowait((message, answer))
        either: set[asyncio.Future[Any]] = {answer, self.playing}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        trajectory = self.playing.result()
        if trajectory.failure is not None:
            raise EpisodeFailed(trajectory)
        return Answer(OVER, ended=True, success=trajectory.success)

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        """The policy of `play()`: the next call, once the last one is answered."""
        self._answer(ended=False, success=None)
        message, self._asked = await self._calls.get()
        return Reply(message)

    def note(self, turn: Turn) -> None:
        self._turn = turn

    async def _play(self, play_with: Playing) -> Trajectory:
        trajectory = await play_with(self, self.note)
        if not trajectory.failed:
            self._answer(ended=True, success=trajectory.success)
        return trajectory

    def _answer(self, ended: bool, success: bool | None) -> None:
        """Answer the call that the last turn was for."""
        if self._asked is None or self._turn is None:
            return
        said = [message.content for message in self._turn.observation] + ([OVER] if ended else [])
        self._asked.set_result(Answer("\n".join(said), self._turn.reward, ended, success))
        self._asked = self._turn = None


Playing = Callable[[ToolSession, Callable[[Turn], None]], Awaitable[Trajectory]]
"""Plays with a session as the policy, and tells it each turn."""


class EpisodeFailed(Exception):
    """The session's environment failed, so no call of it can be answered."""

    def __init__(self, trajectory: Trajectory):
        assert trajectory.failure is not None
        super().__init__(f"{trajectory.failure.cause}: {trajectory.failure.message}")
        self.trajectory = trajectory


class Sessions:
    """The sessions of a process, each by the object that stands for its trajectory.

    Not by verl's request id: with `full_determinism` trajectories of different steps have the same.
    """

    def __init__(self) -> None:
        self._sessions: weakref.WeakKeyDictionary[Any, ToolSession] = weakref.WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, trajectory: Any, play_with: Callable[[], Playing]) -> ToolSession:
        """The session of a trajectory, begun if this is its first call."""
        if trajectory not in self._sessions:
            session = ToolSession(play_with())
            self._sessions[trajectory] = session
            loop = asyncio.get_running_loop()
            weakref.finalize(trajectory, _end, loop, session.playing).atexit = False
        return self._sessions[trajectory]


def _end(loop: asyncio.AbstractEventLoop, playing: asyncio.Future[Trajectory]) -> None:
    """Runs where the trajectory's last reference went, which may be another thread."""
    with suppress(RuntimeError):  # the event loop is closed, and with it whatever ran on it
        loop.call_soon_threadsafe(playing.cancel)
