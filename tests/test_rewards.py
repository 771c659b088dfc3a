"""Rewards compose linearly, turn by turn, and their total is the sum of their turns."""

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.messages import assistant, user
from agentgym_rl.policy import Reply, SampledTokens
from agentgym_rl.rewards import Reward, longest_deadline, reward_function, weighted_sum
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason, Trajectory, Turn


def trajectory_of(rewards_T, valid_T=None, success=None):
    valid_T = valid_T or [True] * len(rewards_T)
    turns = tuple(
        Turn(Reply(assistant("a")), (user("o"),), reward, valid)
        for reward, valid in zip(rewards_T, valid_T, strict=True)
    )
    return Trajectory(Task("t", "maze"), (user("go"),), turns, StopReason.TERMINATED, success)


def sampled_trajectory(tokens_T):
    """A trajectory that sampled so many tokens in each turn; None: the policy answered in text only."""
    sampled_T = [None if n is None else SampledTokens((7,) * n, (-0.5,) * n) for n in tokens_T]
    turns = tuple(Turn(Reply(assistant("a"), tokens=sampled), (user("o"),), 0.0) for sampled in sampled_T)
    return Trajectory(Task("t", "maze"), (user("go"),), turns, StopReason.TERMINATED)


def rewarded(weights, trajectory):
    return asyncio.run(weighted_sum(weights)(trajectory))


def scaled_rewards(trajectory, factor, shift=0.0):
    return [factor * turn.reward + shift for turn in trajectory.turns]


def any_arguments(trajectory, **scores):
    return [sum(scores.values())] * len(trajectory.turns)


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
    assert reward_function("invalid_action")(trajectory) == [0.0, -1.0, 0.0, -1.0]


def test_a_weighted_sum_by_hand():
    trajectory = trajectory_of([0.5, 0.0], [True, False], success=True)
    # 2 * outcome      0     2
    # 1 * environment  0.5   0
    # 4 * format       0    -2
    reward = rewarded({"outcome": 2.0, "environment": 1.0, "format": 4.0}, trajectory)
    assert reward == Reward((0.5, 0.0), {"outcome": 2.0, "environment": 0.5, "format": -2.0})
    assert reward.total == 0.5


@pytest.mark.parametrize("success", [False, None])
def test_only_a_solved_task_has_an_outcome(success):
    assert reward_function("outcome")(trajectory_of([1.0, 1.0], success=success)) == [0.0, 0.0]


def test_a_trajectory_without_turns_earns_nothing():
    reward = rewarded({"outcome": 1.0, "environment": 1.0, "format": 1.0}, trajectory_of([], success=True))
    assert reward.per_turn_T == ()
    assert reward.total == 0


@given(trajectories, numbers, numbers)
def test_a_weighted_sum_is_linear(trajectory, a, b):
    both = rewarded({"environment": a, "format": b}, trajectory)
    environment = rewarded({"environment": 1.0}, trajectory)
    format_ = rewarded({"format": 1.0}, trajectory)
    for turn, score in enumerate(both.per_turn_T):
        expected = a * environment.per_turn_T[turn] + b * format_.per_turn_T[turn]
        assert score == pytest.approx(expected, abs=1e-9)


@given(trajectories, numbers, numbers)
def test_the_total_is_the_sum_of_turns_and_of_parts(trajectory, a, b):
    reward = rewarded({"environment": a, "outcome": b}, trajectory)
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
        ({"math:pi": 1.0}, "reward 'math:pi': 3.14.* is not a callable object"),
        ({"overlong": 1.0}, "'overlong': missing a required argument: 'budget'; it takes: budget, buffer; given: none"),
        (
            {"overlong": {"weight": 1, "budget": 9, "bufer": 2}},
            "reward 'overlong': .*'b.*; it takes: budget, buffer; given: budget, bufer",
        ),
        (
            {"outcome": {"weight": 1, "budget": 9}},
            "unexpected keyword argument 'budget'; it takes: no argument; given: b",
        ),
        ({"overlong": {"budget": 9, "buffer": 2}}, "reward 'overlong' needs a weight beside its arguments; given: "),
        ({"outcome": {"weight": None}}, "the weight of reward 'outcome' must be a finite number; given: None"),
    ],
)
def test_weights_that_can_not_work_are_refused_by_name(weights, message):
    with pytest.raises(ConfigurationError, match=message):
        weighted_sum(weights)


@pytest.mark.parametrize(("function", "given"), [("too_short", r"\[1.0\]"), ("not_a_number", r"\[nan, nan\]")])
def test_a_function_that_does_not_give_one_finite_number_a_turn_is_named(function, given):
    weights = {f"test_rewards:{function}": 1.0}
    with pytest.raises(DataError, match=f"'test_rewards:{function}' must give 2 finite numbers.*it gave {given}"):
        rewarded(weights, trajectory_of([0.0, 0.0]))


def test_arguments_go_to_the_function_and_the_weight_does_not():
    trajectory = trajectory_of([0.5, -1.0])
    # 3 * reward + 1:    2.5   -2
    # half of it:        1.25  -1
    scaled = {"test_rewards:scaled_rewards": {"weight": 0.5, "factor": 3.0, "shift": 1.0}}
    assert rewarded(scaled, trajectory).per_turn_T == (1.25, -1.0)
    # without the shift  1.5   -3
    scaled = {"test_rewards:scaled_rewards": {"weight": 1.0, "factor": 3.0}, "environment": {"weight": 2.0}}
    assert rewarded(scaled, trajectory).per_turn_T == (1.5 + 1.0, -3.0 - 2.0)


def test_a_function_of_any_arguments_gets_them_all():
    weights = {"test_rewards:any_arguments": {"weight": 2.0, "a": 1.0, "b": 0.5}}
    assert rewarded(weights, trajectory_of([0.0])).per_turn_T == (3.0,)


@pytest.mark.parametrize(
    ("tokens_T", "expected"),
    [
        # budget 10, buffer 4: free up to 6, then a quarter a token
        ([2, 3], [0.0, 0.0]),
        ([6], [0.0]),
        ([4, 3], [0.0, -0.25]),
        ([1, 1, 6], [0.0, 0.0, -0.5]),
        ([10], [-1.0]),
        ([10, 90], [0.0, -1.0]),
        ([], []),
    ],
)
def test_the_overlong_penalty_by_hand(tokens_T, expected):
    assert reward_function("overlong")(sampled_trajectory(tokens_T), budget=10, buffer=4) == expected


def test_the_overlong_penalty_composes_with_a_weight():
    # 7 tokens of 10 with a buffer of 4: a quarter, of a weight of 2
    reward = rewarded({"overlong": {"weight": 2.0, "budget": 10, "buffer": 4}}, sampled_trajectory([4, 3]))
    assert reward == Reward((0.0, -0.5), {"overlong": -0.5})


@given(st.lists(st.integers(0, 30), min_size=1, max_size=5), st.integers(1, 60), st.data())
def test_the_overlong_penalty_lies_between_minus_one_and_zero_and_grows_with_the_tokens(tokens_T, budget, data):
    buffer = data.draw(st.integers(1, budget))
    penalty = sum(reward_function("overlong")(sampled_trajectory(tokens_T), budget, buffer))
    longer = sum(reward_function("overlong")(sampled_trajectory([*tokens_T, 1]), budget, buffer))
    assert -1 <= longer <= penalty <= 0
    assert penalty == pytest.approx(-min(max(sum(tokens_T) - budget + buffer, 0), buffer) / buffer)


def test_tokens_that_are_not_there_are_not_counted_as_none():
    with pytest.raises(DataError, match="counts sampled tokens, and turn 1 of task 't' has none.*text only"):
        reward_function("overlong")(sampled_trajectory([3, None]), budget=10, buffer=4)


@pytest.mark.parametrize("buffer", [0, -1, 11])
def test_a_buffer_must_fit_its_budget(buffer):
    with pytest.raises(ConfigurationError, match=f"from 1 to its budget; given: buffer {buffer}, budget 10"):
        reward_function("overlong")(sampled_trajectory([3]), budget=10, buffer=buffer)


def test_the_longest_deadline_is_that_of_the_slowest_function_and_then_of_the_slowest_comparison():
    asked = {"url": "http://localhost/v1", "model": "m"}
    assert longest_deadline({"outcome": 1.0, "format": 0.1}) == 0.0
    assert longest_deadline({"outcome": 1.0, "judge": {"weight": 1.0, **asked}}) == 60.0
    both = {"judge": {"weight": 1.0, **asked, "deadline_seconds": 30.0}, "relative_judge": {**asked, "weight": 1.0}}
    assert longest_deadline(both) == 30.0 + 60.0
    assert longest_deadline({"judge": {"weight": 1.0, **asked, "deadline_seconds": 900.0}}) == 900.0
