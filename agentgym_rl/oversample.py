"""Over-sampling against stragglers and failures: start more episodes than are needed, keep `keep` of them.

Invariant: every start is accounted for exactly once, whatever happens; nothing is left running. Which ones are kept
decides what is learned from, so each way of choosing says which bias it has. Not over-sampling has none.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.together import cancel


class Played(Protocol):
    """An episode that has ended, such as a trajectory."""

    @property
    def failed(self) -> bool:
        """It can't be kept."""


T = TypeVar("T", bound=Played)
Start = Callable[[], Awaitable[T]]
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
    CANCELLED = "cancelled"  # was under way, or not yet begun, when it was sure not to be needed


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """One start, accounted for."""

    fate: Fate
    episode: T | None
    """None: cancelled."""


def drawn_order(count: int, seed: int) -> list[int]:
    """Numbers of the starts; the spares are those behind the first `keep`, and replace failed ones in this order."""
    return random.Random(seed).sample(range(count), count)


class Gathering(Generic[T]):
    """The starts that compete for `keep` places; each comes on its own, and is told its fate once that is certain.

    Args:
        count: of the starts. All must come: whoever might have to step back for one that is missing waits for it.
        keep: how many are wanted; fewer are kept where too many fail.
        choice: which ones.
        seed: of the draw of the spares.

    Raises:
        ConfigurationError: not 1 <= keep <= count.
    """

    def __init__(self, count: int, keep: int, choice: Choice, seed: int):
        if not 1 <= keep <= count:
            raise ConfigurationError(f"keep must be from 1 to the number of starts, {count}; given: {keep}")
        self._keep = keep
        self._drawn = drawn_order(count, seed) if choice is Choice.DRAWN_SPARES else None
        self._lost: dict[int, bool] = {}
        """Number -> whether it can't be kept, as it failed or was cancelled; in the order in which they ended."""
        self._playing: dict[int, asyncio.Task[T]] = {}
        """Those that were not cancelled: a second time would break off how they clean up."""
        self._told: dict[int, asyncio.Future[Fate]] = {}

    async def settle(self, number: int, start: Start[T]) -> Outcome[T]:
        """Play one start, unless it is needless by now, and wait until it is certain what becomes of it.

        Raises:
            Whatever the start raises. It then counts as failed, and so does one that is cancelled from outside; if it
                had ended well by then, it may be too late to replace it.
        """
        if self._fate(number) is Fate.CANCELLED:
            return self._cancelled(number)
        told = self._told[number] = asyncio.get_running_loop().create_future()
        playing = self._playing[number] = asyncio.ensure_future(_play(start))
        try:
            await asyncio.wait({playing})
            if playing.cancelled() and number not in self._playing:
                return self._cancelled(number)
            episode = playing.result()
            self._end(number, episode.failed)
            return Outcome(await told, episode)
        except BaseException:
            self._end(number, lost=True)
            raise
        finally:
            await cancel([playing])

    def _cancelled(self, number: int) -> Outcome[T]:
        self._end(number, lost=True)  # nobody waits for it any more
        return Outcome(Fate.CANCELLED, None)

    def _end(self, number: int, lost: bool) -> None:
        """Note how a start ended, and tell everybody whose fate that makes certain."""
        self._lost[number] = lost
        for other, told in self._told.items():
            fate = self._fate(other)
            if fate is Fate.CANCELLED and other in self._playing:
                self._playing.pop(other).cancel()  # it answers for itself: it may have finished this very moment
            elif fate not in (None, Fate.CANCELLED) and not told.done():
                told.set_result(fate)

    def _fate(self, number: int) -> Fate | None:
        """What is certain about a start; None: it depends on one that comes before it and is under way."""
        if self._lost.get(number):
            return Fate.FAILED
        ended = number in self._lost
        before = [self._lost.get(other) for other in self._before(number)]
        if before.count(False) >= self._keep:
            return Fate.SPARE if ended else Fate.CANCELLED
        if ended and len(before) - before.count(True) < self._keep:
            return Fate.KEPT
        return None

    def _before(self, number: int) -> list[int]:
        """The starts that are kept rather than this one."""
        order = list(self._lost) if self._drawn is None else self._drawn
        return order[: order.index(number)] if number in order else order


async def _play(start: Start[T]) -> T:
    return await start()
