"""Over-sampling against stragglers and failures: start more episodes than are needed, keep `keep` of them.

Invariant: every start is accounted for exactly once, whatever happens; nothing is left running. Which ones are kept
decides what is learned from, so each way of choosing says which bias it has. Not over-sampling has none.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import Enum
from typing import NamedTuple

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.together import cancel
from agentgym_rl.trajectory import Trajectory

Start = Callable[[], Awaitable[Trajectory]]
"""Starts one episode."""


class Choice(Enum):
    """Which of the episodes that don't fail are kept.

    Both leave out failed ones: where long or hard episodes fail more often, what is kept has fewer of them. No choice
    can mend that.
    """

    DRAWN_SPARES = "drawn_spares"
    # A seed draws which starts are spare before any begins. A spare replaces one that failed, in the drawn order, and
    # never one that is slow: how long an episode takes has no influence. Saves the time of starting again after a
    # failure; a straggler is still waited for.
    FIRST_FINISHED = "first_finished"
    # The first to finish. Prefers short and quick episodes: failing early or solving fast is over-represented, and so
    # is whatever goes along with brevity. Waits for no straggler.


class Fate(Enum):
    """What became of one start."""

    KEPT = "kept"
    FAILED = "failed"
    SPARE = "spare"  # finished, and was not needed
    CANCELLED = "cancelled"  # was under way when enough others were there


class Outcome(NamedTuple):
    """One start, accounted for."""

    fate: Fate
    trajectory: Trajectory | None
    """None: cancelled."""


async def oversample(
    starts: Sequence[Start], keep: int | None = None, choice: Choice = Choice.DRAWN_SPARES, seed: int = 0
) -> tuple[Outcome, ...]:
    """Start all, keep some, cancel what is not needed any more.

    Args:
        starts: one an episode, which should be alike (the same task).
        keep: how many are wanted, from 1 to the number of starts; fewer are kept where too many fail. None: all, which
            turns over-sampling off.
        choice: which ones.
        seed: of the draw of the spares.

    Returns:
        What became of each start, in the order of `starts`.

    Raises:
        ConfigurationError: `keep` can't work. And whatever a start raises; the others are then cancelled.
    """
    keep = len(starts) if keep is None else keep
    if not 1 <= keep <= len(starts):
        raise ConfigurationError(f"keep must be from 1 to the number of starts, {len(starts)}; given: {keep}")
    finished: dict[int, Trajectory] = {}
    order = finished if choice is Choice.FIRST_FINISHED else drawn_order(len(starts), seed)
    kept = await _kept(starts, keep, order, finished)
    return tuple(_outcome(number, kept, finished) for number in range(len(starts)))


def drawn_order(count: int, seed: int) -> list[int]:
    """Numbers of the starts; the spares are those behind the first `keep`, and replace failed ones in this order."""
    return random.Random(seed).sample(range(count), count)


async def _kept(
    starts: Sequence[Start], keep: int, order: Collection[int], finished: dict[int, Trajectory]
) -> list[int]:
    """Run the starts until it is decided which are kept; `finished` is filled in the order in which they finish."""

    async def run(number: int) -> None:
        finished[number] = await starts[number]()

    running = {asyncio.ensure_future(run(number)) for number in range(len(starts))}
    pending = running
    try:
        while (kept := _decided(order, finished, keep, len(starts))) is None:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        return kept
    finally:
        await cancel(running)


def _decided(order: Collection[int], finished: dict[int, Trajectory], keep: int, count: int) -> list[int] | None:
    """The first `keep` in `order` that did not fail; None while one that comes before is under way."""
    kept: list[int] = []
    for number in order:
        if number not in finished:
            return None
        if not finished[number].failed:
            kept.append(number)
        if len(kept) == keep:
            return kept
    return kept if len(finished) == count else None


def _outcome(number: int, kept: Collection[int], finished: dict[int, Trajectory]) -> Outcome:
    trajectory = finished.get(number)
    if trajectory is None:
        return Outcome(Fate.CANCELLED, None)
    if number in kept:
        return Outcome(Fate.KEPT, trajectory)
    return Outcome(Fate.FAILED if trajectory.failed else Fate.SPARE, trajectory)
