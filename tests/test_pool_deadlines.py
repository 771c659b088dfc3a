"""A lease that ends and a pool that closes leave no call, process or slot behind."""

import asyncio

import psutil
import pytest
from doubles import (
    Guess,
    Hangs,
    HangsInClose,
    IgnoresCancellation,
    name_of,
    task_for,
)
from doubles_pool import (
    Blocks,
    OtherPuppet,
    Puppet,
    ThirdPuppet,
    alive,
    inner,
    played,
    settle,
    stats,
    until,
)

from agentgym_rl import pool_kind
from agentgym_rl.episode import Limits
from agentgym_rl.errors import EnvironmentFailed, Manner
from agentgym_rl.messages import assistant


async def test_the_call_under_way_fails_when_the_lease_ends_and_so_do_later_ones(pool_of):
    pool = await pool_of(1)
    async with pool.lease(name_of(Puppet), 0.2) as environment:
        await environment.reset(task_for(Puppet))
        for action in ("hang", "1"):
            with pytest.raises(
                EnvironmentFailed, match="^the lease of environment 'double-puppet' ended after 0.2 s$"
            ) as e:
                await environment.step(assistant(action))
            assert e.value.manner is Manner.TIMED_OUT
        assert (await played(pool, Puppet, "2", "1")).success  # the slot is free although the holder has not left
    found = stats(pool, Puppet)
    assert (found.created, found.failed, found.killed, found.idle) == (2, 1, 1, 1)


async def test_a_holder_that_calls_nothing_loses_its_instance_too(pool_of):
    pool = await pool_of(1, lease_seconds=0.05)
    async with pool.lease(name_of(Puppet)):
        await asyncio.sleep(0.1)
        assert (stats(pool, Puppet).leased, stats(pool, Puppet).killed) == (0, 1)
    assert [puppet.closes for puppet in Puppet.made] == [1]


async def test_a_lease_that_ends_during_the_start_of_its_worker_leaves_no_process(pool_of):
    pool = await pool_of(1, "process")
    before = set(psutil.Process().children())
    async with pool.lease(name_of(Guess), 0.02) as environment:
        with pytest.raises(EnvironmentFailed, match="ended after 0.02 s"):
            await environment.reset(task_for(Guess))
    await until(lambda: stats(pool, Guess).closing == 0)
    assert not any(alive(child.pid) for child in set(psutil.Process().children()) - before)


async def test_a_thread_that_hangs_keeps_no_slot(pool_of):
    pool = await pool_of(1)
    Blocks.opened.clear()
    async with pool.lease(name_of(Blocks), 0.3) as environment:
        await environment.reset(task_for(Blocks))
        with pytest.raises(EnvironmentFailed, match="ended after 0.3 s"):
            await environment.step(assistant("4"))
        async with pool.lease(name_of(Blocks)):
            assert (stats(pool, Blocks).leased, stats(pool, Blocks).closing) == (1, 1)
    Blocks.opened.set()


async def test_a_thread_that_hangs_is_left_behind_and_counted(pool_of, monkeypatch):
    monkeypatch.setattr(pool_kind, "CLOSE_SECONDS", 0.05)
    pool = await pool_of(1)
    Blocks.opened.clear()
    trajectory = await played(pool, Blocks, "4", limits=Limits(step_seconds=0.05))
    assert trajectory.failure.cause == "environment_timed_out"
    await until(lambda: stats(pool, Blocks).closing == 0)
    Blocks.opened.set()
    found = stats(pool, Blocks)
    assert (found.created, found.failed, found.killed, found.abandoned) == (1, 1, 0, 1)


async def test_a_call_that_ignores_its_cancellation_keeps_no_slot(pool_of):
    pool = await pool_of(1)
    async with pool.lease(name_of(IgnoresCancellation), 0.2) as environment:
        await environment.reset(task_for(IgnoresCancellation))
        with pytest.raises(EnvironmentFailed, match="ended after 0.2 s"):
            await environment.step(assistant("1"))
    async with pool.lease(name_of(IgnoresCancellation)) as other:
        assert inner(other) is not inner(environment)
    await IgnoresCancellation.release()


async def test_whoever_keeps_the_environment_after_the_lease_is_told_so(pool_of):
    pool = await pool_of(1)
    async with pool.lease(name_of(Puppet)) as environment:
        await environment.reset(task_for(Puppet))
    with pytest.raises(EnvironmentFailed, match="^environment 'double-puppet' was used after its lease$"):
        await environment.step(assistant("1"))
    async with pool.lease(name_of(Puppet)) as other:
        assert inner(other) is inner(environment)


async def test_a_call_that_its_holder_left_running_is_cut_off_and_its_instance_ends(pool_of):
    pool = await pool_of(1)
    async with pool.lease(name_of(Puppet)) as environment:
        await environment.reset(task_for(Puppet))
        left = asyncio.ensure_future(environment.step(assistant("hang")))
        await settle()
    with pytest.raises(EnvironmentFailed, match="was used after its lease"):
        await left
    await settle()
    assert stats(pool, Puppet).idle == 0
    assert [puppet.closes for puppet in Puppet.made] == [1]


# Closing


async def test_close_refuses_who_waits_ends_the_leases_and_closes_every_instance(pool_of):
    pool = await pool_of(1)
    await played(pool, OtherPuppet, "2", "1")
    async with pool.lease(name_of(Puppet)) as environment:
        await environment.reset(task_for(Puppet))
        waiting = asyncio.ensure_future(played(pool, Puppet, "1"))
        hanging = asyncio.ensure_future(environment.step(assistant("hang")))
        await settle()
        await pool.close()
        for call in (waiting, hanging):
            with pytest.raises(EnvironmentFailed, match="^the pool of environment 'double-puppet' was closed$"):
                await call
    with pytest.raises(EnvironmentFailed, match="^the pool of environment 'double-thirdpuppet' was closed$") as caught:
        await played(pool, ThirdPuppet)
    assert caught.value.cause_name == "environment_crashed"
    assert [puppet.closes for puppet in Puppet.made] == [1, 1]
    assert (stats(pool, Puppet).leased, stats(pool, Puppet).waiting, stats(pool, OtherPuppet).idle) == (0, 0, 0)


async def test_close_ends_every_worker(pool_of):
    pool = await pool_of(2, "process")
    await played(pool, Guess, "7")
    async with pool.lease(name_of(Guess)) as idle, pool.lease(name_of(Hangs)) as hung:
        await asyncio.gather(idle.reset(task_for(Guess)), hung.reset(task_for(Hangs)))
        pids = [inner(idle).pid, inner(hung).pid]
        step = asyncio.ensure_future(hung.step(assistant("4")))
        await settle()
        await pool.close()
        with pytest.raises(EnvironmentFailed, match="was closed"):
            await step
    assert not any(alive(pid) for pid in pids)


async def test_close_leaves_behind_what_does_not_close_in_time(pool_of):
    pool = await pool_of(1)
    await played(pool, HangsInClose, "1")
    await pool.close(seconds=0.05)
    await settle()
    assert (stats(pool, HangsInClose).abandoned, stats(pool, HangsInClose).closing) == (1, 0)


async def test_a_waiter_that_was_handed_the_slot_as_the_pool_closed_is_refused(pool_of):
    pool = await pool_of(1)
    async with pool.lease(name_of(Puppet)):
        waiting = asyncio.ensure_future(played(pool, Puppet, "1"))
        await settle()
    await pool.close()
    with pytest.raises(EnvironmentFailed, match="was closed"):
        await waiting
    assert [puppet.closes for puppet in Puppet.made] == [1]
