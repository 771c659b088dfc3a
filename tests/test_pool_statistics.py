"""The pool in numbers: peaks and kills of a period are exact, whatever its sessions do, and periods add up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from doubles import name_of, task_for
from doubles_pool import OtherPuppet, Puppet
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.errors import EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.pool_statistics import PoolPeriod, PoolStatistics, summed
from benchmarks.rollout.virtual_clock import run

PUPPET = name_of(Puppet)


@pytest.fixture(autouse=True)
def fresh_puppets():
    Puppet.made.clear()


# Arithmetic


def test_periods_in_turn_keep_the_higher_peaks_and_add_their_kills():
    assert PoolPeriod(3, 5, 0, 1).then(PoolPeriod(4, 2, 7, 2)) == PoolPeriod(4, 5, 7, 3)


def test_periods_of_several_pools_add_up():
    one, other = {"a": PoolPeriod(3, 5, 0, 1), "b": PoolPeriod(1, 1, 1, 0)}, {"a": PoolPeriod(4, 2, 7, 2)}
    assert summed([one, other]) == {"a": PoolPeriod(7, 7, 7, 3), "b": PoolPeriod(1, 1, 1, 0)}
    assert summed([]) == {}


def test_statistics_of_several_pools_add_up_field_by_field():
    ones, numbered = PoolStatistics(*[1] * 11), PoolStatistics(*range(11))
    assert ones + numbered == PoolStatistics(*range(1, 12))


# One pool


async def hang(environment):
    """A call that comes back when its lease ends."""
    await environment.reset(task_for(Puppet))
    with pytest.raises(EnvironmentFailed):
        await environment.step(assistant("hang"))


def test_a_call_is_running_until_it_is_answered_by_its_instance_or_by_the_end_of_its_lease():
    async def two_calls_in_three_leases():
        async with EnvironmentPool(3) as pool:
            async with pool.lease(PUPPET), pool.lease(PUPPET, 5) as short, pool.lease(PUPPET, 8) as long:
                calls = [asyncio.create_task(hang(short)), asyncio.create_task(hang(long))]
                seen = []
                for _ in range(3):
                    await asyncio.sleep(3)
                    seen.append((pool.statistics()[PUPPET].running, pool.end_period()[PUPPET]))
                await asyncio.gather(*calls)
            return seen

    # at 3 s both hang; at 6 s one was killed, and both had hung at the beginning of that period; at 9 s none is left
    assert run(two_calls_in_three_leases()) == [
        (2, PoolPeriod(running_max=2, leased_max=3, killed=0)),
        (1, PoolPeriod(running_max=2, leased_max=3, killed=1)),
        (0, PoolPeriod(running_max=1, leased_max=2, killed=1)),
    ]


def test_kinds_are_counted_apart():
    async def one_of_each():
        async with EnvironmentPool(2) as pool, pool.lease(PUPPET), pool.lease(PUPPET):
            async with pool.lease(name_of(OtherPuppet)):
                return pool.end_period()

    assert run(one_of_each()) == {PUPPET: PoolPeriod(leased_max=2), name_of(OtherPuppet): PoolPeriod(leased_max=1)}


def test_what_the_close_of_a_pool_ends_was_killed():
    async def close_during_a_lease():
        pool = EnvironmentPool(2)
        async with pool.lease(PUPPET), pool.lease(PUPPET):
            await pool.close()
        return pool.end_period()[PUPPET]

    assert run(close_during_a_lease()) == PoolPeriod(leased_max=2, killed=2)


# Whatever the sessions do


class Session(NamedTuple):
    """When it asks, how long it holds its instance, and its lease's deadline."""

    asks: float
    holds: float
    deadline: float

    @property
    def killed(self) -> bool:
        return self.holds > self.deadline


@st.composite
def sessions(draw: st.DrawFn) -> list[Session]:
    """Of which no two things happen at one time: each lasts a fraction of its own longer, in binary digits."""
    numbers = st.lists(st.permutations(range(1, 7)).map(lambda order: order[:2]), min_size=1, max_size=12)
    return [
        Session(float(asks), holds + 0.5 ** (1 + asks), deadline + 0.5 ** (1 + asks))
        for asks, (holds, deadline) in enumerate(draw(numbers))
    ]


class Stay(NamedTuple):
    asked: float
    granted: float
    ended: float


def stays(planned: Sequence[Session], slots: int) -> list[Stay]:
    """The pool by hand: first come, first served; the lease ends by its holder or its deadline."""
    free = [0.0] * slots
    found = []
    for session in planned:
        granted = max(session.asks, min(free))
        ended = granted + min(session.holds, session.deadline)
        free[free.index(min(free))] = ended
        found.append(Stay(session.asks, granted, ended))
    return found


def peak(spans: Sequence[tuple[float, float]], begin: float, end: float) -> int:
    """Most spans at a time between begin and end."""
    moments = [begin, *(start for start, _ in spans if begin < start < end)]
    return max(sum(start <= moment < stop for start, stop in spans) for moment in moments)


READ_AFTER = 2.0**-20
"""Reads come at times at which nothing happens."""


@settings(max_examples=100)
@given(sessions(), st.integers(1, 4), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_peaks_and_kills_of_each_period_are_those_of_its_sessions(planned, slots, lengths):
    async def hold(pool, session):
        await asyncio.sleep(session.asks)
        async with pool.lease(PUPPET, session.deadline):
            await asyncio.sleep(session.holds)

    async def read_periods():
        clock = asyncio.get_running_loop().time
        seen = []
        async with EnvironmentPool({PUPPET: slots}) as pool:
            holders = [asyncio.create_task(hold(pool, session)) for session in planned]
            for length in [*lengths, 200]:  # the last one is longer than all sessions
                await asyncio.sleep(length + (READ_AFTER if not seen else 0.0))
                seen.append((clock(), pool.statistics()[PUPPET], pool.end_period()[PUPPET]))
            await asyncio.gather(*holders)
        return seen

    by_hand = stays(planned, slots)
    begin = 0.0
    for end, statistics, period in run(read_periods()):
        assert period == PoolPeriod(
            running_max=0,
            leased_max=peak([(stay.granted, stay.ended) for stay in by_hand], begin, end),
            waiting_max=peak([(stay.asked, stay.granted) for stay in by_hand], begin, end),
            killed=sum(
                session.killed and begin <= stay.ended < end for session, stay in zip(planned, by_hand, strict=True)
            ),
        )
        assert statistics.leased == sum(stay.granted <= end < stay.ended for stay in by_hand)
        assert statistics.waiting == sum(stay.asked <= end < stay.granted for stay in by_hand)
        assert statistics.leased + statistics.idle <= slots
        begin = end
    assert statistics.killed == sum(session.killed for session in planned)
    assert statistics.created + statistics.reused == len(planned)
