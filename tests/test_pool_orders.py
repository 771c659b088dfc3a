"""Whatever the order in which sessions come, wait, go and fail, the pool keeps its promises."""

import asyncio
from contextlib import AsyncExitStack

from doubles import (
    name_of,
    task_for,
)
from doubles_pool import (
    OncePuppet,
    Puppet,
    inner,
    settle,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentgym_rl.errors import EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.pool import EnvironmentPool


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
