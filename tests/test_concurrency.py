"""The limit that follows a policy server's latency: exact on the test's own clock, and fair whatever is cancelled."""

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentgym_rl.concurrency import AdaptiveLimit, reply_limit
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.slots import Slots


class Server:
    """Calls under a limit that end when the test says so, on a clock that the test turns."""

    def __init__(self, **options):
        self.now = 0.0
        self.limit = AdaptiveLimit(**options, clock=lambda: self.now)
        self.running = []  # (task, future) in the order of their admission

    async def _call(self):
        async with self.limit:
            end = asyncio.get_running_loop().create_future()
            self.running.append((asyncio.current_task(), end))
            await end

    async def begin(self, count):
        tasks = [asyncio.ensure_future(self._call()) for _ in range(count)]
        await settle()
        return tasks

    async def end(self, count=1, error=None):
        ending, self.running = self.running[:count], self.running[count:]
        for task, end in ending:
            end.set_exception(error) if error else end.set_result(None)
            await asyncio.wait({task})
            task.exception()
        await settle()

    async def rounds(self, *latencies):
        """Full rounds of calls that begin together, each call with its round's latency."""
        for latency in latencies:
            count = self.limit.limit
            await self.begin(count)
            self.now += latency
            await self.end(count)


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


# Hand cases


async def test_a_full_round_of_quick_replies_adds_one():
    server = Server(start=4)
    await server.rounds(1.0, 1.0, 1.9)
    assert server.limit.limit == 7


async def test_a_round_above_tolerance_times_the_reference_halves():
    server = Server(start=9)
    await server.rounds(1.0)  # 10; R = 1
    await server.rounds(2.1)
    assert server.limit.limit == 5


async def test_the_reference_falls_half_the_way_and_rises_by_a_fiftieth_only_after_a_late_round():
    server = Server(start=1)
    await server.rounds(8.0)
    assert server.limit.reference_seconds == 8.0
    await server.rounds(4.0)
    assert server.limit.reference_seconds == pytest.approx(6.0)  # 8 + 0.5 * (4 - 8)
    await server.rounds(11.0)
    assert server.limit.reference_seconds == pytest.approx(6.0)
    await server.rounds(13.0)
    assert server.limit.reference_seconds == pytest.approx(6.14)  # 6 + 0.02 * (13 - 6)


async def test_one_long_reply_is_no_overload():
    server = Server(start=3)
    await server.rounds(1.0)
    await server.begin(4)
    server.now += 1.0
    await server.end(3)
    server.now += 98.0
    await server.end()  # latencies 1, 1, 1, 99: median 1
    assert server.limit.limit == 5


async def test_a_limit_grows_only_in_rounds_that_reach_it():
    server = Server(start=4)
    await server.rounds(1.0)
    for _ in range(8):
        await server.begin(4)
        server.now += 1.0
        await server.end(4)
    assert server.limit.limit == 5


async def test_a_failure_halves_at_once_but_only_once_for_the_calls_that_ran_with_it():
    server = Server(start=8)
    await server.begin(8)
    await server.end(3, ConnectionError("reset"))
    assert server.limit.limit == 4
    server.now += 1.0
    await server.end(5)  # began before the decrease: neither their failures nor their latencies count
    assert (server.limit.limit, server.limit.reference_seconds) == (4, None)
    await server.begin(4)
    await server.end(1, ConnectionError("reset"))
    assert server.limit.limit == 2


@pytest.mark.parametrize(("seconds", "limit"), [(2.0, 5), (2.1, 2)])
async def test_a_call_that_is_cut_off_counts_as_a_failure_once_it_is_late(seconds, limit):
    server = Server(start=4)
    await server.rounds(1.0)
    tasks = await server.begin(1)
    server.now += seconds
    tasks[0].cancel()
    await settle()
    assert server.limit.limit == limit
    assert server.limit.holders == 0


async def test_a_server_that_never_answered_lowers_the_limit_when_its_callers_give_up():
    server = Server(start=4)
    tasks = await server.begin(1)
    tasks[0].cancel()
    await settle()
    assert server.limit.limit == 2


async def test_the_limit_stays_within_its_bounds():
    server = Server(start=2, lowest=2, highest=4)
    await server.rounds(1.0, 1.0, 1.0, 1.0)
    assert server.limit.limit == 4
    for _ in range(3):
        await server.begin(1)
        await server.end(1, ConnectionError("reset"))
    assert server.limit.limit == 2


async def test_a_server_that_became_slower_for_good_is_taken_as_it_is_after_a_while():
    server = Server(start=8)
    await server.rounds(*[1.0] * 3)
    lowest = 8
    for _ in range(60):
        await server.rounds(3.0)
        lowest = min(lowest, server.limit.limit)
    assert lowest == 1
    assert server.limit.limit > 8


async def test_it_settles_where_a_server_is_saturated():
    """8 replies at a time take 1 s, more take longer in proportion: from 17 on it is more than twice as long."""
    server = Server(start=2)
    seen = []
    for _ in range(200):
        await server.rounds(max(1.0, server.limit.limit / 8))
        seen.append(server.limit.limit)
    assert max(seen) in (17, 18)
    assert min(seen[50:]) == 8


async def test_whoever_waits_is_served_in_order_and_no_sooner_than_the_lowered_limit_allows():
    server = Server(start=4)
    tasks = await server.begin(7)
    assert (server.limit.holders, server.limit.waiting) == (4, 3)
    await server.end(1, ConnectionError("reset"))  # limit 2, three hold it
    assert (server.limit.limit, server.limit.holders, server.limit.waiting) == (2, 3, 3)
    await server.end(1)
    assert server.limit.holders == 2
    await server.end(1)
    assert [task for task, _ in server.running] == [tasks[3], tasks[4]]
    await server.end(4)
    await server.end(4)
    assert (server.limit.holders, server.limit.waiting) == (0, 0)


async def test_a_task_that_asks_twice_is_told_so_instead_of_waiting_for_itself():
    limit = AdaptiveLimit(start=1)
    async with limit:
        with pytest.raises(RuntimeError, match="^this task already holds a place under the limit"):
            async with limit:
                pass
    assert limit.holders == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": 4, "lowest": 5}, "1 <= lowest <= start <= highest must hold; given: 5, 4, 4096"),
        ({"start": 4, "highest": 3}, "1 <= lowest <= start <= highest must hold; given: 1, 4, 3"),
        ({"lowest": 0}, "1 <= lowest <= start <= highest must hold; given: 0, 16, 4096"),
        ({"tolerance": 1.0}, "tolerance must be above 1; given: 1.0"),
        ({"factor": 1.0}, "factor must be between 0 and 1; given: 1.0"),
        ({"factor": 0.0}, "factor must be between 0 and 1; given: 0.0"),
    ],
)
def test_options_that_can_not_work_are_refused(options, message):
    with pytest.raises(ConfigurationError, match=f"^{message}$"):
        AdaptiveLimit(**options)


# The dial


async def most_at_a_time(limit, calls):
    """The most of these calls that were under way at once; each takes several rounds of the event loop."""
    under_way, most = 0, 0

    async def call():
        nonlocal under_way, most
        async with limit:
            under_way += 1
            most = max(most, under_way)
            await settle()
            under_way -= 1

    await asyncio.gather(*(call() for _ in range(calls)))
    return most


async def test_without_a_limit_all_calls_run_at_once():
    assert await most_at_a_time(reply_limit(None), 40) == 40


@pytest.mark.parametrize("fixed", [1, 3])
async def test_a_number_is_kept_to_however_quick_the_server_is_and_whatever_fails(fixed):
    limit = reply_limit(fixed)
    assert await most_at_a_time(limit, 40) == fixed
    for _ in range(3):
        with pytest.raises(ConnectionError):
            async with limit:
                raise ConnectionError("reset")
    assert await most_at_a_time(limit, 40) == fixed


async def test_a_number_may_be_above_what_the_adaptive_limit_goes_to():
    assert reply_limit(5000).limit == 5000


async def test_adaptive_begins_at_its_default_and_moves():
    limit = reply_limit("adaptive")
    assert limit.limit == AdaptiveLimit().limit == 16
    with pytest.raises(ConnectionError):
        async with limit:
            raise ConnectionError("reset")
    assert limit.limit == 8


@pytest.mark.parametrize("dial", [0, -1, True, 2.0, "16", "adaptiv", ""])
def test_a_dial_that_can_not_work_is_refused(dial):
    with pytest.raises(ConfigurationError) as error:
        reply_limit(dial)
    assert str(error.value) == (
        f"concurrent_replies must be a whole number above 0, 'adaptive', or null for no limit; given: {dial!r}"
    )


# Slots


async def test_a_waiter_that_is_cancelled_after_it_was_handed_the_slot_passes_it_on():
    slots = Slots(1)
    await slots.acquire()
    first, second = asyncio.ensure_future(slots.acquire()), asyncio.ensure_future(slots.acquire())
    await settle()
    slots.release()  # handed to `first`, which has not run since
    first.cancel()
    await settle()
    assert first.cancelled()
    assert second.done()
    assert (slots.held, slots.waiting) == (1, 0)


async def test_nobody_overtakes_a_waiter():
    slots = Slots(1)
    await slots.acquire()
    waiter = asyncio.ensure_future(slots.acquire())
    await settle()
    slots.release()
    late = asyncio.ensure_future(slots.acquire())
    await settle()
    assert waiter.done()
    assert not late.done()
    late.cancel()


async def test_a_raised_limit_lets_the_waiters_in_at_once():
    slots = Slots(1)
    waiters = [asyncio.ensure_future(slots.acquire()) for _ in range(4)]
    await settle()
    slots.limit = 3
    await settle()
    assert [waiter.done() for waiter in waiters] == [True, True, True, False]
    waiters[3].cancel()


async def test_refused_waiters_get_the_error_and_hold_nothing():
    slots = Slots(1)
    await slots.acquire()
    waiters = [asyncio.ensure_future(slots.acquire()) for _ in range(2)]
    await settle()
    slots.refuse(lambda: ValueError("closed"))
    await settle()
    assert [str(waiter.exception()) for waiter in waiters] == ["closed", "closed"]
    assert (slots.held, slots.waiting) == (1, 0)


# Whatever the order of things


class Interleavings(RuleBasedStateMachine):
    """Calls begin, end, fail and are cancelled in any order, with any latency."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.server = Server(start=3, lowest=2, highest=6)
        self.calls = []
        self.admitted = 0
        self.decreased_at = None

    def run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    @rule(count=st.integers(1, 4))
    def begin(self, count):
        held = self.server.limit.holders
        self.calls += self.run(self.server.begin(count))
        assert self.server.limit.holders <= max(held, self.server.limit.limit)

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 10.0]))
    def wait(self, seconds):
        self.server.now += seconds

    @precondition(lambda self: self.server.running)
    @rule(failed=st.booleans(), data=st.data())
    def end(self, failed, data):
        chosen = data.draw(st.integers(0, len(self.server.running) - 1))
        self.server.running.insert(0, self.server.running.pop(chosen))
        before = self.server.limit.limit
        self.run(self.server.end(1, ConnectionError("reset") if failed else None))
        assert self.server.limit.limit in (before, before + 1, max(before // 2, 2))

    @precondition(lambda self: any(not call.done() for call in self.calls))
    @rule(data=st.data())
    def cancel(self, data):
        call = data.draw(st.sampled_from([call for call in self.calls if not call.done()]))
        call.cancel()
        self.run(settle())
        assert call.cancelled()
        self.server.running = [pair for pair in self.server.running if pair[0] is not call]

    @invariant()
    def bounds_and_books(self):
        limit = self.server.limit
        open_calls = [call for call in self.calls if not call.done()]
        assert 2 <= limit.limit <= 6
        assert limit.holders == len(self.server.running)
        assert limit.waiting == len(open_calls) - limit.holders
        assert limit.waiting == 0 or limit.holders >= limit.limit  # nobody waits beside a free place
        holding = {task for task, _ in self.server.running}
        assert not open_calls or holding == set(open_calls[: len(holding)])  # first come, first served

    def teardown(self):
        while self.server.running:
            self.run(self.server.end(1))
        assert all(call.done() for call in self.calls)
        assert (self.server.limit.holders, self.server.limit.waiting) == (0, 0)
        self.loop.close()


Interleavings.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestInterleavings = Interleavings.TestCase
