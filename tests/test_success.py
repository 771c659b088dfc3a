"""Success rates and their intervals, with numbers worked out by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.errors import DataError
from agentgym_rl.evaluation.success import Estimate, difference, mean_over_seeds, success_rate

outcomes = st.lists(st.none() | st.booleans(), max_size=40)


def test_eight_of_ten_have_wilsons_interval():
    # z = 1.959964, z^2 = 3.841459, 1 + z^2/10 = 1.3841459
    # centre (0.8 + 3.841459/20) / 1.3841459 = 0.716740
    # half   1.959964 * sqrt(0.8*0.2/10 + 3.841459/400) / 1.3841459 = 0.226578
    rate = success_rate([True] * 8 + [False] * 2)
    assert rate.value == 0.8
    assert rate.low == pytest.approx(0.716740 - 0.226578, abs=2e-6)
    assert rate.high == pytest.approx(0.716740 + 0.226578, abs=2e-6)
    assert (rate.size, rate.excluded) == (10, 0)


def test_none_of_ten_still_has_an_interval():
    # centre and half are both z^2/20 / (1 + z^2/10): from 0 to z^2 / (10 + z^2) = 3.841459 / 13.841459
    rate = success_rate([False] * 10)
    assert (rate.value, rate.low) == (0.0, 0.0)
    assert rate.high == pytest.approx(0.277533, abs=1e-6)


def test_an_episode_without_a_verdict_is_excluded_and_counted_not_taken_for_a_zero():
    rate = success_rate([True, None, True, None, None])
    assert (rate.value, rate.size, rate.excluded) == (1.0, 2, 3)
    assert rate[:3] == success_rate([True, True])[:3]


def test_nothing_decided_is_undefined():
    assert success_rate([None, None]) == Estimate(None, None, None, 0, 2)


@settings(max_examples=60, deadline=None)
@given(outcomes)
def test_an_interval_lies_in_0_to_1_around_its_rate(given_outcomes):
    rate = success_rate(given_outcomes)
    if rate.value is not None:
        assert 0 <= rate.low <= rate.value + 1e-12
        assert rate.value - 1e-12 <= rate.high <= 1


def episodes(*counts):
    """both, only first, only second, neither -> the two sides' outcomes."""
    pairs = [pair for pair, n in zip([(1, 1), (1, 0), (0, 1), (0, 0)], counts, strict=True) for _ in range(n)]
    return {i: bool(a) for i, (a, _) in enumerate(pairs)}, {i: bool(b) for i, (_, b) in enumerate(pairs)}


def test_a_paired_difference_has_newcombes_interval():
    # The worked example of Newcombe (1998) for paired data: 36 both, 12 and 2 discordant, 0 neither.
    # Rates 48/50 and 38/50: difference 0.2, method 10 gives 0.0569 to 0.3404.
    first, second = episodes(36, 2, 12, 0)
    gain = difference(first, second)
    assert gain.value == pytest.approx(0.2)
    assert (round(gain.low, 4), round(gain.high, 4)) == (0.0569, 0.3404)
    assert gain.size == 50


def test_pairs_that_agree_narrow_the_interval():
    alike, crossed = difference(*episodes(20, 0, 10, 20)), difference(*episodes(0, 20, 30, 0))
    assert alike.value == crossed.value == pytest.approx(0.2)
    assert alike.high - alike.low < (crossed.high - crossed.low) / 2


def test_a_certain_difference_still_has_a_width():
    # Rates 0/5 and 5/5, correlation undefined, taken as 0; Wilson: 0 to 3.841459/8.841459 = 0.434482, and its mirror.
    # low = 1 - sqrt(0.434482^2 + 0.434482^2) = 1 - 0.614451
    gain = difference(*episodes(0, 0, 5, 0))
    assert (gain.value, gain.high) == (1.0, 1.0)
    assert gain.low == pytest.approx(0.385549, abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.none() | st.booleans(), st.none() | st.booleans()), max_size=30))
def test_swapping_the_sides_mirrors_the_difference(pairs):
    first, second = dict(enumerate(a for a, _ in pairs)), dict(enumerate(b for _, b in pairs))
    there, back = difference(first, second), difference(second, first)
    assert there.excluded == back.excluded == sum(None in pair for pair in pairs)
    if there.value is not None:
        assert there.value == pytest.approx(-back.value)
        assert there.low == pytest.approx(-back.high)
        assert -1 - 1e-9 <= there.low <= there.value + 1e-9
        assert there.value - 1e-9 <= there.high <= 1 + 1e-9


def test_a_pair_with_one_verdict_is_excluded():
    gain = difference({1: True, 2: None, 3: False}, {1: True, 2: True, 3: None})
    assert (gain.value, gain.size, gain.excluded) == (0.0, 1, 2)


def test_no_complete_pair_is_undefined():
    assert difference({1: None}, {1: True}) == Estimate(None, None, None, 0, 1)


def test_different_tasks_are_not_compared():
    with pytest.raises(DataError, match=r"on the same tasks; only one side has b \(2 such\)"):
        difference({"a": True, "b": True}, {"a": True, "c": True})


def test_seeds_have_students_interval():
    # mean 2, s = 1, t(0.975; 2) = 4.302653: half = 4.302653 / sqrt(3) = 2.484138
    mean = mean_over_seeds([1.0, 2.0, 3.0])
    assert mean.value == 2.0
    assert mean.low == pytest.approx(2 - 2.484138, abs=1e-6)
    assert mean.high == pytest.approx(2 + 2.484138, abs=1e-6)
    assert mean.size == 3


def test_one_seed_has_a_mean_but_no_interval():
    assert mean_over_seeds([0.4]) == Estimate(0.4, None, None, 1)


def test_no_seed_is_undefined():
    assert mean_over_seeds([]) == Estimate(None, None, None, 0)
