"""What one worker process may take of the machine, with everything that it starts.

Two nets, each with its holes:

- The sweep (`families`, `offence`) counts processes and their memory a few times a second, and kills the whole family
  of a worker that is over a limit. It holds for root as well, but whatever is taken between two looks is taken, and a
  process that opened a session of its own and lost its parent (a daemon that detached itself) is not found.
- The kernel's limits (`impose`, Linux) leave no time in between. RLIMIT_AS ends an allocation as the environment's own
  MemoryError; it counts address space, of each process by itself, which with CUDA or memory maps is far above memory.
  RLIMIT_NPROC ends a fork as BlockingIOError; root is exempt, and it counts every thread of the user on the machine, so
  it is set far above what that user has and only stops a fork bomb that outruns the sweep.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, fields

import psutil

from agentgym_rl.errors import ConfigurationError

SPARE_THREADS = 4096
"""How far above the user's threads at a worker's start RLIMIT_NPROC is set."""


@dataclass(frozen=True)
class WorkerLimits:
    """Of a worker and everything it started. None: no limit."""

    memory_bytes: int | None = None
    """Resident memory, summed over its processes (what they share counts for each)."""
    processes: int | None = 64
    """Processes, the worker included."""
    address_space_bytes: int | None = None
    """RLIMIT_AS of each process."""

    def __post_init__(self) -> None:
        for field in fields(self):
            given = getattr(self, field.name)
            if given is not None and given < 1:
                raise ConfigurationError(f"{field.name} must be at least 1, or None for no limit; given: {given}")

    @property
    def need_sweep(self) -> bool:
        return self.memory_bytes is not None or self.processes is not None

    def impose(self, pid: int) -> None:
        """Set the kernel's limits of a process; those that it starts later inherit them."""
        with contextlib.suppress(ProcessLookupError):  # it is dead, which its first call will say
            if self.address_space_bytes is not None:
                _lower(pid, resource.RLIMIT_AS, self.address_space_bytes)
            if self.processes is not None and os.geteuid() != 0:
                _lower(pid, resource.RLIMIT_NPROC, _threads_of_user() + SPARE_THREADS)

    def offence(self, family: Sequence[psutil.Process]) -> str | None:
        """What a worker's processes have above a limit; None: nothing."""
        if self.processes is not None and len(family) > self.processes:
            return f"it had {len(family)} processes; `processes` allows {self.processes}"
        if self.memory_bytes is None:
            return None
        used = sum(_resident_bytes(process) for process in family)
        if used <= self.memory_bytes:
            return None
        return (
            f"it had {used / 2**20:.0f} MiB of memory in {len(family)} process(es); "
            f"`memory_bytes` allows {self.memory_bytes / 2**20:.0f} MiB"
        )


def families(leaders: Iterable[int]) -> dict[int, list[psutil.Process]]:
    """Session leader -> itself, its session, and the sessions that its descendants opened; one look at the machine."""
    found: dict[int, list[psutil.Process]] = {leader: [] for leader in leaders}
    leader_of: dict[int, int | None] = {}  # session -> the leader whose family it belongs to
    for process in psutil.process_iter():
        session = _session_of(process.pid)
        if session not in leader_of:
            leader_of[session] = _nearest_ancestor(session, found)
        leader = leader_of[session]
        if leader is not None:
            found[leader].append(process)
    return found


def kill(leader: int) -> None:
    """Kill a whole family, which is stopped first, lest it start more while it is looked for.

    Also those that left the process group with which `ProcessEnvironment` ends its worker.
    """
    stopped: set[psutil.Process] = set()
    for _ in range(10):
        found = set(families([leader])[leader]) - stopped
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.suspend()
        stopped |= found
        if not found:
            break
    for process in stopped:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:  # it has just ended
        return 0


def _nearest_ancestor(pid: int, leaders: Container[int]) -> int | None:
    """The process itself or the first of its ancestors that is a leader."""
    with contextlib.suppress(psutil.Error):
        while pid not in leaders and pid > 1:
            pid = psutil.Process(pid).ppid()
    return pid if pid in leaders else None


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


def _lower(pid: int, which: int, value: int) -> None:
    if not hasattr(resource, "prlimit"):
        return
    _, hard = resource.prlimit(pid, which)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.prlimit(pid, which, (value, value))


def _threads_of_user() -> int:
    user = os.getuid()
    described = (process.info for process in psutil.process_iter(["uids", "num_threads"]))
    return sum(info["num_threads"] or 0 for info in described if info["uids"] and info["uids"].real == user)
