"""`Judge`: a model's score of a trajectory, by a rubric alone, or beside the other trajectories of its task.

    async with opened(JudgeSettings("http://127.0.0.1:8000/v1", "qwen3-8b")) as judge:
        judged = await judge.absolute(trajectory)
        ...
        scores = [j.score for j in await judge.relative(group, seed=0)]

A score lies from 0 to 1. Scores of `relative` compare within their group only. What can't be judged raises.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from agentgym_rl.judge.prompt import absolute_prompt, read_rubric, relative_prompt
from agentgym_rl.judge.server import JudgeServer, Spent
from agentgym_rl.judge.settings import JudgeSettings
from agentgym_rl.judge.transcript import transcript
from agentgym_rl.judge.verdict import absolute_form, relative_form
from agentgym_rl.trajectory import Trajectory


class Judged(NamedTuple):
    """What the judge made of one trajectory, or of a group."""

    scores: tuple[float, ...]
    """From 0 to 1, in the order of the trajectories that were given."""
    reason: str
    spent: Spent


class Judge:
    """Belongs to the event loop on which it is used.

    Raises:
        ConfigurationError: the rubric can't be read, or the environment names a proxy that can't be used.
    """

    def __init__(self, settings: JudgeSettings):
        self.rubric = read_rubric(settings.rubric)
        self._server = JudgeServer(settings)

    @property
    def spent(self) -> Spent:
        """What all verdicts have cost so far."""
        return self._server.spent

    async def absolute(self, trajectory: Trajectory) -> Judged:
        """The one score of a trajectory by the rubric.

        Raises:
            JudgeFailed: no readable verdict within the tries and the deadline.
            ConfigurationError: the server refuses the key, the model or the url.
        """
        verdict, spent = await self._server.ask(
            lambda: absolute_prompt(transcript(trajectory), self.rubric), absolute_form()
        )
        return Judged(verdict.scores, verdict.reason, spent)

    async def relative(self, trajectories: Sequence[Trajectory], seed: int) -> Judged:
        """A score of each trajectory of one task, all seen side by side, in an order that the seed draws.

        Raises:
            JudgeFailed: no readable verdict on all of them within the tries and the deadline.
            ConfigurationError: the server refuses the key, the model or the url.
        """
        shown = list(range(len(trajectories)))
        random.Random(seed).shuffle(shown)
        verdict, spent = await self._server.ask(
            lambda: relative_prompt([transcript(trajectories[place]) for place in shown], self.rubric),
            relative_form(len(shown)),
        )
        score_of = dict(zip(shown, verdict.scores, strict=True))
        return Judged(tuple(score_of[place] for place in range(len(shown))), verdict.reason, spent)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._server.aclose()


@asynccontextmanager
async def opened(settings: JudgeSettings) -> AsyncIterator[Judge]:
    """A judge whose connections are closed at the end."""
    judge = Judge(settings)
    try:
        yield judge
    finally:
        await judge.aclose()
