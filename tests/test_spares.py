"""Sessions of a verl group that compete for its places: each is told one fate, whatever its siblings do."""

from __future__ import annotations

import asyncio
import re
import zlib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.oversample import Choice, Fate, drawn_order
from benchmarks.rollout.virtual_clock import run
from verl_ext.agent_loop.spares import Groups, Oversampling

UID = "1f0c2f5e-6f0b-4a53-9a58-0c7a1c6d3b11"


@dataclass(frozen=True)
class Episode:
    number: int
    failed: bool = False


@dataclass(frozen=True)
class Session:
    """When it comes, how long it plays, how that ends, and when it is cancelled from outside, all in seconds."""

    comes: int = 0
    plays: int = 1
    ending: str = "ok"
    cancelled: float | None = None


def play(number, session):
    async def episode():
        await asyncio.sleep(session.plays)
        if session.ending == "raises":
            raise ConfigurationError(f"session {number} has no such level")
        return Episode(number, session.ending == "failed")

    return episode


async def one(groups, group, number, session, keep):
    """What a session is told; or "raised", or "cancelled from outside"."""
    await asyncio.sleep(session.comes)
    settling = asyncio.ensure_future(groups.settle(group, number, keep, play(number, session)))
    if session.cancelled is not None:
        asyncio.get_running_loop().call_later(session.cancelled, settling.cancel)
    try:
        outcome = await settling
    except ConfigurationError:
        return "raised"
    except asyncio.CancelledError:
        return "cancelled from outside"
    assert (outcome.episode is None) == (outcome.fate is Fate.CANCELLED)
    assert outcome.episode is None or outcome.episode == Episode(number, session.ending == "failed")
    return outcome.fate.value


def told(groups, sessions, keep, group=UID):
    """What the sessions of a group are told; nothing of them may be left under way."""

    async def all_of_them():
        return await asyncio.gather(
            *(one(groups, group, number, session, keep) for number, session in enumerate(sessions))
        )

    return run(all_of_them())


def in_drawn_order(count, uid=UID):
    return drawn_order(count, zlib.crc32(uid.encode()))


# Settings


def test_by_default_there_is_no_spare():
    assert Oversampling() == Oversampling(0, "drawn_spares")
    groups = Groups(Oversampling())
    assert told(groups, [Session(plays=900), Session(ending="failed"), Session()], keep=3) == ["kept", "failed", "kept"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"spares": -1}, "spares must be a whole number, 0 or more; given: -1"),
        ({"spares": 0.5}, "spares must be a whole number, 0 or more; given: 0.5"),
        ({"spares": True}, "spares must be a whole number, 0 or more; given: True"),
        ({"choice": "first_finish"}, "no choice 'first_finish' of spares; did you mean 'first_finished'?"),
        ({"choice": None}, "no choice None of spares; known: drawn_spares, first_finished"),
    ],
)
def test_settings_that_can_not_work_are_refused(given, message):
    with pytest.raises(ConfigurationError) as error:
        Oversampling(**given)
    assert str(error.value) == message


# Which sessions are spare


def test_the_groups_uid_draws_the_spares_alike_in_every_process():
    # crc32 of the uid is 0xf89b73ac; random.Random of it draws this order of six, so 0 and 4 are spare
    assert in_drawn_order(6) == [2, 3, 1, 5, 0, 4]
    fates = told(Groups(Oversampling(2)), [Session()] * 6, keep=4)
    assert fates == ["spare", "kept", "kept", "kept", "spare", "kept"]


def test_every_session_is_the_spare_one_about_equally_often():
    # 600 groups of 2 + 1 sessions: 200 each, standard deviation 12
    groups = Groups(Oversampling(1))
    spare = [told(groups, [Session()] * 3, keep=2, group=f"group {number}").index("spare") for number in range(600)]
    assert all(140 < spare.count(session) < 260 for session in range(3))


def test_with_first_finished_the_quick_ones_are_kept():
    groups = Groups(Oversampling(2, "first_finished"))
    sessions = [Session(plays=seconds) for seconds in (4, 1, 3, 2)]
    assert told(groups, sessions, keep=2) == ["cancelled", "kept", "cancelled", "kept"]


def test_groups_do_not_mix():
    groups = Groups(Oversampling(1, "first_finished"))

    async def two_groups():
        both = [("a", Session(plays=9)), ("a", Session(plays=8)), ("b", Session(plays=1)), ("b", Session(plays=2))]
        return await asyncio.gather(
            *(one(groups, group, number % 2, session, 1) for number, (group, session) in enumerate(both))
        )

    assert run(two_groups()) == ["cancelled", "kept", "kept", "cancelled"]
    assert len(groups) == 0


# Faults


@pytest.mark.parametrize("choice", ["drawn_spares", "first_finished"])
def test_a_session_that_raises_is_replaced_by_a_sibling_and_not_waited_for(choice):
    sessions = [Session(plays=5)] * 3
    first = in_drawn_order(3)[0]
    sessions[first] = Session(plays=1, ending="raises")
    fates = told(Groups(Oversampling(1, choice)), sessions, 2)
    assert fates.pop(first) == "raised"
    assert fates == ["kept", "kept"]


def test_where_too_many_fail_all_others_are_kept():
    sessions = [Session(ending="failed"), Session(plays=7), Session(ending="raises"), Session(ending="failed")]
    assert told(Groups(Oversampling(2)), sessions, keep=2) == ["failed", "kept", "raised", "failed"]


def test_nobody_waits_for_one_that_was_cancelled_when_the_one_it_made_room_for_is_gone():
    # 1 is there at 3 s, so 2 is cancelled; 1 is taken away at 5 s; 3 comes at 6 s and has to wait for 0 alone
    in_order = [
        Session(plays=9, ending="failed"),
        Session(plays=3, cancelled=5),
        Session(plays=20),
        Session(comes=6),
    ]
    order = in_drawn_order(4)
    fates = told(Groups(Oversampling(3)), [in_order[order.index(number)] for number in range(4)], keep=1)
    assert [fates[number] for number in order] == ["failed", "cancelled from outside", "cancelled", "kept"]


def test_a_group_is_remembered_until_its_last_session_has_been_told():
    groups = Groups(Oversampling(1, "first_finished"))

    async def one_is_late():
        first = await one(groups, UID, 0, Session(), 1)
        left = len(groups)
        return first, left, await one(groups, UID, 1, Session(), 1)

    assert run(one_is_late()) == ("kept", 1, "cancelled")
    assert len(groups) == 0


@pytest.mark.parametrize(
    ("session", "keep", "message"),
    [
        (3, 2, "group 'g' has sessions 0 to 2, of which 2 are kept; given: 3"),
        (-1, 2, "group 'g' has sessions 0 to 2, of which 2 are kept; given: -1"),
        (0, 2, "session 0 of group 'g' came twice"),
        (1, 3, "group 'g' keeps 2 sessions; session 1 says 3"),
    ],
)
def test_a_session_that_can_not_belong_to_its_group_is_refused_and_does_the_others_no_harm(session, keep, message):
    groups = Groups(Oversampling(1))

    async def with_an_intruder():
        others = [asyncio.ensure_future(one(groups, "g", number, Session(), 2)) for number in range(3)]
        await asyncio.sleep(0.5)
        with pytest.raises(ConfigurationError) as error:
            await groups.settle("g", session, keep, play(session, Session()))
        return str(error.value), sorted(await asyncio.gather(*others))

    assert run(with_an_intruder()) == (message, ["kept", "kept", "spare"])
    assert len(groups) == 0


@pytest.mark.parametrize(
    ("session", "keep", "message"),
    [
        (0, 0, "spares must be fewer than the sessions of a group, 4 (rollout.n); given: 4"),
        (9, 2, "group 'g' has sessions 0 to 5, of which 2 are kept; given: 9"),
    ],
)
def test_a_group_that_can_not_come_about_is_refused_and_leaves_nothing_behind(session, keep, message):
    groups = Groups(Oversampling(4))
    with pytest.raises(ConfigurationError, match=f"^{re.escape(message)}$"):
        run(groups.settle("g", session, keep, play(0, Session())))
    assert len(groups) == 0


# Whatever the order of things

SESSIONS = st.lists(
    st.builds(Session, st.integers(0, 3), st.integers(0, 4), st.sampled_from(["ok", "ok", "failed", "raises"])),
    min_size=1,
    max_size=7,
)
CANCELLED = st.none() | st.integers(0, 6).map(lambda second: second + 0.5)


@given(SESSIONS, st.lists(CANCELLED, min_size=7, max_size=7), st.integers(0, 6), st.sampled_from(Choice))
def test_every_session_is_told_one_fate_and_as_many_are_kept_as_can_be(sessions, cancelled, spares, choice):
    spares = min(spares, len(sessions) - 1)
    keep = len(sessions) - spares
    sessions = [
        Session(session.comes, session.plays, session.ending, second)
        for session, second in zip(sessions, cancelled, strict=False)
    ]
    groups = Groups(Oversampling(spares, choice.value))
    fates = told(groups, sessions, keep)
    lost = sum(fate in ("failed", "raised", "cancelled from outside") for fate in fates)
    as_can_be = min(keep, len(sessions) - lost)
    came_too_late = any(
        fate == "cancelled from outside" and session.cancelled > session.plays
        for session, fate in zip(sessions, fates, strict=True)
    )
    assert fates.count("kept") <= as_can_be
    assert fates.count("kept") == as_can_be or came_too_late
    for session, fate in zip(sessions, fates, strict=True):
        assert fate != "failed" or session.ending == "failed"
        assert fate != "raised" or session.ending == "raises"
        assert fate != "cancelled from outside" or session.cancelled is not None
        assert fate not in ("kept", "spare") or session.ending == "ok"
    assert len(groups) == 0


@given(SESSIONS, st.integers(0, 6))
def test_which_are_kept_of_drawn_spares_does_not_depend_on_when_they_come_and_how_long_they_play(sessions, spares):
    spares = min(spares, len(sessions) - 1)
    keep = len(sessions) - spares
    sound = [number for number in in_drawn_order(len(sessions)) if sessions[number].ending == "ok"]
    fates = told(Groups(Oversampling(spares)), sessions, keep)
    assert {number for number, fate in enumerate(fates) if fate == "kept"} == set(sound[:keep])
