"""Environments are borrowed, not owned: a pool that lends instances by name, for a limited time.

Invariant: each request for a lease is granted, refused or cancelled exactly once, in the order in which they came; at
most `slots` instances of a kind are lent at a time; whatever went wrong in a lease ends with its instance and reaches
no later holder. Everything runs on the event loop of whoever leases, without threads of its own.

Left out: an environment that blocks the event loop itself. Blocking classes run on threads or in worker processes.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from agentgym_rl.environment import Environment
from agentgym_rl.environments import registry, worker_limits
from agentgym_rl.environments.process import ProcessEnvironment
from agentgym_rl.environments.registry import Isolation
from agentgym_rl.environments.worker_limits import WorkerLimits
from agentgym_rl.errors import ConfigurationError, Manner, did_you_mean
from agentgym_rl.lease import LeasedEnvironment
from agentgym_rl.pool_kind import Instance, Kind, Loan, closed_pool
from agentgym_rl.pool_statistics import PoolPeriod, PoolStatistics

SWEEP_SECONDS = 0.25
"""Pause between two looks at the worker processes; longer where a look takes more than a twentieth of it."""


class EnvironmentPool:
    """Lends environments; `async with` closes it at the end.

    Args:
        slots: how many instances of a kind may be lent at a time; one number for every kind, or a number for each.
        isolation: where environments run (`registry.make`).
        lease_seconds: deadline of a lease that asks for none.
        idle: how many instances are kept over all kinds while nobody wants them; the least recently used goes first.
        leases_per_instance: an instance is replaced after so many leases, which bounds what it can leak. None: never.
        limits: of a worker process; only with isolation "process". None: the defaults of `WorkerLimits`.

    Raises:
        ConfigurationError: a number that can't work, or limits without worker processes.
    """

    def __init__(
        self,
        slots: int | Mapping[str, int],
        isolation: Isolation = "thread",
        lease_seconds: float = 3600.0,
        idle: int = 64,
        leases_per_instance: int | None = None,
        limits: WorkerLimits | None = None,
    ):
        for of, number in slots.items() if isinstance(slots, Mapping) else [("a kind", slots)]:
            _require(number >= 1, f"slots of {of} must be at least 1", number)
        _require(lease_seconds > 0, "lease_seconds must be above 0", lease_seconds)
        _require(idle >= 0, "idle must be at least 0", idle)
        _require(
            leases_per_instance is None or leases_per_instance >= 1,
            "leases_per_instance must be at least 1, or None",
            leases_per_instance,
        )
        _require(limits is None or isolation == "process", "limits of workers need isolation 'process'", isolation)
        self._slots = slots
        self._isolation = isolation
        self._lease_seconds = lease_seconds
        self._idle = idle
        self._leases_per_instance = leases_per_instance
        self._limits = limits or WorkerLimits()
        self._kinds: dict[str, Kind] = {}
        self._returns = itertools.count()
        self._next_sweep: asyncio.TimerHandle | None = None
        self._closed = False

    @asynccontextmanager
    async def lease(self, name: str, seconds: float | None = None) -> AsyncIterator[LeasedEnvironment]:
        """Borrow an instance; it must be reset, and need not be closed.

        It goes back for reuse if the environment's facts allow that, every call came back with a result, and the body
        did not raise. Where an answer came back that was not what it should be, `spoil()` the environment.

        Args:
            name: of the environment.
            seconds: deadline, counted from the moment of the loan. When it has passed, the instance is ended, and the
                holder's calls fail as `environment_timed_out`. None: the pool's `lease_seconds`.

        Raises:
            ConfigurationError: no such environment, no slots for it, or a deadline that can't work.
            EnvironmentFailed: the pool was closed.
        """
        seconds = self._lease_seconds if seconds is None else seconds
        _require(seconds > 0, "a lease's seconds must be above 0", seconds)
        kind = self._kind(name)
        loan = await kind.lend(seconds)
        try:
            yield loan.environment
        except BaseException:
            loan.environment.spoil()
            raise
        finally:
            self._take_back(kind, loan)

    def statistics(self) -> dict[str, PoolStatistics]:
        """Of each kind that was asked for."""
        return {name: kind.statistics() for name, kind in self._kinds.items()}

    def end_period(self) -> dict[str, PoolPeriod]:
        """What happened to each kind since the last call, which only one reader may make."""
        return {name: kind.end_period() for name, kind in self._kinds.items()}

    async def close(self, seconds: float = 10.0) -> None:
        """Refuse whoever waits, end every lease, close every instance; what is not closed in time is left behind."""
        self._closed = True
        for kind in self._kinds.values():
            kind.close()
        if self._next_sweep is not None:
            self._next_sweep.cancel()
        endings = {ending for kind in self._kinds.values() for ending in kind.endings}
        if endings:
            await asyncio.wait(endings, timeout=seconds)
        for ending in endings:
            ending.cancel()  # a worker is killed by that

    async def __aenter__(self) -> EnvironmentPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _kind(self, name: str) -> Kind:
        if self._closed:
            raise closed_pool(name)
        if name not in self._kinds:
            registry.target(name)  # raises where there is no such environment
            self._kinds[name] = Kind(name, self._slots_of(name), lambda: self._make(name), self._leases_per_instance)
        return self._kinds[name]

    def _slots_of(self, name: str) -> int:
        if isinstance(self._slots, int):
            return self._slots
        if name not in self._slots:
            raise ConfigurationError(
                f"the pool has no slots for environment {name!r}; {did_you_mean(name, self._slots)}"
            )
        return self._slots[name]

    def _make(self, name: str) -> Environment:
        environment = registry.make(name, self._isolation)
        if isinstance(environment, ProcessEnvironment):
            environment.on_start = self._limits.impose
            self._plan_sweep(SWEEP_SECONDS)
        return environment

    def _take_back(self, kind: Kind, loan: Loan) -> None:
        instance = kind.take_back(loan)
        if instance is not None:
            instance.returned = next(self._returns)
            asyncio.get_running_loop().call_soon(self._trim_idle)  # whoever waited for the slot has it by then

    def _trim_idle(self) -> None:
        while sum(len(kind.idle) for kind in self._kinds.values()) > self._idle:
            min((kind for kind in self._kinds.values() if kind.idle), key=_oldest_return).close_oldest_idle()

    def _plan_sweep(self, seconds: float) -> None:
        if self._next_sweep is None and self._limits.need_sweep:
            self._next_sweep = asyncio.get_running_loop().call_later(seconds, self._sweep)

    def _sweep(self) -> None:
        """Kill what is over a limit; goes on as long as there is an instance."""
        self._next_sweep = None
        loop = asyncio.get_running_loop()
        began = loop.time()
        instances = self._live_instances()
        workers = {pid: found for found in instances if (pid := found[1].pid) is not None}
        for pid, family in worker_limits.families(workers).items():
            offence = self._limits.offence(family)
            if offence is not None:
                worker_limits.kill(pid)
                _convict(*workers[pid], offence)
        if instances:
            self._plan_sweep(max(SWEEP_SECONDS, 20 * (loop.time() - began)))

    def _live_instances(self) -> list[tuple[Kind, Instance, Loan | None]]:
        lent = [(kind, loan.instance, loan) for kind in self._kinds.values() for loan in kind.loans]
        idle = [(kind, instance, None) for kind in self._kinds.values() for instance in kind.idle]
        return [*lent, *idle]


def _require(holds: bool, rule: str, given: object) -> None:
    if not holds:
        raise ConfigurationError(f"{rule}; given: {given!r}")


def _oldest_return(kind: Kind) -> int:
    return kind.idle[0].returned


def _convict(kind: Kind, instance: Instance, loan: Loan | None, offence: str) -> None:
    if loan is None:
        kind.kill_idle(instance)
    else:
        kind.kill(loan, f"the worker of environment {kind.name!r} was killed: {offence}", Manner.CRASHED)
