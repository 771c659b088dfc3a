"""The expected gradient estimate of each estimator against the true policy gradient, both enumerated, none sampled.

The task is `doubles_mdp`: the policy decides when to stop and every turn earns something, which is where baselines go
wrong. Unbiased estimators are equal to the gradient to 1e-9; of the others the bias is shown.
"""

import doubles_mdp as mdp
import pytest
import torch

from verl_ext.advantages.gae import TrajectoryGae
from verl_ext.advantages.gigpo import GiGpo
from verl_ext.advantages.groups import leave_one_out_mean
from verl_ext.advantages.grpo import DrGrpo, TrajectoryGrpo
from verl_ext.advantages.return_to_go import return_to_go
from verl_ext.advantages.rloo import TrajectoryRloo
from verl_ext.advantages.turn_gae import TurnGae
from verl_ext.advantages.turn_grpo import TurnGrpo
from verl_ext.advantages.turn_returns import TurnReturns

TRUE_SA = mdp.gradient(mdp.expected_return)


def advantages_of(estimator):
    return lambda batch: estimator(batch).advantages_BR


def unwhitened_of(estimator):
    """A + V is what the critic learns, before whitening."""
    return lambda batch: estimator(batch).returns_BR - batch.values_BR


def assert_equal(found_SA, expected_SA):
    torch.testing.assert_close(found_SA, expected_SA, rtol=0, atol=1e-9)


def direction_error(found_SA):
    """Length of what no scale of the true gradient explains, by the length of the estimate."""
    unit_SA = TRUE_SA / TRUE_SA.norm()
    return float((found_SA - (found_SA * unit_SA).sum() * unit_SA).norm() / found_SA.norm())


# The task itself


def test_the_probabilities_of_all_episodes_sum_to_one():
    # start: stop, or 2 places; there: stop, or 2 places; there: 2 actions: 1 + 2 (1 + 2 · 2)
    every = list(mdp.episodes())
    assert len(every) == 11
    assert sum(episode.probability for episode in every) == pytest.approx(1.0, abs=1e-12)


def test_the_enumerated_return_and_its_derivative_are_those_of_the_recursion():
    returns = [
        sum(float(mdp.REWARD_SA[s, a]) for s, a in zip(e.states, e.actions, strict=True)) for e in mdp.episodes()
    ]
    mean = sum(e.probability * total for e, total in zip(mdp.episodes(), returns, strict=True))
    assert mean == pytest.approx(float(mdp.expected_return(mdp.LOGITS_SA)), abs=1e-12)
    # REINFORCE without a baseline, by definition
    assert_equal(mdp.expected_estimate(lambda batch: batch.return_B[:, None] * batch.mask_BR, 1), TRUE_SA)


def test_chances_of_reaching_a_turn_are_those_of_the_episodes():
    for turn in range(mdp.TURNS):
        found = sum(e.probability for e in mdp.episodes() if len(e.states) > turn)
        assert found == pytest.approx(float(mdp.reaches(mdp.LOGITS_SA, turn)), abs=1e-12)


# Unbiased


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("estimator", [TurnGrpo(), TrajectoryRloo()])
def test_a_baseline_of_siblings_alone_takes_nothing_from_the_gradient(estimator, size):
    assert_equal(mdp.expected_estimate(advantages_of(estimator), size), TRUE_SA)


@pytest.mark.parametrize("size", [2, 3])
def test_turn_returns_are_unbiased_over_batches_of_any_size(size):
    each = mdp.one_group_at_a_time(advantages_of(TurnReturns()))
    assert_equal(mdp.expected_estimate(each, size), TRUE_SA)


@pytest.mark.parametrize("size", [2, 3])
def test_dr_grpo_is_the_gradient_times_one_less_than_the_group_by_the_group(size):
    assert_equal(mdp.expected_estimate(advantages_of(DrGrpo()), size), TRUE_SA * (size - 1) / size)


@pytest.mark.parametrize("estimator", [TrajectoryGae(1.0, 1.0), TurnGae(1.0, 1.0, 1.0), TurnGae(1.0, 1.0, 0.0)])
def test_gae_with_lambda_one_is_unbiased_before_whitening_however_wrong_the_critic(estimator):
    assert_equal(mdp.expected_estimate(unwhitened_of(estimator), 1), TRUE_SA)


def against_those_that_reached_the_turn(batch):
    to_go_BT = return_to_go(batch.rewards_BT, 1.0)
    turns = torch.arange(to_go_BT.shape[1])
    mean_BT = leave_one_out_mean(to_go_BT, batch.group_B[:, None] * len(turns) + turns, batch.turn_mask_BT)
    return batch.to_tokens(to_go_BT - mean_BT)


@pytest.mark.parametrize("size", [2, 3])
def test_a_mean_over_the_siblings_that_reached_the_turn_is_as_unbiased(size):
    assert_equal(mdp.expected_estimate(against_those_that_reached_the_turn, size), TRUE_SA)


def test_the_baseline_of_all_siblings_has_the_least_variance_of_those_that_are_unbiased():
    turn_grpo = mdp.variance_of_estimate(advantages_of(TurnGrpo()), 3)
    assert turn_grpo == pytest.approx(0.169, abs=5e-4)
    assert turn_grpo < mdp.variance_of_estimate(against_those_that_reached_the_turn, 3)
    assert turn_grpo < mdp.variance_of_estimate(advantages_of(TrajectoryRloo()), 3)
    assert turn_grpo < mdp.variance_of_estimate(lambda batch: batch.to_tokens(return_to_go(batch.rewards_BT, 1.0)), 3)


# Biased, each in its known way


@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_a_discount_is_that_of_reinforce_with_discounted_returns_to_go_and_no_more(gamma):
    def reinforce(batch):
        return batch.to_tokens(return_to_go(batch.rewards_BT, gamma))

    found_SA = mdp.expected_estimate(advantages_of(TurnGrpo(gamma=gamma)), 2)
    assert_equal(found_SA, mdp.expected_estimate(reinforce, 1))
    assert direction_error(found_SA) > 1e-2


@pytest.mark.parametrize("estimator", [TrajectoryGae(1.0, 0.5), TurnGae(1.0, 0.5)])
def test_gae_with_a_smaller_lambda_believes_a_wrong_critic(estimator):
    assert direction_error(mdp.expected_estimate(unwhitened_of(estimator), 1)) > 1e-2


@pytest.mark.parametrize("estimator", [TrajectoryGae(1.0, 0.5), TurnGae(1.0, 0.0)])
def test_gae_with_a_smaller_lambda_is_unbiased_where_the_critic_is_right(estimator, monkeypatch):
    true_ST = [[float(mdp.expected_return(mdp.LOGITS_SA, s, t)) for t in range(mdp.TURNS)] for s in range(3)]
    monkeypatch.setattr(mdp, "CRITIC_ST", torch.tensor(true_ST, dtype=torch.float64))
    assert_equal(mdp.expected_estimate(unwhitened_of(estimator), 1), TRUE_SA)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "estimator", [TrajectoryGrpo(), TurnGrpo(divide_by_std=True), GiGpo(normalise=False), GiGpo(), GiGpo(gamma=0.9)]
)
def test_these_estimate_no_multiple_of_the_gradient(estimator, size):
    assert direction_error(mdp.expected_estimate(advantages_of(estimator), size)) > 1e-3


def test_of_two_trajectories_grpo_sees_only_which_is_better():
    # (R_1 - mean) / std = ±(d/2) / (|d|/√2) = ±1/√2, whatever the difference d
    def which(batch):
        first_G, second_G = batch.return_B.view(-1, 2).T
        sign_G = (first_G - second_G).sign() / 2**0.5
        return torch.stack([sign_G, -sign_G], dim=1).view(-1, 1) * batch.mask_BR

    found_SA = mdp.expected_estimate(advantages_of(TrajectoryGrpo()), 2)
    torch.testing.assert_close(found_SA, mdp.expected_estimate(which, 2), rtol=0, atol=1e-4)  # GRPO adds 1e-6 to std
    assert direction_error(found_SA) > 1e-3


def centred_turn_by_turn(batch):
    """The usual construction: each turn's own reward minus the siblings' mean of it, then the sum from there on."""
    turns = torch.arange(batch.rewards_BT.shape[1])
    group_BT = batch.group_B[:, None] * len(turns) + turns
    mean_BT = leave_one_out_mean(batch.rewards_BT, group_BT, batch.turn_mask_BT)
    return batch.to_tokens(return_to_go((batch.rewards_BT - mean_BT) * batch.turn_mask_BT, 1.0))


def test_the_usual_turn_level_construction_punishes_every_further_turn_by_the_mean_reward_of_turns():
    # Siblings are pairs, so the mean of turn t is the other's reward there, 0 where it ended: on average E[r_t]. It is
    # subtracted as often as the trajectory has turns: bias = -∇ Σ_t E[r_t] P(T > t), with E[r_t] held.
    def subtracted(logits_SA):
        return sum(mean * mdp.reaches(logits_SA, turn) for turn, mean in enumerate(mean_reward_of_turns()))

    found_SA = mdp.expected_estimate(centred_turn_by_turn, 2)
    assert_equal(found_SA, TRUE_SA - mdp.gradient(subtracted))
    assert direction_error(found_SA) > 1e-2


def mean_reward_of_turns():
    means = [0.0] * mdp.TURNS
    for episode in mdp.episodes():
        for turn, (state, action) in enumerate(zip(episode.states, episode.actions, strict=True)):
            means[turn] += episode.probability * float(mdp.REWARD_SA[state, action])
    return means
