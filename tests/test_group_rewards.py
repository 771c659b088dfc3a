"""Rewards that compare the trajectories of a group: one sum with the others, and a judge that sees all side by side."""

import asyncio
import json

import pytest
from doubles_judge import SILENT, by_replies, chat_server, records_shown, trajectory_of, verdicts
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.errors import ConfigurationError, DataError, JudgeFailed
from agentgym_rl.rewards import Reward, group_reward, split, weighted_group_sum, weighted_sum

A, B, C = trajectory_of("up"), trajectory_of("down", "top", success=True), trajectory_of("left", "left", "left")
SAYS = {"up": 2, "top": 9, "left": 5}
"""Last reply -> what the judge gives it, of 10."""


@pytest.fixture(scope="module")
def chat():
    with chat_server() as chat:
        yield chat


def judged(settings, weight=1.0, **more):
    return {"relative_judge": {"weight": weight, "url": settings.url, "model": "m", "tries": 1, **more}}


def compare(weights, trajectories):
    return asyncio.run(weighted_group_sum(weights)(trajectories))


@group_reward
def longer_than_mean(trajectories, scale=1.0):
    """Turns beyond the group's mean, spread over the trajectory's own."""
    turns_G = [len(trajectory.turns) for trajectory in trajectories]
    mean = sum(turns_G) / len(turns_G)
    return [[scale * (turns - mean) / turns] * turns for turns in turns_G]


@group_reward
async def rank(trajectories):
    """0 for the shortest, 1 for the next, ...; on the last turn."""
    await asyncio.sleep(0)
    order = sorted(len(trajectory.turns) for trajectory in trajectories)
    return [
        [0.0] * (len(trajectory.turns) - 1) + [float(order.index(len(trajectory.turns)))] for trajectory in trajectories
    ]


@group_reward
def one_list_too_few(trajectories):
    return [[0.0] * len(trajectory.turns) for trajectory in trajectories[1:]]


@group_reward
def one_turn_too_few(trajectories):
    return [[0.0] * (len(trajectory.turns) - 1) for trajectory in trajectories]


# The sum


def test_a_weighted_sum_over_a_group_by_hand():
    # turns 1, 2, 3; mean 2
    # longer  (1 - 2) / 1 = -1;  0, 0;  1/3, 1/3, 1/3      * 3
    # rank    0;                 0, 1;  0, 0, 2            * 0.5
    weights = {"test_group_rewards:longer_than_mean": {"weight": 1.5, "scale": 2.0}, "test_group_rewards:rank": 0.5}
    first, second, third = compare(weights, [A, B, C])
    assert first.per_turn_T == (-3.0,)
    assert second.per_turn_T == (0.0, 0.5)
    assert third.per_turn_T == pytest.approx((1.0, 1.0, 2.0))
    assert third.parts == pytest.approx(
        {"test_group_rewards:longer_than_mean": 3.0, "test_group_rewards:rank": 1.0},
    )


def test_what_a_trajectory_earns_alone_and_by_comparison_add_up_turn_by_turn():
    alone = asyncio.run(weighted_sum({"outcome": 2.0, "environment": 1.0})(B))
    _, compared = compare({"test_group_rewards:rank": 0.5}, [A, B])
    both = alone.plus(compared)
    # environment 0.25 0.25; outcome 0 2; rank 0 0.5
    assert both == Reward((0.25, 2.75), {"outcome": 2.0, "environment": 0.5, "test_group_rewards:rank": 0.5})
    assert both.total == 3.0


groups = st.lists(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(lambda replies: trajectory_of(*replies)),
    min_size=2,
    max_size=6,
)


@given(groups, st.floats(-100, 100), st.floats(-100, 100))
def test_the_total_is_the_sum_of_turns_and_of_parts(group, a, b):
    weights = {"test_group_rewards:longer_than_mean": a, "test_group_rewards:rank": b}
    for trajectory, reward in zip(group, compare(weights, group), strict=True):
        whole = asyncio.run(weighted_sum({"environment": 1.0})(trajectory)).plus(reward)
        assert whole.total == sum(whole.per_turn_T)
        assert len(whole.per_turn_T) == len(trajectory.turns)
        assert whole.total == pytest.approx(sum(whole.parts.values()), abs=1e-6)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("one_list_too_few", "must give 2 lists, one a trajectory; it gave "),
        ("one_turn_too_few", "must give 1 finite numbers, one a turn; it gave "),
    ],
)
def test_a_function_that_does_not_give_numbers_for_each_turn_of_each_trajectory_is_named(function, message):
    with pytest.raises(DataError, match=f"reward 'test_group_rewards:{function}' {message}"):
        compare({f"test_group_rewards:{function}": 1.0}, [A, B])


@pytest.mark.parametrize(("group", "turns"), [([], []), ([A], [1]), ([A, trajectory_of()], [1, 0])])
def test_what_can_not_be_compared_is_refused(group, turns):
    with pytest.raises(DataError) as error:
        compare({"test_group_rewards:rank": 1.0}, group)
    assert str(error.value) == f"a group reward compares two trajectories or more, with turns; given: of {turns} turns"


# The two kinds


def test_a_sum_is_split_by_what_its_functions_need_to_see():
    weights = {"outcome": 1.0, "test_group_rewards:rank": 0.5, "format": {"weight": 2.0}}
    assert split(weights) == ({"outcome": 1.0, "format": {"weight": 2.0}}, {"test_group_rewards:rank": 0.5})
    assert split({"outcome": 1.0}) == ({"outcome": 1.0}, {})


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, "a reward needs at least one named function"),
        (
            {"test_group_rewards:rank": 1.0},
            "reward 'test_group_rewards:rank' compares .* as in validation, would have no",
        ),
        ({"outcome": 1.0, "relative_judg": 1.0}, "no reward 'relative_judg'; did you mean 'relative_judge'"),
        ({"outcome": 1.0, "relative_judge": 1.0}, "missing a required argument: 'url'; it takes: url, model, rubric"),
        ({"outcome": 1.0, "test_group_rewards:rank": {"weight": 1, "scale": 2}}, "'scale'; it takes: no argument"),
    ],
)
def test_a_split_that_can_not_work_is_refused_by_name(weights, message):
    with pytest.raises(ConfigurationError, match=message):
        split(weights)


def test_a_function_of_one_kind_is_not_taken_for_the_other():
    with pytest.raises(ConfigurationError, match="reward 'outcome' scores each trajectory alone, and can't score a gr"):
        weighted_group_sum({"outcome": 1.0})
    with pytest.raises(ConfigurationError, match="compares the trajectories of a group, and can't score one alone"):
        weighted_sum({"test_group_rewards:rank": 1.0})


# The judge


async def test_a_relative_judge_s_scores_by_hand(chat):
    # on the last turn, of 10: 2, 9, 5; weight 0.5
    with chat(otherwise=by_replies(SAYS)) as (server, settings):
        rewards = await weighted_group_sum(judged(settings, weight=0.5))([A, B, C])
    assert [reward.per_turn_T for reward in rewards] == [(0.1,), (0.0, 0.45), (0.0, 0.0, 0.25)]
    assert [reward.parts for reward in rewards] == [{"relative_judge": score} for score in (0.1, 0.45, 0.25)]
    (request,) = server.requests
    assert len(records_shown(request)) == 3


@given(st.permutations([A, B, C]))
def test_the_order_of_the_sessions_changes_neither_the_question_nor_a_score(chat, group):
    with chat(otherwise=by_replies(SAYS)) as (server, settings):

        async def both():
            compared = weighted_group_sum(judged(settings))
            return await compared([A, B, C]), await compared(group)

        in_order, rewards = asyncio.run(both())
    first, second = server.requests
    assert first == second
    assert [in_order[[A, B, C].index(trajectory)] for trajectory in group] == rewards


async def test_the_judge_does_not_always_see_the_first_session_first(chat):
    others = [trajectory_of(f"right {number}") for number in range(30)]
    with chat(otherwise=lambda request: verdicts(5, 5)) as (server, settings):
        for other in others:
            await weighted_group_sum(judged(settings))([A, other])
    firsts = [json.dumps(records_shown(request)[0]) for request in server.requests]
    assert 5 < sum('"up"' in first for first in firsts) < 25


async def test_the_same_group_is_asked_about_once_where_answers_are_kept(chat, tmp_path):
    with chat(otherwise=by_replies(SAYS)) as (server, settings):
        weights = judged(settings, cache=str(tmp_path))
        rewards = await weighted_group_sum(weights)([A, B, C])
        again = await weighted_group_sum(weights)([C, A, B])
        await weighted_group_sum(weights)([A, B])
    assert [again[1], again[2], again[0]] == rewards
    assert [len(records_shown(request)) for request in server.requests] == [3, 2]


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (500, "judge_raised"),
        ("all fine", "judge_raised"),
        (verdicts(7), "judge_raised"),  # one of three
        (verdicts(7, 8, 9, 10), "judge_raised"),
        (SILENT, "judge_timed_out"),
    ],
)
async def test_a_judge_that_fails_leaves_the_group_without_a_reward(chat, answer, cause):
    with chat(answer) as (_, settings):
        with pytest.raises(JudgeFailed) as caught:
            await weighted_group_sum(judged(settings, deadline_seconds=0.3))([A, B, C])
    assert caught.value.cause_name == cause


async def test_a_judge_alone_and_a_relative_one_share_a_server_and_stay_two_parts(chat):
    with chat(otherwise=by_replies(SAYS)) as (server, settings):
        given = {"weight": 1.0, "url": settings.url, "model": "m"}
        alone, compared = split({"judge": given, "relative_judge": given})
        reward = await weighted_sum(alone)(B)
        _, relative = await weighted_group_sum(compared)([A, B])
    assert reward.plus(relative).parts == {"judge": 0.9, "relative_judge": 0.9}
    assert len(server.requests) == 2
