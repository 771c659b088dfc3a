"""The pool: every lease is granted, refused or cancelled once, and no fault reaches the next holder or keeps a slot."""

import asyncio
import os
import resource
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import doubles_pool
import psutil
import pytest
from doubles import (
    CancelsItself,
    Crashes,
    Guess,
    Hangs,
    HangsInClose,
    IgnoresCancellation,
    NanReward,
    Raises,
    ResetsOnceAndSaysSo,
    Tells,
    name_of,
    task_for,
)
from doubles_pool import Blocks, CrampedPuppet, OncePuppet, OtherPuppet, Puppet, Takes, ThirdPuppet
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentgym_rl import pool as pool_module
from agentgym_rl import pool_kind
from agentgym_rl.environments import worker_limits
from agentgym_rl.environments.worker_limits import WorkerLimits
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed, Manner
from agentgym_rl.messages import assistant
from agentgym_rl.policy import ScriptedPolicy
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.trajectory import StopReason

doubles_pool.register_all()


@pytest.fixture(autouse=True)
def fresh_puppets():
    Puppet.made.clear()


@pytest.fixture
async def pool_of():
    """Makes a pool; it is closed at the end. A test that waits for a slot that never comes is cancelled."""
    async with AsyncExitStack() as stack:

        async def make(*args, **options):
            watchdog = asyncio.get_running_loop().call_later(20, asyncio.current_task().cancel)
            stack.callback(watchdog.cancel)
            return await stack.enter_async_context(EnvironmentPool(*args, **options))

        yield make


async def settle(rounds=20):
    for _ in range(rounds):
        await asyncio.sleep(0)


async def until(condition):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it never happened")


def stats(pool, double):
    return pool.statistics()[name_of(double)]


async def played(pool, double, *lines, seconds=None, limits=None):
    """One episode in a lease of its own."""
    async with pool.lease(name_of(double), seconds) as environment:
        return await play(ScriptedPolicy(lines), environment, task_for(double), limits)


def inner(environment):
    return environment._environment


# Lending


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


# Faults, in worker processes


@pytest.fixture
def quick_sweeps(monkeypatch):
    monkeypatch.setattr(pool_module, "SWEEP_SECONDS", 0.05)


@pytest.mark.parametrize(
    ("double", "action", "seconds", "cause", "message"),
    [
        (Raises, "4", 60, "environment_raised", "step of 'doubles:Raises' raised ValueError: seven"),
        (Crashes, "segfault", 60, "environment_crashed", "was killed by SIGSEGV"),
        (Crashes, "kill", 60, "environment_crashed", "was killed by SIGKILL"),
        (Crashes, "exit", 60, "environment_crashed", "ended with exit code 3"),
        (Hangs, "4", 0.3, "environment_timed_out", "the lease of environment 'double-hangs' ended after 0.3 s"),
        (Takes, "forever", 0.3, "environment_timed_out", "the lease of environment 'double-takes' ended after 0.3 s"),
        (
            Takes,
            "memory 300",
            60,
            "environment_crashed",
            r"the worker of environment 'double-takes' was killed: it had \d+ MiB of memory in 1 process\(es\); "
            "`memory_bytes` allows 200 MiB",
        ),
        (
            Takes,
            "processes 20",
            60,
            "environment_crashed",
            r"the worker of environment 'double-takes' was killed: it had \d+ processes; `processes` allows 8",
        ),
        (
            Takes,
            "detached 20",
            60,
            "environment_crashed",
            r"the worker of environment 'double-takes' was killed: it had \d+ processes; `processes` allows 8",
        ),
    ],
)
async def test_each_fault_ends_as_the_failure_of_its_lease_and_the_next_lease_works(
    pool_of, quick_sweeps, double, action, seconds, cause, message
):
    pool = await pool_of(1, "process", limits=WorkerLimits(memory_bytes=200 * 2**20, processes=8))
    async with pool.lease(name_of(double)) as environment:
        await environment.reset(task_for(double))  # its worker runs before the deadline counts
        pid = inner(environment).pid
    async with pool.lease(name_of(double), seconds) as environment:
        assert inner(environment).pid == pid
        with pytest.raises(EnvironmentFailed, match=message) as caught:
            await plays_on(environment, task_for(double), action)
        assert caught.value.cause_name == cause
    async with pool.lease(name_of(double)) as environment:
        assert (await environment.reset(task_for(double)))[0].content == "Guess a number from 1 to 8."
        assert inner(environment).pid != pid
        assert not psutil.pid_exists(pid)
    found = stats(pool, double)
    assert (found.leased, found.waiting, found.closing, found.idle) == (0, 0, 0, 1)
    assert (found.created, found.reused, found.failed) == (2, 1, 1)


async def plays_on(environment, task, action):
    """A holder that goes on playing until a call fails."""
    await environment.reset(task)
    await environment.step(assistant(action))
    for _ in range(1000):
        await environment.expert_action()
        await asyncio.sleep(0.01)


async def test_detached_processes_of_a_swarm_end_with_it(pool_of, quick_sweeps):
    pool = await pool_of(1, "process", limits=WorkerLimits(processes=3))
    async with pool.lease(name_of(Takes)) as environment:
        await environment.reset(task_for(Takes))
        pids = (await environment.step(assistant("detached 2"))).observation[0].content.split()
        assert all(alive(int(pid)) for pid in pids)
        with pytest.raises(EnvironmentFailed, match="it had 4 processes; `processes` allows 3"):
            await plays_on(environment, task_for(Takes), "detached 1")
    await until(lambda: not any(alive(int(pid)) for pid in pids))


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_a_family_that_grows_while_it_is_killed_is_killed_whole():
    child = ["sleep", f"{os.getpid()}000"]  # nobody else's
    script = f"import subprocess\nwhile True: subprocess.Popen({child}, start_new_session=True)"
    for _ in range(5):
        swarm = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
        await until(psutil.Process(swarm.pid).children)
        worker_limits.kill(swarm.pid)
        swarm.wait()
    await until(lambda: child not in [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])])


async def test_an_idle_worker_that_is_over_a_limit_is_killed_as_well(pool_of, monkeypatch):
    monkeypatch.setattr(pool_module, "SWEEP_SECONDS", 1000)  # none comes before the lease has ended
    pool = await pool_of(1, "process", limits=WorkerLimits(processes=3))
    async with pool.lease(name_of(Takes)) as environment:
        await environment.reset(task_for(Takes))
        await environment.step(assistant("processes 5"))
        pid = inner(environment).pid
    assert stats(pool, Takes).idle == 1
    pool._sweep()
    assert (stats(pool, Takes).idle, stats(pool, Takes).killed, stats(pool, Takes).failed) == (0, 1, 0)
    await until(lambda: not alive(pid))
    assert (await played(pool, Takes, "7")).success


async def test_an_allocation_above_the_address_space_is_the_environments_own_error(pool_of):
    pool = await pool_of(1, "process", limits=WorkerLimits(address_space_bytes=2 * 2**30))
    trajectory = await played(pool, Takes, "memory 4096")
    assert trajectory.failure.cause == "environment_raised"
    assert "step of 'doubles_pool:Takes' raised MemoryError" in trajectory.failure.message
    assert stats(pool, Takes).failed == 1


async def test_a_worker_that_is_cut_off_by_the_deadline_of_a_call_is_gone_before_its_slot_is_free(pool_of):
    pool = await pool_of(1, "process")
    async with pool.lease(name_of(Hangs)) as environment:
        await environment.reset(task_for(Hangs))
        pid = inner(environment).pid
        trajectory = await play(ScriptedPolicy(["4"]), environment, task_for(Hangs), Limits(step_seconds=0.1))
        assert trajectory.failure.cause == "environment_timed_out"
    assert (stats(pool, Hangs).leased, stats(pool, Hangs).closing) == (0, 1)
    async with pool.lease(name_of(Hangs)):
        assert not psutil.pid_exists(pid)
    assert stats(pool, Hangs).failed == 1


async def test_a_call_that_its_caller_gave_up_ends_the_worker_while_the_lease_goes_on(pool_of):
    pool = await pool_of(1, "process")
    async with pool.lease(name_of(Hangs)) as environment:
        await environment.reset(task_for(Hangs))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(environment.step(assistant("4")), 0.1)
        with pytest.raises(EnvironmentFailed, match="was killed by SIGKILL after its step was cut off"):
            await environment.expert_action()
        assert (await environment.reset(task_for(Hangs)))[0].content == "Guess a number from 1 to 8."


# Faults, in this process


@pytest.mark.parametrize(
    ("double", "action", "cause"),
    [
        (Raises, "4", "environment_raised"),
        (CancelsItself, "1", "environment_raised"),
        (Puppet, "raise", "environment_raised"),
        (Puppet, "hang", "environment_timed_out"),
    ],
)
async def test_a_call_that_fails_ends_its_instance(pool_of, double, action, cause):
    pool = await pool_of(1)
    trajectory = await played(pool, double, action, limits=Limits(step_seconds=0.05))
    assert trajectory.failure.cause == cause
    async with pool.lease(name_of(double)) as environment:
        await environment.reset(task_for(double))
    found = stats(pool, double)
    assert (found.created, found.reused, found.failed, found.killed, found.leased) == (2, 0, 1, 0, 0)


async def test_an_instance_that_answered_wrongly_ends_where_its_holder_says_so(pool_of):
    pool = await pool_of(1)
    async with pool.lease(name_of(NanReward)) as environment:
        trajectory = await play(ScriptedPolicy(["4"]), environment, task_for(NanReward))
        assert trajectory.failed  # although every call came back: only the holder knows
        environment.spoil()
    assert (stats(pool, NanReward).idle, stats(pool, NanReward).failed) == (0, 1)


async def test_what_a_holder_raises_ends_its_instance_and_arrives(pool_of):
    pool = await pool_of(1)
    with pytest.raises(ValueError, match="^not what it should be$"):
        async with pool.lease(name_of(Puppet)):
            raise ValueError("not what it should be")
    assert (stats(pool, Puppet).idle, stats(pool, Puppet).failed) == (0, 1)


async def test_a_holder_that_is_cancelled_ends_its_instance(pool_of):
    pool = await pool_of(1)
    session = asyncio.ensure_future(played(pool, Puppet, "hang"))
    await settle()
    session.cancel()
    assert (await played(pool, Puppet, "2", "1")).success
    assert session.cancelled()
    assert (stats(pool, Puppet).created, stats(pool, Puppet).failed) == (2, 1)
    assert [puppet.closes for puppet in Puppet.made] == [1, 0]


async def test_an_instance_that_its_holder_closed_is_not_lent_again(pool_of):
    pool = await pool_of(1)
    async with pool.lease(name_of(Puppet)) as environment:
        await environment.close()
    async with pool.lease(name_of(Puppet)) as other:
        assert inner(other) is not inner(environment)


async def test_a_class_that_can_not_be_made_keeps_no_slot(pool_of):
    pool = await pool_of(1)
    for _ in range(2):
        with pytest.raises(OSError, match="^no room$"):
            await played(pool, CrampedPuppet)
    assert (stats(pool, CrampedPuppet).leased, stats(pool, CrampedPuppet).created) == (0, 0)


# Deadlines of leases


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


# Limits of workers


async def test_a_family_is_a_session_and_the_sessions_that_it_opened():
    script = "sleep 600 & (sleep 600 &) ; setsid sleep 600 & setsid sh -c 'sleep 600; true' & echo started; wait"
    shell = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    family = []

    def names():
        family[:] = worker_limits.families([shell.pid])[shell.pid]
        return sorted(process.name() for process in family)

    try:
        shell.stdout.readline()
        await until(lambda: names() == ["sh", "sh", "sleep", "sleep", "sleep", "sleep"])
        assert other.pid not in [process.pid for process in family]
    finally:
        worker_limits.kill(shell.pid)
        other.kill()
        shell.stdout.close()
        shell.wait()
        other.wait()
    await until(lambda: not any(alive(process.pid) for process in family))


def test_a_worker_that_is_dead_already_is_limited_without_a_word():
    gone = subprocess.Popen(["true"])
    gone.wait()
    WorkerLimits(address_space_bytes=2**30).impose(gone.pid)
    assert worker_limits.families([gone.pid]) == {gone.pid: []}


def test_a_limit_is_never_raised_above_the_one_that_holds_already():
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        WorkerLimits(address_space_bytes=2**31).impose(sleeper.pid)
        WorkerLimits(address_space_bytes=2**32).impose(sleeper.pid)
        assert resource.prlimit(sleeper.pid, resource.RLIMIT_AS) == (2**31, 2**31)
    finally:
        sleeper.kill()
        sleeper.wait()


REFUSED_FORK = """
import os
from agentgym_rl.environments import worker_limits

worker_limits.SPARE_THREADS = 0
os.setuid(65534)
begin, go = os.pipe()
child = os.fork()
if child == 0:
    os.read(begin, 1)
    try:
        if os.fork():
            print("forked", flush=True)
    except BlockingIOError:
        print("refused", flush=True)
    os._exit(0)
worker_limits.WorkerLimits(processes=1).impose(child)
os.write(go, b"!")
os.wait()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a user whose processes are known")
def test_the_kernel_refuses_a_fork_of_a_user_who_is_not_root_above_the_limit():
    done = subprocess.run(
        [sys.executable, "-c", REFUSED_FORK],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "refused", done.stderr


# Whatever the order of things


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time passes when the test says so."""

    now = 0.0

    def time(self):
        return self.now


class Session:
    """One holder that does what the test says."""

    def __init__(self, kind, seconds):
        self.kind, self.seconds = kind, seconds
        self.orders = asyncio.Queue()
        self.granted_at = None
        self.instance = None
        self.spoiled = False
        self.outcomes = []

    async def run(self, pool):
        try:
            async with pool.lease(name_of(self.kind), self.seconds) as environment:
                self.granted_at, self.instance = asyncio.get_running_loop().time(), inner(environment)
                await environment.reset(task_for(self.kind))
                while (order := await self.orders.get()) != "leave":
                    if order == "fail":
                        raise ValueError("a holder's own")
                    await environment.step(assistant(order))
            self.outcomes.append("left")
        except asyncio.CancelledError:
            self.outcomes.append("cancelled")
            raise
        except (ValueError, EnvironmentFailed) as error:
            self.outcomes.append(getattr(error, "cause_name", "raised"))


SLOTS = {Puppet: 2, OncePuppet: 1}


class Interleavings(RuleBasedStateMachine):
    """Holders ask, play, hang, fail, leave, are cancelled and overstay in any order."""

    def __init__(self):
        super().__init__()
        Puppet.made.clear()
        self.loop = VirtualLoop()
        self.unheard = []  # errors in callbacks, which asyncio would only log
        self.loop.set_exception_handler(lambda _, context: self.unheard.append(context))
        self.pool = EnvironmentPool({name_of(kind): slots for kind, slots in SLOTS.items()}, idle=1)
        self.sessions = []
        self.tasks = {}

    def run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    def open(self, kind=None):
        return [s for s in self.sessions if not self.tasks[s].done() and kind in (None, s.kind)]

    def holding(self, kind=None):
        return [s for s in self.open(kind) if s.granted_at is not None]

    def overstays(self, session):
        return self.loop.now >= session.granted_at + session.seconds

    @rule(kind=st.sampled_from(list(SLOTS)), seconds=st.sampled_from([5.0, 50.0]))
    def ask(self, kind, seconds):
        session = Session(kind, seconds)
        self.sessions.append(session)
        self.tasks[session] = self.loop.create_task(session.run(self.pool))
        self.run(settle())

    @precondition(lambda self: self.holding())
    @rule(order=st.sampled_from(["1", "hang", "raise", "fail", "leave", "leave"]), data=st.data())
    def order(self, order, data):
        session = data.draw(st.sampled_from(self.holding()))
        session.orders.put_nowait(order)
        session.spoiled |= order in ("hang", "raise", "fail")
        self.run(settle())

    @precondition(lambda self: self.open())
    @rule(data=st.data(), at_once=st.booleans())
    def cancel(self, data, at_once):
        """Also just as the slot that a session waited for was handed to it."""
        session = data.draw(st.sampled_from(self.open()))
        if at_once:
            for holder in self.holding(session.kind)[:1]:
                holder.orders.put_nowait("leave")
            self.run(settle(data.draw(st.integers(0, 3))))
        self.tasks[session].cancel()
        self.run(settle())
        session.spoiled |= session.outcomes == ["cancelled"]

    @rule(seconds=st.sampled_from([1.0, 5.0, 60.0]))
    def wait(self, seconds):
        for session in self.holding():
            session.spoiled |= self.loop.now + seconds >= session.granted_at + session.seconds
        self.loop.now += seconds
        self.run(settle())

    @invariant()
    def every_request_ends_once(self):
        for session in self.sessions:
            assert len(session.outcomes) == self.tasks[session].done()  # none before its end, one after it

    @invariant()
    def the_books_are_right(self):
        for kind, found in self._stats():
            held = [session for session in self.holding(kind) if not self.overstays(session)]
            assert found.leased == len(held)
            assert found.waiting == len(self.open(kind)) - len(self.holding(kind))
            assert found.leased + found.idle <= SLOTS[kind]
            assert found.waiting == 0 or found.leased == SLOTS[kind]  # nobody waits beside a free slot
            assert found.closing == 0
            assert sum(type(made) is kind and not made.closes for made in Puppet.made) == found.leased + found.idle
        assert sum(found.idle for _, found in self._stats()) <= 1

    @invariant()
    def first_come_first_served(self):
        for kind in SLOTS:
            waited = [session for session in self.sessions if session.kind is kind]
            waited = [session for session in waited if session.granted_at is not None or session in self.open()]
            granted = [session.granted_at is not None for session in waited]
            assert granted == sorted(granted, reverse=True)

    @invariant()
    def nothing_goes_on_unseen(self):
        lent = [session.instance for session in self.holding() if not self.overstays(session)]
        assert not any(puppet.hanging and puppet not in lent for puppet in Puppet.made)
        assert self.unheard == []

    @invariant()
    def what_went_wrong_reaches_nobody_else(self):
        for puppet in Puppet.made:
            assert puppet.closes <= 1
            lent_to = [session for session in self.sessions if session.instance is puppet]
            assert not any(session.spoiled for session in lent_to[:-1])
            assert len(lent_to) == 1 or type(puppet) is not OncePuppet

    def _stats(self):
        known = self.pool.statistics()
        return [(kind, known[name_of(kind)]) for kind in SLOTS if name_of(kind) in known]

    async def _fill(self, kind):
        async with AsyncExitStack() as stack:
            for _ in range(SLOTS[kind]):
                await stack.enter_async_context(self.pool.lease(name_of(kind)))

    def teardown(self):
        while self.open():
            for session in self.holding():
                session.orders.put_nowait("leave")
            self.loop.now += 60  # ends what hangs
            self.run(settle())
        self.every_request_ends_once()
        for kind in SLOTS:
            filling = self.loop.create_task(self._fill(kind))
            self.run(settle())
            assert filling.done()  # every slot has come back
            filling.result()
        self.run(self.pool.close())
        assert [puppet.closes for puppet in Puppet.made] == [1] * len(Puppet.made)
        self.loop.close()


Interleavings.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestInterleavings = Interleavings.TestCase
