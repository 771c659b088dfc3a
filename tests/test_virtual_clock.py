"""The clock that jumps over waits: benchmarks measure on it, tests run on it."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.rollout.virtual_clock import run


def test_a_wait_passes_on_the_loops_clock_alone() -> None:
    async def two_waits() -> list[float]:
        clock = asyncio.get_running_loop().time
        seen = [clock()]
        for seconds in (1e6, 0.5):
            await asyncio.sleep(seconds)
            seen.append(clock())
        return seen

    assert run(two_waits()) == [0.0, 1e6, 1e6 + 0.5]


def test_a_wait_that_nothing_ends_is_an_error() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="^everybody waits for something that nobody will do: a hang$"):
        run(hang())


def test_a_task_that_is_left_behind_is_an_error_that_shows_it() -> None:
    left = []

    async def leave_one() -> None:
        left.append(asyncio.create_task(asyncio.sleep(10), name="forgotten"))

    with pytest.raises(RuntimeError, match="^1 tasks were left under way; one is .*forgotten"):
        run(leave_one())
    left[0]._log_destroy_pending = False  # its loop is closed: nobody can end it
