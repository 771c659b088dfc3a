"""What a worker process and its family may take."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from doubles_pool import (
    alive,
    until,
)

from agentgym_rl.environments import worker_limits
from agentgym_rl.environments.worker_limits import WorkerLimits


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


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user whose processes are known")
def test_the_kernel_refuses_a_fork_of_a_user_who_is_not_root_above_the_limit():
    done = subprocess.run(
        [sys.executable, "-c", REFUSED_FORK],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "refused", done.stderr
