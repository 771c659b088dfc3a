"""A language model's score as a reward, in a weighted sum with others: of a trajectory alone, or beside its group's.

All trajectories of an event loop that name the same judge share it, until the loop ends: its connections, its limit of
concurrency, its cache. A judge that fails gives no reward: a JudgeFailed, by its deadline at the latest.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from agentgym_rl.judge.judge import Judge
from agentgym_rl.judge.settings import PARAMETERS, AnswerFormat, JudgeSettings
from agentgym_rl.judge.transcript import transcript
from agentgym_rl.rewards import group_reward
from agentgym_rl.trajectory import Trajectory

_Given = TypeVar("_Given")
"""A trajectory, or those of a group."""
_Scores = TypeVar("_Scores")
"""One number a turn, or such a list for each trajectory of a group."""
_Key = tuple[asyncio.AbstractEventLoop, str]
"""Event loop and settings."""
_judges: dict[_Key, tuple[Judge, AsyncIterator[None]]] = {}
"""The judges, and what closes each."""


def _asking(ask: Callable[[Judge, _Given], Awaitable[_Scores]]) -> Callable[..., Awaitable[_Scores]]:
    """The reward function that asks a judge of these settings; each is documented with `JudgeSettings`.

    `concurrency` is that of each process that computes rewards. `deadline_seconds` are those of a verdict; the wait for
    a place under the limit comes before it.
    """

    async def asks(
        given: _Given,
        url: str,
        model: str,
        rubric: str | None = None,
        cache: str | None = None,
        answer_format: AnswerFormat = "json_schema",
        parameters: Mapping[str, Any] | None = None,
        concurrency: int | str = 8,
        tries: int = 3,
        request_seconds: float = 30.0,
        deadline_seconds: float = 60.0,
    ) -> _Scores:
        settings = JudgeSettings(
            url=url,
            model=model,
            rubric=rubric,
            answer_format=answer_format,
            cache=cache,
            concurrency=concurrency,
            tries=tries,
            request_seconds=request_seconds,
            deadline_seconds=deadline_seconds,
            parameters=PARAMETERS if parameters is None else parameters,
        )
        return await ask(await _shared(settings), given)

    asks.__name__, asks.__doc__ = ask.__name__, ask.__doc__  # not `functools.wraps`: the signature is this one
    return asks


@_asking
async def judge(asked: Judge, trajectory: Trajectory) -> list[float]:
    """The judge's score from 0 to 1 of the whole trajectory, on the last turn; one without a turn is not judged.

    Raises:
        JudgeFailed: there is no readable verdict.
        ConfigurationError: settings that can't work, or that the server refuses.
    """
    if not trajectory.turns:
        return []
    judged = await asked.absolute(trajectory)
    return _on_last_turn(trajectory, judged.scores[0])


@group_reward
@_asking
async def relative_judge(asked: Judge, trajectories: Sequence[Trajectory]) -> list[list[float]]:
    """The judge's score from 0 to 1 of each trajectory of a group, all seen side by side, on its last turn.

    One question a group, which needs room for all its records. What they say draws the order in which they are shown,
    so that the same trajectories in another order are the same question, to the judge and to the cache.

    Raises:
        JudgeFailed: there is no readable verdict on all of them.
        ConfigurationError: settings that can't work, or that the server refuses.
    """
    shown = [transcript(trajectory) for trajectory in trajectories]
    places = sorted(range(len(shown)), key=shown.__getitem__)
    seed = zlib.crc32("\n".join(sorted(shown)).encode())
    judged = await asked.relative([trajectories[place] for place in places], seed)
    score_of = dict(zip(places, judged.scores, strict=True))
    return [_on_last_turn(trajectory, score_of[place]) for place, trajectory in enumerate(trajectories)]


def _on_last_turn(trajectory: Trajectory, score: float) -> list[float]:
    return [0.0] * (len(trajectory.turns) - 1) + [score]


async def _shared(settings: JudgeSettings) -> Judge:
    """The judge of the running event loop that has these settings."""
    key = asyncio.get_running_loop(), json.dumps(asdict(settings), sort_keys=True)
    if key not in _judges:
        shared = Judge(settings)
        _judges[key] = shared, _closing(key, shared)
        await anext(_judges[key][1])
    return _judges[key][0]


async def _closing(key: _Key, shared: Judge) -> AsyncIterator[None]:
    """Begun, and never asked for more: a loop that ends, as `asyncio.run` has it, closes the generators begun in it."""
    try:
        yield
    finally:
        del _judges[key]
        await shared.aclose()
