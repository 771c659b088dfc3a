"""An alarm answers for a call that is late, and one timer serves call after call."""

import asyncio

import pytest

from agentgym_rl.alarm import LATE, Alarm
from agentgym_rl.errors import EnvironmentFailed, boundary
from benchmarks.rollout.virtual_clock import run


def timers():
    return [timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()]


def watched(alarm, seconds):
    answer = asyncio.get_running_loop().create_future()
    alarm.watch(answer, seconds)
    return answer


def test_a_late_answer_is_given_at_its_deadline():
    async def late():
        alarm = Alarm()
        assert await watched(alarm, 7.0) is LATE
        return asyncio.get_running_loop().time()

    assert run(late()) == pytest.approx(7.0)


def test_an_answer_in_time_stays_as_it_is():
    async def in_time():
        answer = watched(Alarm(), 7.0)
        answer.set_result("here")
        await asyncio.sleep(8.0)
        return answer.result()

    assert run(in_time()) == "here"


@pytest.mark.parametrize(("first", "second"), [(300.0, 30.0), (30.0, 300.0), (30.0, 30.0)])
def test_the_next_call_has_its_own_deadline_whether_nearer_or_further(first, second):
    async def one_after_the_other():
        alarm = Alarm()
        answer = watched(alarm, first)
        await asyncio.sleep(10.0)
        answer.set_result("here")
        assert await watched(alarm, second) is LATE
        return asyncio.get_running_loop().time()

    assert run(one_after_the_other()) == pytest.approx(10.0 + second)


def test_a_call_that_begins_after_the_timer_went_off_is_watched_again():
    async def after_a_pause():
        alarm = Alarm()
        watched(alarm, 5.0).set_result("here")
        await asyncio.sleep(20.0)
        assert await watched(alarm, 5.0) is LATE
        return asyncio.get_running_loop().time()

    assert run(after_a_pause()) == pytest.approx(25.0)


def test_an_answer_that_came_while_the_loop_was_held_up_is_not_late():
    async def held_up():
        loop = asyncio.get_running_loop()

        async def answer():
            await asyncio.sleep(1.0)
            return "here"

        loop.call_later(0.5, hold_up, loop, 100.0)
        return await boundary(answer(), EnvironmentFailed, "the step", 30.0)

    assert run(held_up()) == "here"


def test_after_a_stall_a_call_without_an_answer_is_late_within_a_second():
    async def held_up():
        loop = asyncio.get_running_loop()
        loop.call_later(0.5, hold_up, loop, 100.0)
        assert await watched(Alarm(), 30.0) is LATE
        return loop.time()

    assert run(held_up()) == pytest.approx(101.5)


def hold_up(loop, seconds):
    """As a callback does that blocks the loop for so long."""
    loop._jumping.now += seconds


def test_a_thousand_calls_need_one_timer():
    async def many():
        alarm = Alarm()
        most = 0
        for _ in range(1000):
            answer = watched(alarm, 30.0)
            await asyncio.sleep(0)
            most = max(most, len(timers()))
            answer.set_result("here")
        alarm.stop()
        return most, len(timers())

    assert run(many()) == (1, 0)


def test_a_boundary_of_its_own_leaves_no_timer():
    async def answer():
        await asyncio.sleep(1.0)
        return 7

    async def both_ends():
        assert await boundary(answer(), EnvironmentFailed, "the step", 60.0) == 7
        with pytest.raises(EnvironmentFailed, match="no answer"):
            await boundary(answer(), EnvironmentFailed, "the step", 0.5)
        await asyncio.sleep(0.01)  # the late call's own timer is gone by then
        return len(timers())

    assert run(both_ends()) == 0
