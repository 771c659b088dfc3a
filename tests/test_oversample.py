"""Over-sampling accounts for every start exactly once, and each way of choosing has the bias that it names."""

import asyncio
from fractions import Fraction
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.oversample import Choice, Fate, Gathering, drawn_order
from agentgym_rl.task import Task
from agentgym_rl.together import all_or_cancel
from agentgym_rl.trajectory import Failure, StopReason, Trajectory
from benchmarks.rollout.virtual_clock import run

DRAWN, FIRST = Choice.DRAWN_SPARES, Choice.FIRST_FINISHED


class Plan:
    """Starts that take the given seconds and then end as they are told; counts what is under way."""

    def __init__(self, *episodes):
        self.episodes = episodes
        self.begun, self.ended, self.cancelled = [], [], []

    def starts(self):
        return [self.start(number) for number in range(len(self.episodes))]

    def start(self, number):
        async def episode():
            seconds, ending = self.episodes[number]
            self.begun.append(number)
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                self.cancelled.append(number)
                raise
            self.ended.append(number)
            if isinstance(ending, Exception):
                raise ending
            return trajectory(number, failed=ending == "failed")

        return episode


async def oversample(starts, keep, choice=DRAWN, seed=0):
    """Starts that all come at once, as those of one group do."""
    gathering = Gathering(len(starts), keep, choice, seed)
    return await all_or_cancel(gathering.settle(number, start) for number, start in enumerate(starts))


def trajectory(number, failed=False):
    task = Task(str(number), "walk")
    if failed:
        return Trajectory(task, (), (), StopReason.FAILED, None, Failure("environment_crashed", "it crashed"))
    return Trajectory(task, (), (), StopReason.TERMINATED, True)


def fates(outcomes):
    return [outcome.fate.value for outcome in outcomes]


def seed_of(order):
    """A seed that draws this order."""
    return next(seed for seed in range(1000) if drawn_order(len(order), seed) == list(order))


def test_where_all_are_wanted_all_are_kept_however_slow():
    plan = Plan((3, "ok"), (1, "failed"), (900, "ok"))
    outcomes = run(oversample(plan.starts(), 3))
    assert fates(outcomes) == ["kept", "failed", "kept"]
    assert [outcome.episode.task.id for outcome in outcomes] == ["0", "1", "2"]
    assert plan.ended == [1, 0, 2]


def test_first_finished_keeps_the_quick_ones_and_cancels_the_rest():
    plan = Plan((3, "ok"), (1, "ok"), (2, "ok"), (9, "ok"))
    outcomes = run(oversample(plan.starts(), 2, FIRST))
    assert fates(outcomes) == ["cancelled", "kept", "kept", "cancelled"]
    assert outcomes[0].episode is None
    assert sorted(plan.cancelled) == [0, 3]


def test_first_finished_passes_over_failed_ones():
    outcomes = run(oversample(Plan((3, "ok"), (1, "failed"), (2, "ok")).starts(), 2, FIRST))
    assert fates(outcomes) == ["kept", "failed", "kept"]


def test_a_spare_never_replaces_a_slow_one():
    # drawn: 0 and 1 are wanted, 2 is the spare
    plan = Plan((900, "ok"), (2, "ok"), (1, "ok"))
    assert fates(run(oversample(plan.starts(), 2, DRAWN, seed_of((0, 1, 2))))) == ["kept", "kept", "spare"]
    assert fates(run(oversample(plan.starts(), 2, DRAWN, seed_of((2, 1, 0))))) == ["cancelled", "kept", "kept"]


def test_a_spare_replaces_a_failed_one_in_the_drawn_order_although_another_was_quicker():
    plan = Plan((1, "failed"), (2, "ok"), (9, "ok"), (3, "ok"))
    outcomes = run(oversample(plan.starts(), 2, DRAWN, seed_of((0, 1, 2, 3))))
    assert fates(outcomes) == ["failed", "kept", "kept", "spare"]


def test_a_spare_is_cancelled_once_it_can_not_be_reached_however_many_fail_before_it():
    # at 2 s two of 0, 1 and 2 are sure to be kept, and whether 0 fails decides which
    plan = Plan((900, "ok"), (1, "ok"), (2, "ok"), (3, "ok"))
    outcomes = run(oversample(plan.starts(), 2, DRAWN, seed_of((0, 1, 2, 3))))
    assert fates(outcomes) == ["kept", "kept", "spare", "cancelled"]
    assert plan.ended == [1, 2, 0]


@pytest.mark.parametrize("choice", Choice)
def test_fewer_are_kept_where_too_many_fail(choice):
    outcomes = run(oversample(Plan((1, "failed"), (2, "ok"), (3, "failed")).starts(), 2, choice))
    assert fates(outcomes) == ["failed", "kept", "failed"]


@pytest.mark.parametrize("choice", Choice)
def test_what_a_start_raises_goes_through_and_the_others_are_cancelled(choice):
    plan = Plan((9, "ok"), (1, ConfigurationError("no such level")), (9, "ok"))
    with pytest.raises(ConfigurationError, match="no such level"):
        run(oversample(plan.starts(), 1, choice, seed_of((0, 1, 2))))
    assert sorted(plan.cancelled) == [0, 2]


def test_cancelling_cancels_every_start():
    plan = Plan((9, "ok"), (9, "ok"))

    async def cancelled_soon():
        sampling = asyncio.ensure_future(oversample(plan.starts(), 1))
        await asyncio.sleep(1)
        sampling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sampling

    run(cancelled_soon())
    assert sorted(plan.cancelled) == [0, 1]


@pytest.mark.parametrize("keep", [0, 3, -1])
def test_a_number_to_keep_that_cannot_work_is_refused(keep):
    with pytest.raises(ConfigurationError, match=f"keep must be from 1 to the number of starts, 2; given: {keep}"):
        run(oversample(Plan((1, "ok"), (1, "ok")).starts(), keep))


def test_every_order_is_drawn_about_equally_often():
    # 6 orders, 6000 seeds: 1000 each, standard deviation 29
    drawn = [tuple(drawn_order(3, seed)) for seed in range(6000)]
    assert all(880 < drawn.count(order) < 1120 for order in permutations(range(3)))


# Bias, by enumerating every case

SHORT, LONG, BROKEN = (1, "ok"), (3, "ok"), (2, "failed")
VALUE = {SHORT: 0, LONG: 1}
"""The long way solves the task: what is learned depends on how long it takes."""


def mean_value(kinds, count, keep, choice):
    """Mean value of a kept episode where each kind is equally likely, exactly; over all draws of spares, too."""
    seeds = [seed_of(order) for order in permutations(range(count))] if choice is DRAWN else [0]
    values = []
    for episodes in product(kinds, repeat=count):
        for seed in seeds:
            outcomes = run(oversample(Plan(*episodes).starts(), keep, choice, seed))
            values += [VALUE[e] for e, o in zip(episodes, outcomes, strict=True) if o.fate is Fate.KEPT]
    return Fraction(sum(values), len(values))


def test_the_first_finished_of_two_are_biased_towards_short_episodes_and_drawn_spares_are_not():
    # of short-short, short-long, long-short, long-long the first finished is long only in the last
    assert mean_value([SHORT, LONG], 2, 1, FIRST) == Fraction(1, 4)
    assert mean_value([SHORT, LONG], 2, 1, DRAWN) == Fraction(1, 2)


def test_so_it_is_where_two_of_three_are_kept():
    # first finished keeps min(2, shorts) short ones; with 0, 1, 2, 3 shorts (1, 3, 3, 1 cases) long ones: 2, 1, 0, 0
    assert mean_value([SHORT, LONG], 3, 2, FIRST) == Fraction(2 * 1 + 1 * 3, 2 * 8)
    assert mean_value([SHORT, LONG], 3, 2, DRAWN) == Fraction(1, 2)


def test_failures_that_have_nothing_to_do_with_length_bring_no_bias_into_drawn_spares():
    # pairs of short, long, broken: 8 of 9 keep one; the first finished is long in LL, LB, BL
    assert mean_value([SHORT, LONG, BROKEN], 2, 1, FIRST) == Fraction(3, 8)
    assert mean_value([SHORT, LONG, BROKEN], 2, 1, DRAWN) == Fraction(1, 2)


# Starts that come on their own


def told_at(gathering, plan, come=()):
    """Second and fate of each start, in the order in which they are told; `come` says when each comes, 0 if short."""
    told = []

    async def settle(number, second):
        await asyncio.sleep(second)
        outcome = await gathering.settle(number, plan.start(number))
        told.append((asyncio.get_running_loop().time(), number, outcome.fate.value))

    async def all_of_them():
        seconds = [*come, *[0] * (len(plan.episodes) - len(come))]
        await asyncio.gather(*(settle(number, second) for number, second in enumerate(seconds)))

    run(all_of_them())
    return [(round(second, 3), number, fate) for second, number, fate in told]


def test_each_is_told_as_soon_as_its_fate_is_certain():
    # 1 is kept whatever 0 does; 2 has to wait for 0, whose place it takes at 9 s
    gathering = Gathering(3, 2, DRAWN, seed_of((0, 1, 2)))
    assert told_at(gathering, Plan((9, "failed"), (1, "ok"), (2, "ok"))) == [
        (1, 1, "kept"),
        (9, 0, "failed"),
        (9, 2, "kept"),
    ]


def test_the_first_to_finish_wait_for_nobody():
    plan = Plan((9, "ok"), (1, "ok"), (2, "ok"))
    assert told_at(Gathering(3, 2, FIRST, 0), plan) == [(1, 1, "kept"), (2, 2, "kept"), (2, 0, "cancelled")]


@pytest.mark.parametrize(("choice", "order"), [(DRAWN, (0, 1, 2)), (FIRST, (0, 1, 2))])
def test_whoever_comes_when_all_places_are_taken_is_not_even_begun(choice, order):
    plan = Plan((1, "ok"), (1, "ok"), (1, "ok"))
    told = told_at(Gathering(3, 2, choice, seed_of(order)), plan, come=(0, 0, 5))
    assert told == [(1, 0, "kept"), (1, 1, "kept"), (5, 2, "cancelled")]
    assert plan.begun == [0, 1]


def test_one_that_is_awaited_keeps_its_place_however_late_it_comes():
    plan = Plan((1, "ok"), (1, "ok"), (1, "ok"))
    told = told_at(Gathering(3, 2, DRAWN, seed_of((0, 1, 2))), plan, come=(5, 0, 0))
    assert told == [(1, 1, "kept"), (6, 0, "kept"), (6, 2, "spare")]


def test_one_that_raises_counts_as_failed_for_the_others():
    gathering = Gathering(2, 1, DRAWN, seed_of((0, 1)))
    plan = Plan((5, ConfigurationError("no such level")), (1, "ok"))

    async def both():
        return await asyncio.gather(
            *(gathering.settle(number, plan.start(number)) for number in (0, 1)), return_exceptions=True
        )

    raised, outcome = run(both())
    assert str(raised) == "no such level"
    assert outcome.fate is Fate.KEPT


def test_one_that_cancels_itself_was_not_needless_and_counts_as_failed():
    gathering = Gathering(2, 1, FIRST, 0)

    async def cancels_itself():
        raise asyncio.CancelledError("its own doing")

    async def both():
        starts = [cancels_itself, Plan((1, "ok")).start(0)]
        return await asyncio.gather(
            *(gathering.settle(number, start) for number, start in enumerate(starts)), return_exceptions=True
        )

    raised, outcome = run(both())
    assert isinstance(raised, asyncio.CancelledError)
    assert outcome.fate is Fate.KEPT


def outcomes_with_2_cancelled_at_5(keep):
    gathering = Gathering(4, keep, DRAWN, seed_of((0, 1, 2, 3)))
    plan = Plan((9, "failed"), (8, "failed"), (2, "ok"), (3, "ok"))

    async def cancelled_at_5():
        settling = [asyncio.ensure_future(gathering.settle(number, plan.start(number))) for number in range(4)]
        await asyncio.sleep(5)
        settling[2].cancel()
        return await asyncio.gather(*settling, return_exceptions=True)

    *others, last = run(cancelled_at_5())
    assert [type(other).__name__ for other in others] == ["Outcome", "Outcome", "CancelledError"]
    return last.fate


def test_one_that_is_cancelled_from_outside_while_it_waits_gives_up_its_place_to_one_that_is_still_there():
    assert outcomes_with_2_cancelled_at_5(keep=2) is Fate.KEPT
    # the one place was certain to go to 0, 1 or 2 when these had not failed, so 3 was sent away at 2 s
    assert outcomes_with_2_cancelled_at_5(keep=1) is Fate.CANCELLED


def test_cleaning_up_after_a_cancellation_is_not_broken_off_by_what_the_others_do():
    gathering = Gathering(4, 1, FIRST, 0)
    plan = Plan((1, "ok"), (9, "ok"), (9, "ok"))
    cleaned = []

    async def cleans_up():
        try:
            await asyncio.sleep(9)
        finally:
            await asyncio.sleep(3)
            cleaned.append(True)

    async def stubborn():
        try:
            await asyncio.sleep(9)
        except asyncio.CancelledError:
            await asyncio.sleep(1)  # ends a second after its cancellation, while the other one cleans up
        return trajectory(2)

    async def all_of_them():
        starts = [plan.start(0), cleans_up, stubborn, plan.start(1)]
        return await asyncio.gather(*(gathering.settle(number, start) for number, start in enumerate(starts)))

    assert fates(run(all_of_them())) == ["kept", "cancelled", "spare", "cancelled"]
    assert cleaned == [True]


# Every start is accounted for


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["ok", "failed"])), min_size=1, max_size=8),
    st.integers(1, 8),
    st.sampled_from(Choice),
    st.integers(0, 99),
)
def test_every_start_is_accounted_for_exactly_once(episodes, keep, choice, seed):
    keep = min(keep, len(episodes))
    plan = Plan(*episodes)
    outcomes = run(oversample(plan.starts(), keep, choice, seed))
    assert sorted(plan.begun) == list(range(len(episodes))) == sorted(plan.ended + plan.cancelled)
    for number, outcome in enumerate(outcomes):
        assert (outcome.fate is Fate.CANCELLED) == (number in plan.cancelled) == (outcome.episode is None)
        if outcome.episode:
            assert outcome.episode.task.id == str(number)
            assert outcome.episode.failed == (outcome.fate is Fate.FAILED)
    sound = sum(ending == "ok" for _, ending in episodes)
    assert sum(outcome.fate is Fate.KEPT for outcome in outcomes) == min(keep, sound)
