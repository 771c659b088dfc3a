"""Rewards compose linearly, turn by turn, and their total is the sum of their turns."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.messages import assistant, user
from agentgym_rl.policy import Reply
from agentgym_rl.rewards import Reward, reward_function, weighted_sum
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason, Trajectory, Turn


def trajectory_of(rewards_T, valid_T=None, success=None):
    valid_T = valid_T or [True] * len(rewards_T)
    turns = tuple(
        Turn(Reply(assistant("a")), (user("o"),), reward, valid)
        for reward, valid in zip(rewards_T, valid_T, strict=True)
    )
    return Trajectory(Task("t", "maze"), (user("go"),), turns, StopReason.TERMINATED, success)


def too_short(trajectory):
    return [1.0]


def not_a_number(trajectory):
    return [math.nan] * len(trajectory.turns)


numbers = st.floats(-100, 100)
trajectories = st.builds(
    lambda turns, success: trajectory_of([r for r, _ in turns], [v for _, v in turns], success),
    st.lists(st.tuples(numbers, st.booleans()), max_size=6),
    st.sampled_from([True, False, None]),
)


def test_each_named_reward_by_hand():
    #             turn 0  turn 1  turn 2  turn 3
    # environment   0.5     0      -1       2
    # valid         yes     no     yes      no
    trajectory = trajectory_of([0.5, 0.0, -1.0, 2.0], [True, False, True, False], success=True)
    assert reward_function("environment")(trajectory) == [0.5, 0.0, -1.0, 2.0]
    assert reward_function("outcome")(trajectory) == [0.0, 0.0, 0.0, 1.0]
    assert reward_function("format")(trajectory) == [0.0, -0.25, 0.0, -0.25]


def test_a_weighted_sum_by_hand():
    trajectory = trajectory_of([0.5, 0.0], [True, False], success=True)
    # 2 * outcome      0     2
    # 1 * environment  0.5   0
    # 4 * format       0    -2
    reward = weighted_sum({"outcome": 2.0, "environment": 1.0, "format": 4.0})(trajectory)
    assert reward == Reward((0.5, 0.0), {"outcome": 2.0, "environment": 0.5, "format": -2.0})
    assert reward.total == 0.5


@pytest.mark.parametrize("success", [False, None])
def test_only_a_solved_task_has_an_outcome(success):
    assert reward_function("outcome")(trajectory_of([1.0, 1.0], success=success)) == [0.0, 0.0]


def test_a_trajectory_without_turns_earns_nothing():
    reward = weighted_sum({"outcome": 1.0, "environment": 1.0, "format": 1.0})(trajectory_of([], success=True))
    assert reward.per_turn_T == ()
    assert reward.total == 0


@given(trajectories, numbers, numbers)
def test_a_weighted_sum_is_linear(trajectory, a, b):
    both = weighted_sum({"environment": a, "format": b})(trajectory)
    environment = weighted_sum({"environment": 1.0})(trajectory)
    format_ = weighted_sum({"format": 1.0})(trajectory)
    for turn, score in enumerate(both.per_turn_T):
        expected = a * environment.per_turn_T[turn] + b * format_.per_turn_T[turn]
        assert score == pytest.approx(expected, abs=1e-9)


@given(trajectories, numbers, numbers)
def test_the_total_is_the_sum_of_turns_and_of_parts(trajectory, a, b):
    reward = weighted_sum({"environment": a, "outcome": b})(trajectory)
    assert reward.total == pytest.approx(sum(reward.per_turn_T))
    assert reward.total == pytest.approx(sum(reward.parts.values()), abs=1e-6)


@given(trajectories)
def test_the_format_penalty_lies_between_minus_one_and_zero(trajectory):
    assert -1 - 1e-9 <= sum(reward_function("format")(trajectory)) <= 0


@given(st.lists(numbers, max_size=10))
def test_the_environments_return_is_the_sum_of_its_rewards(rewards_T):
    assert trajectory_of(rewards_T).environment_return == sum(rewards_T)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, "at least one named function"),
        ({"outcome": math.nan}, "the weight of reward 'outcome' must be a finite number; given: nan"),
        ({"outcome": math.inf}, "given: inf"),
        ({"outcome": "1"}, "given: '1'"),
        ({"outcom": 1.0}, r"no reward 'outcom'; did you mean 'outcome'\? \(or give 'module:function'\)"),
        ({"no.module:f": 1.0}, "reward 'no.module:f' can't be imported: No module named 'no'"),
        ({"math:no_function": 1.0}, "reward 'math:no_function' can't be imported"),
    ],
)
def test_weights_that_can_not_work_are_refused_by_name(weights, message):
    with pytest.raises(ConfigurationError, match=message):
        weighted_sum(weights)


@pytest.mark.parametrize(("function", "given"), [("too_short", r"\[1.0\]"), ("not_a_number", r"\[nan, nan\]")])
def test_a_function_that_does_not_give_one_finite_number_a_turn_is_named(function, given):
    reward = weighted_sum({f"test_rewards:{function}": 1.0})
    with pytest.raises(DataError, match=f"'test_rewards:{function}' must give 2 finite numbers.*it gave {given}"):
        reward(trajectory_of([0.0, 0.0]))
