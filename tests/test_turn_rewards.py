"""Rewards of turns on the tokens of a verl row."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_ext.agent_loop.turn_rewards import TurnRewardOutput, token_scores


def row(**changes: object) -> TurnRewardOutput:
    fields = {
        # turn 0 said 11 12 and got 0.5; 21 22 23 was observed; turn 1 said 13 and got -0.25
        "prompt_ids": [1, 2],
        "response_ids": [11, 12, 21, 22, 23, 13],
        "response_mask": [1, 1, 0, 0, 0, 1],
        "response_logprobs": [-0.1, -0.2, 0.0, 0.0, 0.0, -0.3],
        "rewards_T": [0.5, -0.25],
        "turn_ends_T": [1, 5],
        "reward_score": 0.25,
        "num_turns": 5,
        "metrics": {},
        "extra_fields": {"min_global_steps": 3},
    }
    return TurnRewardOutput(**{**fields, **changes})


def test_each_reward_stands_on_its_turns_last_token():
    assert row().as_dict()["rm_scores"].tolist() == [0, 0.5, 0, 0, 0, -0.25]


def test_the_rest_of_the_row_is_verls_own():
    made = row().as_dict()
    assert made["prompts"].tolist() == [1, 2]
    assert made["responses"].tolist() == [11, 12, 21, 22, 23, 13]
    assert made["response_mask"].tolist() == [1, 1, 0, 0, 0, 1]
    assert made["rollout_log_probs"].tolist() == pytest.approx([-0.1, -0.2, 0, 0, 0, -0.3])
    assert made["num_turns"] == 5
    assert made["extra_fields"] == {"min_global_steps": 3}
    assert not {"rewards_T", "turn_ends_T", "reward_score", "response_logprobs"} & made.keys()


def test_a_row_without_log_probs_has_no_column_for_them():
    assert "rollout_log_probs" not in row(response_logprobs=None).as_dict()


def test_a_single_turn_is_verls_own_score_on_the_last_token():
    made = row(response_mask=[1] * 6, rewards_T=[0.25], turn_ends_T=[5]).as_dict()
    assert made["rm_scores"].tolist() == [0, 0, 0, 0, 0, 0.25]


@given(
    turns=st.lists(st.tuples(st.floats(-10, 10, width=32), st.integers(1, 9)), min_size=1, max_size=8),
    tail=st.integers(0, 3),
)
def test_nothing_is_lost_or_moved(turns, tail):
    rewards_T = [reward for reward, _ in turns]
    ends_T = [sum(length for _, length in turns[: t + 1]) - 1 for t in range(len(turns))]
    scores_R = token_scores(rewards_T, ends_T, ends_T[-1] + 1 + tail)
    assert scores_R.shape == (ends_T[-1] + 1 + tail,)
    assert scores_R[ends_T].tolist() == rewards_T
    assert scores_R.sum().item() == pytest.approx(sum(rewards_T), abs=1e-4)
    scores_R[ends_T] = 0
    assert torch.equal(scores_R, torch.zeros_like(scores_R))


@pytest.mark.parametrize(("rewards_T", "ends_T"), [([1.0], [0, 1]), ([1.0, 2.0], [1]), ([1.0], [6])])
def test_rewards_that_do_not_fit_the_turns_are_an_error(rewards_T, ends_T):
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        token_scores(rewards_T, ends_T, 6)
