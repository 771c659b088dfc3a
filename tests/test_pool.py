"""The pool lends: every lease is granted, refused or cancelled once, and what can't work is refused."""

import asyncio

import pytest
from doubles import (
    Guess,
    ResetsOnceAndSaysSo,
    Tells,
    name_of,
    task_for,
)
from doubles_pool import (
    OtherPuppet,
    Puppet,
    ThirdPuppet,
    inner,
    played,
    settle,
    stats,
)

from agentgym_rl.environments.worker_limits import WorkerLimits
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.messages import assistant
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.trajectory import StopReason


async def test_an_episode_in_a_lease_is_the_episode_without_a_pool(pool_of):
    pool = await pool_of(1)
    trajectory = await played(pool, Guess, "4", "7")
    assert (trajectory.stop, trajectory.success) == (StopReason.TERMINATED, True)
    assert [turn.observation[0].content for turn in trajectory.turns] == ["higher", "found"]
    assert trajectory.opening[0].content == Guess.instructions


async def test_every_method_goes_through(pool_of):
    pool = await pool_of(1)
    async with pool.lease(name_of(Guess)) as environment:
        assert environment.facts == Guess.facts
        await environment.reset(task_for(Guess))
        assert await environment.expert_action() == "4"
        state = await environment.snapshot()
        await environment.step(assistant("4"))
        assert await environment.actions() == ["5", "6", "7", "8"]
        await environment.restore(state)
        assert len(await environment.actions()) == 8


async def test_a_clean_episode_leaves_its_instance_to_the_next_lease(pool_of):
    pool = await pool_of(2)
    for _ in range(3):
        assert (await played(pool, Puppet, "2", "1")).success
    found = stats(pool, Puppet)
    assert (found.created, found.reused, found.idle, found.failed, found.leased) == (1, 2, 1, 0, 0)


async def test_the_process_is_reused_as_well(pool_of):
    pool = await pool_of(1, "process")
    pids = {(await played(pool, Tells, "pid")).turns[0].observation[0].content for _ in range(2)}
    assert len(pids) == 1


async def test_what_came_back_last_is_lent_first(pool_of):
    pool = await pool_of(2)
    async with pool.lease(name_of(Puppet)) as first:
        async with pool.lease(name_of(Puppet)) as second:
            pass
    async with pool.lease(name_of(Puppet)) as third:
        assert inner(third) is inner(first) is not inner(second)


async def test_an_environment_that_can_not_be_reused_is_made_anew_each_time(pool_of):
    pool = await pool_of(1)
    for _ in range(3):
        assert (await played(pool, ResetsOnceAndSaysSo, "7")).success
    found = stats(pool, ResetsOnceAndSaysSo)
    assert (found.created, found.reused, found.failed) == (3, 0, 0)


async def test_an_instance_is_replaced_after_the_leases_that_it_may_have(pool_of):
    pool = await pool_of(1, leases_per_instance=2)
    for _ in range(5):
        await played(pool, Puppet, "2", "1")
    assert (stats(pool, Puppet).created, stats(pool, Puppet).failed) == (3, 0)
    await settle()
    assert [puppet.closes for puppet in Puppet.made] == [1, 1, 0]


async def test_above_the_idle_limit_the_least_recently_used_is_closed_first(pool_of):
    pool = await pool_of(1, idle=2)
    for double in (Puppet, OtherPuppet, Puppet, ThirdPuppet):
        await played(pool, double, "2", "1")
    await settle()
    assert {type(puppet): puppet.closes for puppet in Puppet.made} == {Puppet: 0, OtherPuppet: 1, ThirdPuppet: 0}
    assert [stats(pool, double).idle for double in (Puppet, OtherPuppet, ThirdPuppet)] == [1, 0, 1]


async def test_of_one_kind_the_instance_that_came_back_first_is_closed_first(pool_of):
    pool = await pool_of(2, idle=1)
    async with pool.lease(name_of(Puppet)):
        async with pool.lease(name_of(Puppet)) as early:
            pass
    await settle()
    assert [puppet.closes for puppet in Puppet.made] == [int(puppet is inner(early)) for puppet in Puppet.made]


async def test_with_no_idle_instance_allowed_one_is_still_handed_to_whoever_waits(pool_of):
    pool = await pool_of(1, idle=0)
    await asyncio.gather(*(played(pool, Puppet, "2", "1") for _ in range(4)))
    await settle()
    found = stats(pool, Puppet)
    assert (found.created, found.reused, found.idle) == (1, 3, 0)


async def test_each_kind_has_its_own_slots(pool_of):
    pool = await pool_of({name_of(Puppet): 2, name_of(OtherPuppet): 1})
    async with pool.lease(name_of(Puppet)), pool.lease(name_of(Puppet)), pool.lease(name_of(OtherPuppet)):
        waiting = asyncio.ensure_future(played(pool, OtherPuppet, "1"))
        await settle()
        assert (stats(pool, Puppet).leased, stats(pool, Puppet).waiting) == (2, 0)
        assert (stats(pool, OtherPuppet).leased, stats(pool, OtherPuppet).waiting) == (1, 1)
    await waiting


async def test_leases_are_granted_in_the_order_in_which_they_were_asked_for(pool_of):
    pool = await pool_of(2)
    order = []

    async def session(number):
        async with pool.lease(name_of(Puppet)):
            order.append(number)
            await settle(3)

    await asyncio.gather(*map(session, range(12)))
    assert order == list(range(12))


async def test_a_session_that_is_slow_holds_up_nobody_else(pool_of):
    pool = await pool_of(2)
    async with pool.lease(name_of(Puppet)):
        for _ in range(5):
            assert (await played(pool, Puppet, "2", "1")).success


async def test_a_wait_that_is_cancelled_takes_no_slot_with_it(pool_of):
    pool = await pool_of(1)
    async with pool.lease(name_of(Puppet)):
        waiting = [asyncio.ensure_future(played(pool, Puppet, "2", "1")) for _ in range(3)]
        await settle()
        waiting[0].cancel()
    waiting[1].cancel()  # it was handed the slot, and has not run since
    assert (await waiting[2]).success
    found = stats(pool, Puppet)
    assert (found.leased, found.waiting, found.failed) == (0, 0, 0)


async def test_the_seconds_of_waiting_are_counted(pool_of):
    pool = await pool_of(1)
    async with pool.lease(name_of(Puppet)):
        waiting = asyncio.ensure_future(played(pool, Puppet, "1"))
        await asyncio.sleep(0.05)
        assert stats(pool, Puppet).waited_seconds < 0.01
    await waiting
    assert stats(pool, Puppet).waited_seconds > 0.04


# What can't work


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": 0}, "slots of a kind must be at least 1; given: 0"),
        ({"slots": {"babyai": 0}}, "slots of babyai must be at least 1; given: 0"),
        ({"lease_seconds": 0}, "lease_seconds must be above 0; given: 0"),
        ({"idle": -1}, "idle must be at least 0; given: -1"),
        ({"leases_per_instance": 0}, "leases_per_instance must be at least 1, or None; given: 0"),
        ({"limits": WorkerLimits()}, "limits of workers need isolation 'process'; given: 'thread'"),
    ],
)
def test_options_that_can_not_work_are_refused(options, message):
    with pytest.raises(ConfigurationError, match=f"^{message}$"):
        EnvironmentPool(**{"slots": 1} | options)


@pytest.mark.parametrize("field", ["memory_bytes", "processes", "address_space_bytes"])
def test_limits_that_can_not_work_are_refused(field):
    with pytest.raises(ConfigurationError, match=f"^{field} must be at least 1, or None for no limit; given: 0$"):
        WorkerLimits(**{field: 0})


async def test_leases_that_can_not_work_are_refused_at_once(pool_of):
    pool = await pool_of({name_of(Puppet): 1})
    for name, seconds, message in (
        ("double-pupet", None, "^no environment 'double-pupet'; did you mean 'double-puppet'?"),
        (name_of(Guess), None, "^the pool has no slots for environment 'double-guess'; "),
        (name_of(Puppet), 0, "^a lease's seconds must be above 0; given: 0$"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            async with pool.lease(name, seconds):
                pytest.fail("it was lent")
