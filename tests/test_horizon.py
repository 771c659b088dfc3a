"""The horizon curriculum: which limit of turns holds at which training step, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.horizon import Horizon

horizons = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5)), max_size=5).map(
    lambda rises: Horizon(
        {0: 2}
        | {sum(gap for gap, _ in rises[:n]): 2 + sum(more for _, more in rises[:n]) for n in range(1, len(rises) + 1)}
    )
)


def test_each_limit_holds_from_its_step_until_the_next():
    # step    0  1 .. 99  100 .. 249  250 ..
    # turns   4  4     4    8      8   16
    horizon = Horizon({0: 4, 100: 8, 250: 16})
    assert [horizon.max_turns(step) for step in (0, 1, 99, 100, 249, 250, 10_000)] == [4, 4, 4, 8, 8, 16, 16]


def test_a_horizon_of_one_entry_never_changes():
    assert {Horizon({0: 7}).max_turns(step) for step in range(1000)} == {7}


@given(horizons, st.integers(0, 300))
def test_a_later_step_never_has_fewer_turns(horizon, step):
    assert horizon.max_turns(step) <= horizon.max_turns(step + 1)


@given(horizons)
def test_every_entry_is_reached_exactly_at_its_step(horizon):
    for step, turns in horizon.turns.items():
        assert horizon.max_turns(step) == turns
        if step:
            assert horizon.max_turns(step - 1) < turns


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ({}, "a horizon starts at step 0; given: {}"),
        ({10: 4}, r"a horizon starts at step 0; given: {10: 4}"),
        ({0: 4, 100: 8, 50: 16}, "the steps of a horizon ascend"),
        ({0: 8, 100: 8}, "so do its turns"),
        ({0: 8, 100: 4}, "so do its turns, from 1 at least; given: {0: 8, 100: 4}"),
        ({0: 0, 100: 4}, "from 1 at least; given: {0: 0, 100: 4}"),
        ({-1: 1, 0: 4}, "a horizon starts at step 0"),
        ({0: 4.0}, "all whole numbers; given: {0: 4.0}"),
        ({"0": 4}, "all whole numbers; given: {'0': 4}"),
        ({0: True}, "all whole numbers; given: {0: True}"),
    ],
)
def test_what_can_not_work_is_refused_with_what_was_given(turns, message):
    with pytest.raises(ConfigurationError, match=message):
        Horizon(turns)
