"""Where the sessions of a group wait for each other, for rewards that compare their trajectories.

verl starts all sessions of a group in one call, in one process and on one event loop (`_run_prompt` in verl/trainer/
ppo/v1/agent_loop_tq.py; a batch is spread over the workers by whole groups), so here they meet. They are compared in
the agent loop and not in the trainer, between rollout and advantage: the trainer has tokens, and no trajectories; what
it is given must be rewarded already, for dynamic sampling to tell a flat group; and here the verdict on one group falls
into the time in which others are played.

Invariants: a session takes a seat before it does anything that may fail, and whoever gets up, for whatever reason, is
not waited for any more. So the wait ends when the last sibling has played, which is by its own deadlines, and nothing
else is waited for. There is one question a group and try, of which every session hears the same; it is given up when
nobody is left to hear it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.rewards import Reward, Weights, weighted_group_sum
from agentgym_rl.together import cancel
from agentgym_rl.trajectory import Trajectory

Compare = Callable[[Sequence[Trajectory]], Awaitable["list[Reward]"]]


class Comparisons:
    """The groups of one worker process.

    Args:
        weights: of the group rewards.
    """

    def __init__(self, weights: Weights):
        self._compare = weighted_group_sum(weights)
        self._groups: dict[str, _Group] = {}

    def __len__(self) -> int:
        """Groups with a session that has not left yet."""
        return len(self._groups)

    @asynccontextmanager
    async def seat(self, group: str, session: int, sessions: int) -> AsyncIterator[Seat]:
        """A session's place among its siblings, who wait for it until it brings its trajectory or leaves.

        Args:
            group: uid of the group.
            session: number within the group, from 0.
            sessions: of the group; all of them must come.

        Raises:
            ConfigurationError: no such session, or it came before.
        """
        siblings = self._groups.get(group) or _Group(sessions, self._compare)
        siblings.enter(group, session)
        self._groups[group] = siblings
        try:
            yield Seat(siblings, session)
        finally:
            if siblings.left_by(session):
                del self._groups[group]
            await siblings.give_up_if_unheard()


class Seat:
    """What a session does among its siblings."""

    def __init__(self, group: _Group, session: int):
        self._group = group
        self._session = session

    async def compared(self, trajectory: Trajectory, tries: int = 1) -> Reward | None:
        """Wait for the siblings, and be compared with those that brought a trajectory too.

        Args:
            trajectory: of this session, with a turn at least.
            tries: from 1; higher after a failure, to ask once more.

        Returns:
            What the group rewards give; None where no sibling is left, since a comparison then says nothing.

        Raises:
            BoundaryError: what was asked has failed, for all of the group alike.
            And whatever else a reward function raises.
        """
        self._group.bring(self._session, trajectory)
        return await self._group.reward(self._session, tries)


class _Group:
    """The sessions of one group."""

    def __init__(self, sessions: int, compare: Compare):
        self._compare = compare
        self._sessions = range(sessions)
        self._came: set[int] = set()
        self._seated: set[int] = set()
        self._playing = set(self._sessions)
        """Those that may still bring a trajectory."""
        self._brought: dict[int, Trajectory] = {}
        """Of those that wait for a reward."""
        self._all_there = asyncio.Event()
        self._questions: dict[int, asyncio.Task[dict[int, Reward | None]]] = {}
        """By try."""

    def enter(self, group: str, session: int) -> None:
        if session not in self._sessions:
            raise ConfigurationError(
                f"group {group!r} has sessions 0 to {len(self._sessions) - 1} (rollout.n); given: {session}"
            )
        if session in self._came:
            raise ConfigurationError(f"session {session} of group {group!r} came twice")
        self._came.add(session)
        self._seated.add(session)

    def bring(self, session: int, trajectory: Trajectory) -> None:
        self._brought[session] = trajectory
        self._ended(session)

    async def reward(self, session: int, tries: int) -> Reward | None:
        await self._all_there.wait()
        if tries not in self._questions:
            self._questions[tries] = asyncio.ensure_future(self._ask(dict(sorted(self._brought.items()))))
        question = self._questions[tries]
        await asyncio.wait({question})  # a session that is cancelled does not take the question with it
        return question.result()[session]

    def left_by(self, session: int) -> bool:
        """Note that a session is gone; returns whether all are."""
        self._seated.discard(session)
        self._brought.pop(session, None)
        self._ended(session)
        return not self._seated and len(self._came) == len(self._sessions)

    async def give_up_if_unheard(self) -> None:
        if not self._brought:
            await cancel(self._questions.values())

    def _ended(self, session: int) -> None:
        self._playing.discard(session)
        if not self._playing:
            self._all_there.set()

    async def _ask(self, brought: dict[int, Trajectory]) -> dict[int, Reward | None]:
        """Session -> its reward, of all that brought a trajectory."""
        if len(brought) < 2:
            return dict.fromkeys(brought)
        rewards = await self._compare(list(brought.values()))
        return dict(zip(brought, rewards, strict=True))
