"""No fault of an environment, in a worker process or in this one, reaches the next holder or keeps a slot."""

import asyncio
import os
import subprocess
import sys

import psutil
import pytest
from doubles import (
    CancelsItself,
    Crashes,
    Hangs,
    NanReward,
    Raises,
    name_of,
    task_for,
)
from doubles_pool import (
    CrampedPuppet,
    Puppet,
    Takes,
    alive,
    inner,
    played,
    settle,
    stats,
    until,
)

from agentgym_rl import pool as pool_module
from agentgym_rl.environments import worker_limits
from agentgym_rl.environments.worker_limits import WorkerLimits
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.policy import ScriptedPolicy


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
