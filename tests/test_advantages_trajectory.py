"""Trajectory-level advantages: hand cases, what holds for all of them, verl's own numbers, and exact gradients."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from doubles_advantages import Row, batch_of, batches, in_order, joined, scaled, with_columns, with_gap
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.errors import ConfigurationError, DataError
from verl_ext.advantages.batch import Estimator, TrajectoryBatch
from verl_ext.advantages.grpo import DrGrpo, TrajectoryGrpo
from verl_ext.advantages.maxrl import MaxRl
from verl_ext.advantages.pass_at_k import PassAtK
from verl_ext.advantages.reinforce_pp import TrajectoryReinforcePlusPlus, TrajectoryReinforcePlusPlusBaseline
from verl_ext.advantages.rloo import TrajectoryRloo

WHITENED = [
    TrajectoryReinforcePlusPlus(),
    TrajectoryReinforcePlusPlus(gamma=0.5),
    TrajectoryReinforcePlusPlusBaseline(),
]
CENTRED = [TrajectoryGrpo(), TrajectoryGrpo(normalise=False), DrGrpo(), TrajectoryRloo(), MaxRl(), PassAtK(k=1)]
WITHIN_GROUP = [*CENTRED, PassAtK(k=2), PassAtK(k=3)]
COMPARING = [*WITHIN_GROUP, TrajectoryReinforcePlusPlusBaseline()]
"""Those that compare a trajectory with the others of its group."""
ALL = [*WITHIN_GROUP, *WHITENED]
SCALING = [TrajectoryGrpo(normalise=False), DrGrpo(), TrajectoryRloo(), PassAtK(k=1), PassAtK(k=2), PassAtK(k=3)]
INDIFFERENT = [TrajectoryGrpo(), MaxRl(), *WHITENED]
"""Those to which the scale of the rewards makes no difference."""

few = settings(max_examples=40)


def close(given, expected, of: Estimator | str = "", **tolerances: float) -> None:
    torch.testing.assert_close(given, expected, msg=lambda message: f"{of}\n{message}", **tolerances)


def every(estimators: list[Estimator]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("estimator", estimators, ids=str)


# Worked by hand. Returns: group 0: 3, 1, 2 (mean 2, std 1); group 1: 0, 4 (mean 2, std √8); group 2: 5, alone.
DRAWN = batch_of(
    Row(group=0, tokens=[11, 12, 31, 13], mask=[1, 1, 0, 1], rewards=[0, 1, 0, 2]),
    Row(group=1, tokens=[11], mask=[1], rewards=[0]),
    Row(group=2, tokens=[11, 12], mask=[1, 1], rewards=[0, 5]),
    Row(group=0, tokens=[11, 31, 12], mask=[1, 0, 1], rewards=[1, 0, 0]),
    Row(group=1, tokens=[11, 31, 32, 12], mask=[1, 0, 0, 1], rewards=[0, 0, 0, 4]),
    Row(group=0, tokens=[11, 12, 13], mask=[1, 1, 1], rewards=[0, 0, 2]),
)
BY_HAND = [
    # (3 - 2) / 1, (0 - 2) / √8, alone, (1 - 2) / 1, (4 - 2) / √8, (2 - 2) / 1
    (TrajectoryGrpo(), [1, -0.70710678, 0, -1, 0.70710678, 0]),
    # 3 - 2, 0 - 2, alone, 1 - 2, 4 - 2, 2 - 2
    (TrajectoryGrpo(normalise=False), [1, -2, 0, -1, 2, 0]),
    (DrGrpo(), [1, -2, 0, -1, 2, 0]),
    # 3 - (1 + 2) / 2, 0 - 4, alone, 1 - (3 + 2) / 2, 4 - 0, 2 - (3 + 1) / 2
    (TrajectoryRloo(), [1.5, -4, 0, -1.5, 4, 0]),
    (PassAtK(k=1), [1.5, -4, 0, -1.5, 4, 0]),
    # (3 - 2) / 2, (0 - 2) / 2, alone, (1 - 2) / 2, (4 - 2) / 2, (2 - 2) / 2
    (MaxRl(), [0.5, -1, 0, -0.5, 1, 0]),
    # 3: 2 · (2 + 1) / 2 above the one other; 0: none below; alone; 1: none below; 4: 2 · 4; 2: 2 · (0 + 1) / 2
    (PassAtK(k=2), [3, 0, 0, 0, 8, 1]),
    # 3: 3 · (3 - 2) above both others; 4: two only, so as for k = 2; 2: never the best of three
    (PassAtK(k=3), [3, 0, 0, 0, 8, 0]),
]


@pytest.mark.parametrize(("estimator", "expected_B"), BY_HAND, ids=lambda given: str(given)[:40])
def test_an_advantage_is_what_was_worked_out_by_hand(estimator, expected_B):
    advantages_BR, returns_BR = estimator(DRAWN)
    mask_BR = torch.tensor([[1, 1, 0, 1], [1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1], [1, 1, 1, 0]])
    close(advantages_BR, torch.tensor(expected_B, dtype=torch.float32)[:, None] * mask_BR, rtol=2e-6, atol=1e-7)
    assert torch.equal(advantages_BR, returns_BR)


def test_reinforce_pp_discounts_by_sampled_tokens_and_whitens_over_them():
    # γ = 0.5. First: G = 4; over the observation 1 + 0.5 · 4 = 3; 0.5 · 3 = 1.5. Second: -2.5.
    # Of 1.5, 3, 4, -2.5 the mean is 1.5 and the variance (0 + 2.25 + 6.25 + 16) / 3, its root 2.857738.
    batch = batch_of(
        Row(group=0, tokens=[11, 12, 31, 13], mask=[1, 1, 0, 1], rewards=[0, 1, 0, 4]),
        Row(group=1, tokens=[11], mask=[1], rewards=[-2.5]),
    )
    advantages_BR, returns_BR = TrajectoryReinforcePlusPlus(gamma=0.5)(batch)
    close(returns_BR, torch.tensor([[1.5, 3, 0, 4], [-2.5, 0, 0, 0]]))
    close(advantages_BR, torch.tensor([[0, 0.5248907, 0, 0.8748178], [-1.3997084, 0, 0, 0]]), rtol=1e-6, atol=1e-6)


def test_the_baseline_form_whitens_what_is_above_the_group_and_leaves_a_lone_trajectory_out():
    # Above the mean 1: 1, 1 on the two tokens of the first, -1 on the one of the second; the third is alone.
    # Of 1, 1, -1 the mean is 1/3 and the variance (4/9 + 4/9 + 16/9) / 2 = 4/3, its root 1.1547005.
    batch = batch_of(
        Row(group=0, tokens=[11, 31, 12], mask=[1, 0, 1], rewards=[0, 0, 2]),
        Row(group=0, tokens=[11], mask=[1], rewards=[0]),
        Row(group=1, tokens=[11, 12], mask=[1, 1], rewards=[0, 7]),
    )
    advantages_BR, returns_BR = TrajectoryReinforcePlusPlusBaseline()(batch)
    expected_BR = torch.tensor([[0.5773503, 0, 0.5773503], [-1.1547005, 0, 0], [0, 0, 0]])
    close(advantages_BR, expected_BR, rtol=1e-6, atol=1e-6)
    assert torch.equal(advantages_BR, returns_BR)


@few
@given(batch=batches())
def test_a_token_that_was_not_sampled_has_advantage_and_return_zero(batch):
    for estimator in ALL:
        for given_BR in estimator(batch):
            assert given_BR.shape == batch.turn_BR.shape, estimator
            assert given_BR.dtype == batch.rewards_BR.dtype, estimator
            assert not given_BR[~batch.mask_BR].any(), estimator
            assert given_BR.isfinite().all(), estimator


@few
@given(batch=batches(), data=st.data())
def test_the_order_of_the_trajectories_changes_nothing(batch, data):
    order = data.draw(st.permutations(range(len(batch.group_B))))
    for estimator in ALL:
        for before_BR, after_BR in zip(estimator(batch), estimator(in_order(batch, order)), strict=True):
            close(after_BR, before_BR[order], of=estimator)


@few
@given(batch=batches(), width=st.integers(1, 3), data=st.data())
def test_columns_that_nobody_sampled_change_nothing_behind_the_end_or_in_the_middle(batch, width, data):
    at = data.draw(st.integers(0, batch.turn_BR.shape[1]))
    for estimator in ALL:
        for before_BR, after_BR in zip(estimator(batch), estimator(with_gap(batch, at, width)), strict=True):
            close(torch.cat([after_BR[:, :at], after_BR[:, at + width :]], dim=1), before_BR, of=estimator)


@few
@given(batch=batches(), factor=st.sampled_from([0.5, 3.0, 100.0]))
def test_scaling_the_rewards_scales_the_advantages_or_leaves_them(batch, factor):
    assert {*SCALING, *INDIFFERENT} == {*ALL}
    for estimator in SCALING:
        close(estimator(scaled(batch, factor)).advantages_BR, factor * estimator(batch).advantages_BR, of=estimator)
    for estimator in INDIFFERENT:
        after_BR = estimator(scaled(batch, factor)).advantages_BR
        close(after_BR, estimator(batch).advantages_BR, of=estimator, rtol=1e-3, atol=1e-6)  # their epsilon stays


@few
@given(batch=batches(), other=batches())
def test_another_group_changes_nothing(batch, other):
    both = joined(batch, other)
    alone = with_columns(batch, both.turn_BR.shape[1])
    for estimator in WITHIN_GROUP:
        both_BR, alone_BR = estimator(both).advantages_BR, estimator(alone).advantages_BR
        assert torch.equal(both_BR[: len(batch.group_B)], alone_BR), estimator


@few
@given(batch=batches())
def test_the_advantages_of_a_group_have_mean_zero_over_its_trajectories(batch):
    for estimator in CENTRED:
        per_trajectory_B = estimator(batch).advantages_BR[:, 0]  # every trajectory begins with a sampled token
        for group in batch.group_B.unique():
            mean = per_trajectory_B[batch.group_B == group].mean().item()
            close(mean, 0.0, of=estimator, rtol=0, atol=1e-9)


@few
@given(batch=batches(min_group=2))
def test_whitened_advantages_have_mean_zero_and_variance_one_over_the_sampled_tokens(batch):
    for estimator in WHITENED:
        advantages_N = estimator(batch).advantages_BR[batch.mask_BR]
        close(advantages_N.mean().item(), 0.0, of=estimator, rtol=0, atol=1e-9)
        expected = 1.0 if advantages_N.any() else 0.0
        close(advantages_N.var().item(), expected, of=estimator, rtol=1e-4, atol=0)


@few
@given(batch=batches())
def test_all_sampled_tokens_of_a_trajectory_share_one_advantage_and_that_of_a_lone_one_is_zero(batch):
    alone = joined(batch, batch_of(Row(group=0, tokens=[11, 12], mask=[1, 1], rewards=[0.5, 1]), dtype=torch.float64))
    for estimator in COMPARING:
        advantages_BR = estimator(alone).advantages_BR
        for advantages_R, mask_R in zip(advantages_BR, alone.mask_BR, strict=True):
            assert len(advantages_R[mask_R].unique()) == 1, estimator
        assert not advantages_BR[-1].any(), estimator


@every(ALL)
def test_one_trajectory_of_one_token_has_advantage_zero(estimator):
    assert not estimator(batch_of(Row(group=0, tokens=[11], mask=[1], rewards=[3]))).advantages_BR.any()


# 0.1 is no binary number: ten of them are 1.0000001 or 1 in single precision, depending on the columns they stand in.
SAME_RETURN = batch_of(
    Row(group=0, tokens=[11] * 10, mask=[1] * 10, rewards=[0.1] * 10),
    Row(group=0, tokens=[11] * 40, mask=[1] * 40, rewards=[0.1, 0, 0, 0] * 10),
    Row(group=0, tokens=[11, 31] * 10, mask=[1, 0] * 10, rewards=[0.1, 0] * 10),
)


@every(COMPARING)
def test_a_group_that_earned_the_same_on_other_tokens_has_advantage_exactly_zero(estimator):
    assert SAME_RETURN.rewards_BR.dtype == torch.float32
    assert not estimator(SAME_RETURN).advantages_BR.any()


def test_returns_that_are_all_equal_whiten_to_exactly_zero():
    rows = [Row(group=0, tokens=[11] * n, mask=[1] * n, rewards=[0.0] * (n - 1) + [0.3]) for n in (1, 5, 7)]
    assert not TrajectoryReinforcePlusPlus()(batch_of(*rows)).advantages_BR.any()


@every(ALL)
@pytest.mark.parametrize("batch", [DRAWN, in_order(DRAWN, [0])], ids=["six trajectories", "one trajectory"])
def test_an_estimator_leaves_the_batch_as_it_is(estimator, batch):
    before = batch.rewards_BR.clone(), batch.turn_BR.clone(), batch.group_B.clone()
    estimator(batch)
    for kept, now in zip(before, (batch.rewards_BR, batch.turn_BR, batch.group_B), strict=True):
        assert torch.equal(kept, now)


@every(ALL)
def test_an_estimator_needs_neither_states_nor_values(estimator):
    assert (estimator.needs_states, estimator.needs_values) == (False, False)


def test_maxrl_gives_a_group_without_success_no_advantage():
    rows = [Row(group=0, tokens=[11, 12], mask=[1, 1], rewards=[0, 0])] * 3
    assert torch.equal(MaxRl()(batch_of(*rows)).advantages_BR, torch.zeros(3, 2))


def test_maxrl_counts_a_rare_success_more():
    # One success in four: (1 - 1/4) / (1/4) = 3; three in four: (1 - 3/4) / (3/4) = 1/3.
    def success(group, solved):
        return Row(group, tokens=[11], mask=[1], rewards=[float(solved)])

    batch = batch_of(*(success(0, i < 1) for i in range(4)), *(success(1, i < 3) for i in range(4)))
    close(MaxRl()(batch).advantages_BR[[0, 4], 0], torch.tensor([3, 1 / 3]))


def test_maxrl_refuses_a_negative_return_and_says_where():
    rows = [Row(group=0, tokens=[11, 12], mask=[1, 1], rewards=[0, earned]) for earned in (1.0, 0.0, -0.5)]
    with pytest.raises(DataError, match=r"no return may be negative; given: -0.5 for trajectory 2\. Use rewards"):
        MaxRl()(batch_of(*rows))


@pytest.mark.parametrize("k", [0, -3])
def test_pass_at_k_of_less_than_one_is_refused(k):
    with pytest.raises(ConfigurationError, match=f"pass_at_k needs k >= 1; given: {k}"):
        PassAtK(k=k)


@pytest.mark.parametrize("gamma", [-0.1, 1.5, float("nan")])
def test_a_discount_outside_zero_to_one_is_refused(gamma):
    with pytest.raises(ConfigurationError, match=f"gamma must .*given: {gamma}"):
        TrajectoryReinforcePlusPlus(gamma=gamma)


@few
@given(batch=batches(), k=st.integers(2, 5))
def test_pass_at_k_is_the_mean_over_all_sets_of_others(batch, k):
    advantages_B = PassAtK(k=k)(batch).advantages_BR[:, 0]
    for i, group in enumerate(batch.group_B.tolist()):
        others = [batch.return_B[j].item() for j, of in enumerate(batch.group_B.tolist()) if of == group and j != i]
        tries = min(k, len(others) + 1)
        sets = [chosen for chosen in product(range(len(others)), repeat=tries - 1) if len(set(chosen)) == tries - 1]
        above = [max(batch.return_B[i].item() - max(others[j] for j in chosen), 0) for chosen in sets if chosen]
        close(advantages_B[i].item(), tries * sum(above) / len(sets))


# Reductions: the numbers that verl computes for the same rows, where every session is one row.


@pytest.fixture(scope="module")
def verls():
    """verl's own functions, called with our batch."""
    from verl.trainer.config import AlgoConfig
    from verl.trainer.ppo import core_algos

    def call(name, batch, gamma=1.0, **settings):
        return getattr(core_algos, f"compute_{name}_outcome_advantage")(
            token_level_rewards=batch.rewards_BR.clone(),
            response_mask=batch.mask_BR.to(batch.rewards_BR.dtype),
            index=batch.group_B.numpy(),
            config=AlgoConfig(gamma=gamma),
            **settings,
        )

    return call


REDUCTIONS = [
    (TrajectoryGrpo(), "grpo", {"norm_adv_by_std_in_grpo": True}),
    (TrajectoryGrpo(normalise=False), "grpo", {"norm_adv_by_std_in_grpo": False}),
    (DrGrpo(), "grpo", {"norm_adv_by_std_in_grpo": False}),
    (TrajectoryRloo(), "rloo", {}),
    (TrajectoryReinforcePlusPlus(), "reinforce_plus_plus", {}),
    (TrajectoryReinforcePlusPlus(gamma=0.5), "reinforce_plus_plus", {"gamma": 0.5}),
    (TrajectoryReinforcePlusPlusBaseline(), "reinforce_plus_plus_baseline", {}),
]


@pytest.mark.parametrize("max_turns", [1, 3], ids=["one turn", "several turns"])
@few
@given(data=st.data())
def test_an_unsplit_session_gets_the_advantage_of_verls_own_function(max_turns, verls, data):
    batch = data.draw(batches(min_group=2, max_turns=max_turns))
    for estimator, name, given_settings in REDUCTIONS:
        ours = estimator(batch)
        # Where nothing differs, verl's whitening divides what its 1e-8 in the mean leaves over by a deviation of 0.
        if estimator in WHITENED and not ours.advantages_BR.any():
            continue
        for ours_BR, verls_BR in zip(ours, verls(name, batch, **given_settings), strict=True):
            close(ours_BR, verls_BR, of=estimator, rtol=1e-6, atol=1e-6)


# Exact gradients: a task of one or two turns whose policy decides when to stop. First "stop" or "go on"; whoever goes
# on sees something and says "left" or "right". So there are three trajectories, and all groups can be enumerated.
LOGITS = torch.tensor([[0.3, -0.2], [-0.4, 0.5]], dtype=torch.float64, requires_grad=True)
TURNS = torch.tensor([[0, -1, -1], [0, -1, 1], [0, -1, 1]])
LAST = torch.tensor([0, 2, 2])


def log_probs() -> torch.Tensor:
    """[3, R] of each sampled token of the three trajectories stop; go on, left; go on, right."""
    first, second = LOGITS.log_softmax(dim=1)
    none = torch.zeros((), dtype=torch.float64)
    stop, left, right = [first[0], none, none], [first[1], none, second[0]], [first[1], none, second[1]]
    return torch.stack([torch.stack(row) for row in (stop, left, right)])


def chance_of_each_choice(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All 3^size choices of `size` trajectories, and how likely each is."""
    choices_NG = torch.tensor(list(product(range(3), repeat=size)))
    return choices_NG, log_probs().sum(dim=1)[choices_NG].sum(dim=1).exp()


def expected_estimate(estimator: Estimator, earned: torch.Tensor, size: int) -> torch.Tensor:
    """Mean, over all groups that can be sampled, of the gradient of mean over trajectories of Σ_t A_t log π_t."""
    choices_NG, chance_N = chance_of_each_choice(size)
    chosen_B = choices_NG.flatten()
    batch = TrajectoryBatch(
        group_B=torch.arange(len(choices_NG)).repeat_interleave(size),
        turn_BR=TURNS[chosen_B],
        rewards_BR=torch.zeros(3, 3, dtype=torch.float64).scatter(1, LAST[:, None], earned[:, None])[chosen_B],
        terminated_B=torch.ones(len(chosen_B), dtype=torch.bool),
    )
    weighted_B = (chance_N.detach() / size).repeat_interleave(size)
    surrogate = (weighted_B[:, None] * estimator(batch).advantages_BR * log_probs()[chosen_B]).sum()
    return torch.autograd.grad(surrogate, LOGITS)[0]


def gradient_of_expected_return(earned: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad((log_probs().sum(dim=1).exp() * earned).sum(), LOGITS)[0]


def gradient_of_best_of(k: int, earned: torch.Tensor) -> torch.Tensor:
    choices_NK, chance_N = chance_of_each_choice(k)
    return torch.autograd.grad((chance_N * earned[choices_NK].amax(dim=1)).sum(), LOGITS)[0]


REAL = torch.tensor([0.3, 1.0, -0.5], dtype=torch.float64)
SUCCESS = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_rloo_estimates_the_gradient_of_the_expected_return(size):
    close(expected_estimate(TrajectoryRloo(), REAL, size), gradient_of_expected_return(REAL))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_dr_grpo_estimates_it_times_g_minus_one_over_g(size):
    close(expected_estimate(DrGrpo(), REAL, size), (size - 1) / size * gradient_of_expected_return(REAL))


def test_grpo_counts_a_group_by_one_over_its_standard_deviation():
    # Of two returns, one of them a success, the deviation is 1/√2: √2 times Dr. GRPO's half of the gradient.
    expected = 2**0.5 / 2 * gradient_of_expected_return(SUCCESS)
    close(expected_estimate(TrajectoryGrpo(), SUCCESS, 2), expected, rtol=1e-5, atol=0)


def test_grpo_points_elsewhere_than_the_expected_return_where_returns_have_more_than_two_values():
    ratio = expected_estimate(TrajectoryGrpo(), REAL, 4) / gradient_of_expected_return(REAL)
    assert ratio.max() / ratio.min() > 1.1


@pytest.mark.parametrize("size", [3, 4, 5])
@pytest.mark.parametrize("earned", [REAL, SUCCESS], ids=["real", "success"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_pass_at_k_estimates_the_gradient_of_the_best_of_k(k, earned, size):
    close(expected_estimate(PassAtK(k=k), earned, size), gradient_of_best_of(k, earned))


def test_pass_at_k_estimates_the_best_of_as_many_as_a_smaller_group_has():
    close(expected_estimate(PassAtK(k=4), REAL, 3), gradient_of_best_of(3, REAL))


@pytest.mark.parametrize("size", [2, 3, 5])
def test_maxrl_estimates_the_gradient_of_the_likelihood_cut_off_behind_g_minus_one_terms(size):
    solved = log_probs().sum(dim=1).exp()[1]
    likelihood = sum((1 - (1 - solved) ** k) / k for k in range(1, size))
    close(expected_estimate(MaxRl(), SUCCESS, size), torch.autograd.grad(likelihood, LOGITS)[0])
