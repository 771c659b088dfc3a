"""Sessions of a verl group that are compared: all hear of one question, and nobody waits for one who is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from doubles_judge import trajectory_of
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.errors import ConfigurationError, JudgeFailed, Manner
from agentgym_rl.rewards import group_reward
from agentgym_rl.trajectory import Trajectory
from benchmarks.rollout.virtual_clock import run
from verl_ext.agent_loop.comparisons import Comparisons

UID = "1f0c2f5e-6f0b-4a53-9a58-0c7a1c6d3b11"


@dataclass(frozen=True)
class Session:
    """When it comes, how long it plays, how that ends, and when it is cancelled from outside, all in seconds."""

    comes: int = 0
    plays: int = 1
    ending: str = "ok"
    cancelled: float | None = None


@dataclass
class Asked:
    """A comparison of some seconds, which gives each session its number; fails as often as it is told to."""

    seconds: float = 2.0
    failures: int = 0
    groups: list[list[int]] = field(default_factory=list)
    given_up: int = 0

    async def __call__(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        numbers = [number_of(trajectory) for trajectory in trajectories]
        self.groups.append(numbers)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        if len(self.groups) <= self.failures:
            raise JudgeFailed("scripted", Manner.CRASHED)
        return [[float(number)] for number in numbers]


@group_reward
async def compare(trajectories, asks):
    return await asks(trajectories)


def comparisons_of(asks: Asked) -> Comparisons:
    return Comparisons({"test_comparisons:compare": {"weight": 1.0, "asks": asks}})


def number_of(trajectory: Trajectory) -> int:
    return int(trajectory.turns[0].reply.message.content)


async def one(comparisons, number, session, sessions, group=UID, tries=1):
    """A session's reward, "alone", or how else it ended."""
    await asyncio.sleep(session.comes)
    playing = asyncio.ensure_future(_played(comparisons, number, session, sessions, group, tries))
    if session.cancelled is not None:
        asyncio.get_running_loop().call_later(session.cancelled, playing.cancel)
    try:
        return await playing
    except (ConfigurationError, JudgeFailed) as error:
        return type(error).__name__
    except asyncio.CancelledError:
        return "cancelled"


async def _played(comparisons, number, session, sessions, group, tries):
    async with comparisons.seat(group, number, sessions) as seat:
        await asyncio.sleep(session.plays)
        if session.ending == "raises":
            raise ConfigurationError("no such level")
        if session.ending == "failed":
            return "failed"
        return await _heard(seat, trajectory_of(str(number)), tries)


async def _heard(seat, trajectory, tries, try_=1):
    try:
        reward = await seat.compared(trajectory, try_)
    except JudgeFailed:
        if try_ == tries:
            raise
        return await _heard(seat, trajectory, tries, try_ + 1)
    return "alone" if reward is None else reward.total


def told(*sessions: Session, asks: Asked, tries: int = 1):
    """What becomes of the sessions of one group; nothing of them may be left under way, or waited for."""
    comparisons = comparisons_of(asks)

    async def all_of_them():
        return await asyncio.gather(
            *(one(comparisons, number, session, len(sessions), tries=tries) for number, session in enumerate(sessions))
        )

    ends = run(all_of_them())
    assert len(comparisons) == 0
    return ends


def test_all_sessions_of_a_group_are_compared_in_one_question_however_long_each_plays():
    asks = Asked()
    assert told(Session(plays=9), Session(comes=3), Session(plays=0), asks=asks) == [0.0, 1.0, 2.0]
    assert asks.groups == [[0, 1, 2]]


@pytest.mark.parametrize("gone", [Session(ending="failed"), Session(ending="raises"), Session(plays=9, cancelled=4)])
@pytest.mark.parametrize("plays", [1, 7])
def test_one_that_is_gone_is_neither_waited_for_nor_compared(gone, plays):
    asks = Asked()
    first, *others = told(gone, Session(plays=plays), Session(), asks=asks)
    assert first in ("failed", "ConfigurationError", "cancelled")
    assert others == [1.0, 2.0]
    assert asks.groups == [[1, 2]]


def test_one_that_is_cancelled_while_it_waits_is_not_compared():
    asks = Asked()
    assert told(Session(cancelled=3), Session(plays=5), Session(), asks=asks) == ["cancelled", 1.0, 2.0]
    assert asks.groups == [[1, 2]]


def test_one_that_is_cancelled_while_the_question_is_asked_does_not_take_it_from_the_others():
    asks = Asked(seconds=4)
    assert told(Session(cancelled=3), Session(), Session(), asks=asks) == ["cancelled", 1.0, 2.0]
    assert asks.groups == [[0, 1, 2]]
    assert asks.given_up == 0


def test_a_question_that_nobody_waits_for_any_more_is_given_up():
    asks = Asked(seconds=900)
    assert told(Session(cancelled=3), Session(cancelled=2), Session(cancelled=3), asks=asks) == ["cancelled"] * 3
    assert asks.given_up == 1


def test_the_last_one_left_is_told_that_it_is_alone_and_nothing_is_asked():
    asks = Asked()
    assert told(Session(ending="failed"), Session(), Session(ending="raises"), asks=asks) == [
        *("failed", "alone", "ConfigurationError")
    ]
    assert told(Session(), asks=asks) == ["alone"]
    assert asks.groups == []


def test_a_failure_is_that_of_all_and_another_try_one_question_more():
    asks = Asked(failures=9)
    assert told(*[Session()] * 3, asks=asks) == ["JudgeFailed"] * 3
    assert asks.groups == [[0, 1, 2]]
    asks = Asked(failures=2)
    assert told(*[Session()] * 3, asks=asks, tries=3) == [0.0, 1.0, 2.0]
    assert asks.groups == [[0, 1, 2]] * 3


def test_groups_do_not_wait_for_each_other():
    comparisons = comparisons_of(Asked())

    async def two_groups():
        slow = [asyncio.ensure_future(one(comparisons, n, Session(plays=99), 2, "slow")) for n in range(2)]
        quick = await asyncio.gather(*(one(comparisons, n, Session(), 2, "quick") for n in range(2)))
        left = len(comparisons)
        return quick, left, await asyncio.gather(*slow)

    assert run(two_groups()) == ([0.0, 1.0], 1, [0.0, 1.0])
    assert len(comparisons) == 0


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (2, r"group 'g' has sessions 0 to 1 \(rollout.n\); given: 2"),
        (-1, r"group 'g' has sessions 0 to 1 \(rollout.n\); given: -1"),
        (0, "session 0 of group 'g' came twice"),
    ],
)
def test_one_that_can_not_belong_to_its_group_is_refused_and_does_the_others_no_harm(number, message):
    comparisons = comparisons_of(Asked())

    async def with_an_intruder():
        others = [asyncio.ensure_future(one(comparisons, n, Session(), 2, "g")) for n in range(2)]
        await asyncio.sleep(0.5)
        with pytest.raises(ConfigurationError, match=message):
            await _played(comparisons, number, Session(), 2, "g", 1)
        return await asyncio.gather(*others)

    assert run(with_an_intruder()) == [0.0, 1.0]
    assert len(comparisons) == 0


SESSIONS = st.builds(
    Session,
    st.integers(0, 3),
    st.integers(0, 4),
    st.sampled_from(["ok", "ok", "failed", "raises"]),
    st.none() | st.integers(0, 8).map(lambda second: second + 0.5),
)


@given(st.lists(SESSIONS, min_size=1, max_size=6), st.integers(0, 3), st.integers(0, 3))
def test_whatever_happens_every_session_comes_to_an_end_and_hears_the_same(sessions, seconds, failures):
    asks = Asked(seconds, failures)
    ends = told(*sessions, asks=asks, tries=3)
    heard = [number for number, end in enumerate(ends) if end not in ("failed", "cancelled", "ConfigurationError")]
    for number, end in enumerate(ends):
        assert end != "failed" or sessions[number].ending == "failed"
        assert end != "ConfigurationError" or sessions[number].ending == "raises"
        assert end != "cancelled" or sessions[number].cancelled is not None
    said = {type(ends[number]) if isinstance(ends[number], float) else ends[number] for number in heard}
    assert len(said) <= 1
    assert all(ends[number] == number for number in heard if isinstance(ends[number], float))
    assert len(asks.groups) <= 3
    assert all(len(group) >= 2 and {*heard} <= {*group} for group in asks.groups) or said == {"alone"}
    assert said != {"alone"} or len(heard) == 1
