"""One kind of environment in the pool: its slots, its loans, its idle instances, and those on their way out.

An instance is in one of four places: lent, idle, closing or gone. A slot is held by each that is lent, and by each that
is closing after a loan, so that worker processes stay bounded; only where a thread may hang, which nobody can end, the
slot is free at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from agentgym_rl.environment import Environment
from agentgym_rl.environments.process import ProcessEnvironment
from agentgym_rl.environments.registry import CLOSE_SECONDS
from agentgym_rl.errors import AgentGymError, BoundaryError, ConfigurationError, EnvironmentFailed, Manner, boundary
from agentgym_rl.lease import LeasedEnvironment
from agentgym_rl.pool_statistics import Peak, PoolPeriod, PoolStatistics
from agentgym_rl.slots import Slots


@dataclass(eq=False)
class Instance:
    """An environment and what became of it."""

    environment: Environment
    leases: int = 0
    returned: int = 0
    """Number of its last return, counted over the pool."""

    @property
    def pid(self) -> int | None:
        """Of its worker process, if it has one that runs."""
        return self.environment.pid if isinstance(self.environment, ProcessEnvironment) else None


@dataclass(eq=False)
class Loan:
    """An instance in a holder's hands."""

    instance: Instance
    environment: LeasedEnvironment
    deadline: asyncio.TimerHandle


class Kind:
    """The bookkeeping of one kind.

    Args:
        name: of the environment.
        slots: how many may be lent at a time.
        make: a new environment.
        leases_per_instance: see `EnvironmentPool`.
    """

    def __init__(self, name: str, slots: int, make: Callable[[], Environment], leases_per_instance: int | None):
        self.name = name
        self.loans: set[Loan] = set()
        self.idle: deque[Instance] = deque()
        """In the order of their return."""
        self.endings: set[asyncio.Task[bool]] = set()
        self._slots = Slots(slots)
        self._make = make
        self._leases_per_instance = leases_per_instance
        self._counts: Counter[str] = Counter()
        self._waited_seconds = 0.0
        self._running = 0
        self._killed_before = 0
        self._leased_peak = Peak()
        self._running_peak = Peak()
        self._closed = False

    def statistics(self) -> PoolStatistics:
        places = (len(self.loans), self._slots.waiting, len(self.endings), len(self.idle), self._running)
        return PoolStatistics(*places, waited_seconds=self._waited_seconds, **self._counts)

    def end_period(self) -> PoolPeriod:
        """What happened since the last call."""
        killed_in_all = self._counts["killed"]
        killed, self._killed_before = killed_in_all - self._killed_before, killed_in_all
        return PoolPeriod(
            self._running_peak.end_period(self._running),
            self._leased_peak.end_period(len(self.loans)),
            self._slots.end_period(),
            killed,
        )

    async def lend(self, seconds: float) -> Loan:
        """Wait for a slot, and fill it with the instance that came back last, or a new one."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        try:
            await self._slots.acquire()
        finally:
            self._waited_seconds += loop.time() - asked
        try:
            instance = self._instance()
        except BaseException:
            self._slots.release()
            raise
        instance.leases += 1
        late = f"the lease of environment {self.name!r} ended after {seconds:.3g} s"
        deadline = loop.call_later(seconds, lambda: self.kill(loan, late, Manner.TIMED_OUT))
        loan: Loan = Loan(instance, LeasedEnvironment(instance.environment, self._count_call), deadline)
        self.loans.add(loan)
        self._leased_peak.note(len(self.loans))
        return loan

    def take_back(self, loan: Loan) -> Instance | None:
        """At the end of its holder's body; returns the instance if it is idle now."""
        if loan not in self.loans:  # it was killed meanwhile
            return None
        instance, sound = loan.instance, loan.environment.sound
        calls = self._end_loan(loan, f"environment {self.name!r} was used after its lease", Manner.RAISED)
        if sound and instance.leases != self._leases_per_instance and _reusable(instance.environment):
            self.idle.append(instance)
            self._slots.release()
            return instance
        self._counts["failed"] += not sound
        self._discard_lent(loan, calls, by_force=False)
        return None

    def kill(self, loan: Loan, why: str, manner: Manner) -> None:
        """While its holder is still in the body, whose calls fail with `why` from now on."""
        self._counts["failed"] += 1
        self._counts["killed"] += 1
        self._discard_lent(loan, self._end_loan(loan, why, manner), by_force=True)

    def kill_idle(self, instance: Instance) -> None:
        self.idle.remove(instance)
        self._counts["killed"] += 1
        self._discard(instance, (), True, holds_slot=False)

    def close_oldest_idle(self) -> None:
        self._discard(self.idle.popleft(), (), False, holds_slot=False)

    def close(self) -> None:
        """Refuse whoever waits or asks, end every loan, and close what is idle, in the background (`endings`)."""
        self._closed = True
        self._slots.refuse(lambda: closed_pool(self.name))
        for loan in list(self.loans):
            self.kill(loan, str(closed_pool(self.name)), Manner.CRASHED)
        while self.idle:
            self.close_oldest_idle()

    def _instance(self) -> Instance:
        if self._closed:
            raise closed_pool(self.name)
        if self.idle:
            self._counts["reused"] += 1
            return self.idle.pop()
        environment = self._make()
        self._counts["created"] += 1
        return Instance(environment)

    def _count_call(self, change: int) -> None:
        self._running += change
        self._running_peak.note(self._running)

    def _end_loan(self, loan: Loan, why: str, manner: Manner) -> set[asyncio.Task[None]]:
        self.loans.remove(loan)
        loan.deadline.cancel()
        return loan.environment.end(why, manner)

    def _discard_lent(self, loan: Loan, calls: Collection[asyncio.Task[None]], by_force: bool) -> None:
        thread_may_hang = loan.environment.cut_off and not isinstance(loan.instance.environment, ProcessEnvironment)
        if thread_may_hang:
            self._slots.release()
        self._discard(loan.instance, calls, by_force, holds_slot=not thread_may_hang)

    def _discard(
        self, instance: Instance, calls: Collection[asyncio.Task[None]], by_force: bool, holds_slot: bool
    ) -> None:
        def ended(ending: asyncio.Task[bool]) -> None:
            self.endings.discard(ending)
            if holds_slot:
                self._slots.release()
            self._counts["abandoned"] += ending.cancelled() or not ending.result()

        ending = asyncio.ensure_future(_put_away(self.name, instance.environment, calls, by_force))
        self.endings.add(ending)
        ending.add_done_callback(ended)


def closed_pool(name: str) -> EnvironmentFailed:
    """What each lease ends with when the pool is closed."""
    return EnvironmentFailed(f"the pool of environment {name!r} was closed", Manner.CRASHED)


def _reusable(environment: Environment) -> bool:
    try:
        return environment.facts.reusable
    except ConfigurationError:  # they are known once its worker has started, which it never has
        return False


async def _put_away(name: str, environment: Environment, calls: Collection[asyncio.Task[None]], by_force: bool) -> bool:
    """Close or kill an instance; false: it was not closed by its deadline."""
    if isinstance(environment, ProcessEnvironment):
        if calls:
            await asyncio.wait(calls, timeout=CLOSE_SECONDS)  # being cut off, each kills the worker
        if by_force:
            await environment.kill()
            return True
    try:
        await boundary(environment.close(), EnvironmentFailed, f"close of environment {name!r}", CLOSE_SECONDS)
    except BoundaryError as error:
        return error.manner is not Manner.TIMED_OUT or isinstance(environment, ProcessEnvironment)
    except AgentGymError:
        return True
    return True
