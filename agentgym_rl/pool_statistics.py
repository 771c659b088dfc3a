"""The pool in numbers: how one kind of environment stands now, and what happened to it in a period.

Invariant: whatever was killed is in exactly one period; a peak that lasts into the next period is in both. Numbers of
several pools add up. The sum of their peaks is an upper bound, since they need not have come at the same moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TypeVar


@dataclass(frozen=True)
class PoolStatistics:
    """One kind of environment: how things stand (leased to running), and what has happened so far (the rest)."""

    leased: int = 0
    waiting: int = 0
    """Requests without an instance, since every slot is taken."""
    closing: int = 0
    """Instances on their way out."""
    idle: int = 0
    """Instances kept for the next lease."""
    running: int = 0
    """Calls of lent instances that are not answered yet."""
    created: int = 0
    """Instances made."""
    reused: int = 0
    """Leases that got an idle instance."""
    failed: int = 0
    """Leases that spoiled their instance: a call failed or was cut off, the holder raised, or the pool ended it."""
    killed: int = 0
    """Instances that the pool ended: their lease ran out, their worker was over a limit, or the pool was closed."""
    abandoned: int = 0
    """Instances that were not closed by the deadline; a thread of theirs may be hanging."""
    waited_seconds: float = 0.0
    """Sum over all requests of the time until they had a slot."""

    def __add__(self, other: PoolStatistics) -> PoolStatistics:
        """Of two pools together."""
        return PoolStatistics(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class PoolPeriod:
    """One kind of environment over a period, such as a training step."""

    running_max: int = 0
    """Most calls at a time that were not answered yet."""
    leased_max: int = 0
    """Most instances lent at a time."""
    waiting_max: int = 0
    """Most requests at a time that waited for a slot."""
    killed: int = 0
    """Instances that the pool ended."""

    def __add__(self, other: PoolPeriod) -> PoolPeriod:
        """The same period of another pool."""
        return PoolPeriod(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def then(self, later: PoolPeriod) -> PoolPeriod:
        """This period and the next one of the same pool as one."""
        return PoolPeriod(
            max(self.running_max, later.running_max),
            max(self.leased_max, later.leased_max),
            max(self.waiting_max, later.waiting_max),
            self.killed + later.killed,
        )


Numbers = TypeVar("Numbers", PoolStatistics, PoolPeriod)


def summed(pools: Iterable[Mapping[str, Numbers]]) -> dict[str, Numbers]:
    """Environment -> its numbers over all pools."""
    total: dict[str, Numbers] = {}
    for pool in pools:
        for kind, numbers in pool.items():
            total[kind] = total[kind] + numbers if kind in total else numbers
    return total


class Peak:
    """The most of something at a time, over one period after the other."""

    def __init__(self) -> None:
        self._most = 0

    def note(self, now: int) -> None:
        """Call after each rise."""
        self._most = max(self._most, now)

    def end_period(self, now: int) -> int:
        """The period's peak; the next period begins with what there is now."""
        most, self._most = self._most, now
        return most
