"""A language model's score as a reward, in a weighted sum with others.

All trajectories of an event loop that name the same judge share it, until the loop ends: its connections, its limit of
concurrency, its cache. A judge that fails gives no reward: a JudgeFailed, by its deadline at the latest.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Any

from agentgym_rl.judge.judge import Judge
from agentgym_rl.judge.settings import PARAMETERS, AnswerFormat, JudgeSettings
from agentgym_rl.trajectory import Trajectory

_Key = tuple[asyncio.AbstractEventLoop, str]
"""Event loop and settings."""
_judges: dict[_Key, tuple[Judge, AsyncIterator[None]]] = {}
"""The judges, and what closes each."""


async def judge(
    trajectory: Trajectory,
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
) -> list[float]:
    """The judge's score from 0 to 1 of the whole trajectory, on the last turn.

    Args:
        trajectory: one without a turn is not judged.
        url, model, rubric, ...: see `JudgeSettings`.
        concurrency: in each process that computes rewards.
        deadline_seconds: of the verdict; the wait for a place under the limit comes before it.

    Raises:
        JudgeFailed: there is no readable verdict.
        ConfigurationError: settings that can't work, or that the server refuses.
    """
    if not trajectory.turns:
        return []
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
    judged = await (await _shared(settings)).absolute(trajectory)
    return [0.0] * (len(trajectory.turns) - 1) + list(judged.scores)


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
