"""The turn-level estimators and GAE: cases worked by hand, what holds for any batch, and what they reduce to."""

from dataclasses import replace

import pytest
import torch
from doubles_advantages import Row, batch_of
from doubles_turns import batches, in_order, joined, with_gap
from hypothesis import given
from hypothesis import strategies as st
from verl.trainer.ppo.core_algos import compute_gae_advantage_return

from agentgym_rl.errors import ConfigurationError, DataError
from verl_ext.advantages.batch import TrajectoryBatch
from verl_ext.advantages.gae import TrajectoryGae
from verl_ext.advantages.gigpo import GiGpo
from verl_ext.advantages.grpo import TrajectoryGrpo
from verl_ext.advantages.rloo import TrajectoryRloo
from verl_ext.advantages.turn_gae import TurnGae
from verl_ext.advantages.turn_grpo import TurnGrpo
from verl_ext.advantages.turn_returns import TurnReturns

GROUPED = [GiGpo(), GiGpo(0.5, 2.0, normalise=False), TurnGrpo(), TurnGrpo(0.5, divide_by_std=True)]
CRITICS = [TrajectoryGae(), TrajectoryGae(0.5, 0.5), TurnGae(), TurnGae(0.5, 0.5, 0.5)]
ALL = [*GROUPED, TurnReturns(), TurnReturns(0.5), *CRITICS]
fractions = st.sampled_from([0.0, 0.5, 0.9, 1.0])


def close(found, expected, atol=1e-6):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype), rtol=0, atol=atol)


def turns(group, *rewards):
    """A trajectory of one token a turn, with an observation of one token between two."""
    row = [x for reward in rewards for x in (reward, 0.0)][:-1]
    mask = ([1, 0] * len(rewards))[:-1]
    return Row(group, tokens=[10] * len(row), mask=mask, rewards=row)


def per_turn(x_BR):
    return x_BR[:, ::2]


# GiGPO by hand


def two_episodes():
    #             a: state s    x      b: state s    s
    batch = batch_of(turns(0, 0.0, 1.0), turns(0, 0.0, 0.0))
    return replace(batch, state_keys=[["s", "x"], ["s", "s"]])


def test_gigpo_adds_the_episodes_advantage_and_that_of_turns_from_the_same_state():
    # episodes: returns 1, 0, mean 1/2: A^E = 1/2, -1/2
    # γ = 1/2, returns-to-go: a 1/2, 1; b 0, 0. State s: 1/2, 0, 0, mean 1/6: A^S = 1/3, -1/6, -1/6; x, met once: 0
    # ω = 2: a 1/2 + 2/3 and 1/2; b -1/2 - 1/3 twice
    advantages_BR, returns_BR = GiGpo(gamma=0.5, step_weight=2.0, normalise=False)(two_episodes())
    close(per_turn(advantages_BR), [[7 / 6, 1 / 2], [-5 / 6, -5 / 6]])
    close(returns_BR, advantages_BR)


def test_gigpo_divides_each_by_its_own_groups_deviation():
    # episodes: ±1/2 by √(1/2): ±0.7071. State s: deviations 1/3, -1/6, -1/6, std √(1/12): 1.1547, -0.5774
    advantages_BR = GiGpo(gamma=0.5)(two_episodes()).advantages_BR
    close(per_turn(advantages_BR), [[1.8618, 0.7071], [-1.2844, -1.2844]], atol=1e-4)


def test_gigpo_counts_an_episode_once_however_many_turns_it_has():
    # mean of the episodes' returns 1, 0: 1/2; over steps it would be 1/4
    batch = replace(batch_of(turns(0, 1.0), turns(0, 0.0, 0.0, 0.0)), state_keys=[["a"], ["b", "c", "d"]])
    close(per_turn(GiGpo(normalise=False)(batch).advantages_BR), [[0.5, 0, 0], [-0.5, -0.5, -0.5]])


def test_gigpo_compares_no_states_of_two_groups():
    # state s in three groups, one of them with one trajectory: nothing to compare in any
    batch = batch_of(turns(0, 1.0), turns(1, 0.5), turns(2, 0.0))
    advantages_BR = GiGpo()(replace(batch, state_keys=[["s"], ["s"], ["s"]])).advantages_BR
    assert advantages_BR.tolist() == [[0.0], [0.0], [0.0]]


def test_gigpo_without_states_says_what_it_needs():
    with pytest.raises(DataError) as caught:
        GiGpo()(batch_of(turns(0, 1.0, 0.0), turns(0, 0.0)))
    assert str(caught.value) == "gigpo compares turns by their state and needs one key a turn: [2, 1]; given: none"


def test_gigpo_with_a_key_too_few_says_whose():
    batch = replace(batch_of(turns(0, 1.0, 0.0), turns(0, 0.0)), state_keys=[["s"], ["s"]])
    with pytest.raises(DataError) as caught:
        GiGpo()(batch)
    assert str(caught.value) == "gigpo compares turns by their state and needs one key a turn: [2, 1]; given: [1, 1]"


# Turn-level GRPO by hand

SIBLINGS = [(1.0, 0.0, 2.0), (0.0, 1.0), (3.0,)]


def test_turn_grpo_compares_with_what_siblings_earned_from_that_turn_on():
    # returns-to-go a 3 2 2, b 1 1, c 3. Means of the siblings: a (1+3)/2, (1+0)/2, 0; b (3+3)/2, (2+0)/2; c (3+1)/2
    batch = batch_of(*(turns(0, *rewards) for rewards in SIBLINGS))
    close(per_turn(TurnGrpo()(batch).advantages_BR), [[1, 1.5, 2], [-2, 0, 0], [1, 0, 0]])


def test_turn_grpo_discounts_by_turns():
    # γ = 1/2: a 1.5 1 2, b 0.5 1, c 3. Means: a 1.75, 0.5, 0; b 2.25, 0.5; c 1
    batch = batch_of(*(turns(0, *rewards) for rewards in SIBLINGS))
    close(per_turn(TurnGrpo(gamma=0.5)(batch).advantages_BR), [[-0.25, 0.5, 2], [-1.75, 0.5, 0], [2, 0, 0]])


def test_turn_grpo_divides_by_one_deviation_of_the_groups_returns_to_go():
    # 3 2 2 1 1 3: mean 2, squares 1 0 0 1 1 1, std √(4/5)
    batch = batch_of(*(turns(0, *rewards) for rewards in SIBLINGS))
    expected = torch.tensor([[1, 1.5, 2], [-2, 0, 0], [1, 0, 0]]) / 0.8**0.5
    close(per_turn(TurnGrpo(divide_by_std=True)(batch).advantages_BR), expected, atol=1e-5)


def test_turn_grpo_gives_every_token_of_a_turn_the_same_and_observations_nothing():
    # a: two tokens, an observation of one, one token; the reward on a first token counts for its whole turn
    a = Row(0, tokens=[10, 11, 30, 10], mask=[1, 1, 0, 1], rewards=[0.25, 0.75, 0.0, 2.0])
    b = Row(0, tokens=[10], mask=[1], rewards=[1.0])
    close(TurnGrpo()(batch_of(a, b)).advantages_BR, [[2, 2, 0, 2], [-2, 0, 0, 0]])


def test_turn_grpo_leaves_out_who_has_no_siblings():
    assert TurnGrpo()(batch_of(turns(0, 1.0, 2.0), turns(1, 3.0))).advantages_BR.tolist() == [[0, 0, 0], [0, 0, 0]]


# Turn-level returns by hand


def test_turn_returns_take_the_whole_batch_for_siblings():
    batch = batch_of(*(turns(group, *rewards) for group, rewards in enumerate(SIBLINGS)))
    close(per_turn(TurnReturns()(batch).advantages_BR), [[1, 1.5, 2], [-2, 0, 0], [1, 0, 0]])


# GAE by hand: two turns; what the critic says of the observation (99) counts nowhere


def with_critic(terminated, bootstrap):
    row = Row(0, tokens=[10, 11, 30, 12], mask=[1, 1, 0, 1], rewards=[0.0, 1.0, 0.0, 2.0], terminated=terminated)
    return replace(
        batch_of(row, dtype=torch.float64),
        values_BR=torch.tensor([[1.0, 2.0, 99.0, 4.0]], dtype=torch.float64),
        bootstrap_B=torch.tensor([bootstrap], dtype=torch.float64),
    )


def test_gae_passes_over_observations_and_nothing_follows_a_terminated_trajectory():
    # γ = λ = 1/2. δ: 2 - 4 = -2; 1 + 4/2 - 2 = 1; 0 + 2/2 - 1 = 0. A: -2; 1 - 2/4; 0 + 0.5/4. Returns A + V
    # whitened: mean -0.458333, variance (0.583333² + 0.958333² + 1.541667²) / 2 = 1.817708
    advantages_BR, returns_BR = TrajectoryGae(0.5, 0.5)(with_critic(terminated=True, bootstrap=0.0))
    close(returns_BR, [[1.125, 2.5, 0, 2]])
    close(advantages_BR, [[0.432668, 0.710811, 0, -1.143479]])


def test_gae_puts_the_critics_value_behind_a_trajectory_that_was_cut_off():
    # δ of the last: 2 + 8/2 - 4 = 2. A: 2; 1 + 2/4; 0 + 1.5/4
    close(TrajectoryGae(0.5, 0.5)(with_critic(terminated=False, bootstrap=8.0)).returns_BR, [[1.375, 3.5, 0, 6]])


@pytest.mark.parametrize("estimator", CRITICS)
def test_nothing_is_put_behind_a_terminated_trajectory_whatever_the_batch_says(estimator):
    found, expected = (estimator(with_critic(terminated=True, bootstrap=value)) for value in (8.0, 0.0))
    close(found.returns_BR, expected.returns_BR)


def test_turn_gae_goes_over_turns_first_and_then_inside_each():
    # γ = λ = token λ = 1/2; V of the turns 1, 4; r of the turns 1, 2
    # turns: δ_1 = 2 - 4 = -2 = A_1. Behind turn 0: (4 - 2/2) / 2 = 1.5; behind turn 1: 0
    # tokens: turn 1: 2 + 0 - 4 = -2; turn 0, last 1 + 1.5 - 2 = 0.5, first 0 + 2 - 1 + 0.5/2 = 1.25. Returns a + V
    returns_BR = TurnGae(0.5, 0.5, 0.5)(with_critic(terminated=True, bootstrap=0.0)).returns_BR
    close(returns_BR, [[2.25, 2.5, 0, 2]])


def test_turn_gae_discounts_what_was_cut_off_by_one_turn():
    # turns: δ_1 = 2 + 8/2 - 4 = 2 = A_1. Behind turn 1: 4; behind turn 0: (4 + 2/2) / 2 = 2.5
    # tokens: 2 + 4 - 4 = 2; last 1 + 2.5 - 2 = 1.5, first 1 + 1.5/2 = 1.75
    returns_BR = TurnGae(0.5, 0.5, 0.5)(with_critic(terminated=False, bootstrap=8.0)).returns_BR
    close(returns_BR, [[2.75, 3.5, 0, 6]])


@pytest.mark.parametrize("estimator", CRITICS)
def test_gae_of_a_single_token_is_zero_and_no_division_by_zero(estimator):
    batch = replace(batch_of(turns(0, 1.0)), values_BR=torch.tensor([[0.5]]), bootstrap_B=torch.zeros(1))
    assert estimator(batch).advantages_BR.tolist() == [[0.0]]


@pytest.mark.parametrize("estimator", CRITICS)
def test_gae_without_a_critic_says_so(estimator):
    with pytest.raises(DataError, match="GAE needs a critic's values and bootstraps; the batch has none"):
        estimator(batch_of(turns(0, 1.0)))


# Settings


@pytest.mark.parametrize("kind", [GiGpo, TurnGrpo, TurnReturns, TrajectoryGae, TurnGae])
@pytest.mark.parametrize("gamma", [-0.1, 1.5, float("nan")])
def test_a_discount_outside_0_and_1_is_refused(kind, gamma):
    with pytest.raises(ConfigurationError) as caught:
        kind(gamma=gamma)
    assert str(caught.value) == f"gamma must lie in [0, 1]; given: {gamma}"


@pytest.mark.parametrize(("kind", "name"), [(TrajectoryGae, "lam"), (TurnGae, "lam"), (TurnGae, "token_lam")])
def test_a_lambda_outside_0_and_1_is_refused(kind, name):
    with pytest.raises(ConfigurationError, match=rf"^{name} must lie in \[0, 1\]; given: 2$"):
        kind(**{name: 2})


def test_each_says_what_it_reads():
    assert [kind.needs_states for kind in (GiGpo, TurnGrpo, TurnReturns, TrajectoryGae, TurnGae)] == [True] + [
        False
    ] * 4
    assert [kind.needs_values for kind in (GiGpo, TurnGrpo, TurnReturns, TrajectoryGae, TurnGae)] == [False] * 3 + [
        True
    ] * 2


# What holds for any batch


@given(batch=batches())
def test_tokens_that_were_not_sampled_get_nothing(batch):
    for estimator in ALL:
        for x_BR in estimator(batch):
            assert x_BR.dtype == torch.float64
            assert x_BR.isfinite().all()
            assert x_BR[~batch.mask_BR].count_nonzero() == 0


@given(batch=batches(), data=st.data())
def test_the_order_of_the_trajectories_changes_nothing(batch, data):
    order = data.draw(st.permutations(range(len(batch.group_B))))
    for estimator in ALL:
        for found_BR, expected_BR in zip(estimator(in_order(batch, order)), estimator(batch), strict=True):
            close(found_BR, expected_BR[order], atol=1e-9)


@given(batch=batches(), data=st.data())
def test_columns_that_nobody_sampled_change_nothing(batch, data):
    columns = batch.turn_BR.shape[1]
    at, width = data.draw(st.integers(0, columns)), data.draw(st.integers(1, 3))
    kept = [*range(at), *range(at + width, columns + width)]
    for estimator in ALL:
        for found_BR, expected_BR in zip(estimator(with_gap(batch, at, width)), estimator(batch), strict=True):
            close(found_BR[:, kept], expected_BR, atol=1e-9)


@given(first=batches(), second=batches())
def test_other_groups_change_nothing(first, second):
    rows, columns = first.turn_BR.shape
    for estimator in GROUPED:
        found_BR = estimator(joined(first, second)).advantages_BR[:rows, :columns]
        close(found_BR, estimator(first).advantages_BR, atol=1e-9)


@given(first=batches(), second=batches())
def test_what_the_critic_learns_is_each_trajectorys_own(first, second):
    rows, columns = first.turn_BR.shape
    for estimator in CRITICS:
        close(estimator(joined(first, second)).returns_BR[:rows, :columns], estimator(first).returns_BR, atol=1e-9)


@given(batch=batches())
def test_with_a_critic_advantages_have_mean_0_and_variance_1_over_sampled_tokens(batch):
    for estimator in CRITICS:
        advantages_BR, returns_BR = estimator(batch)
        advantage_N, plain_N = advantages_BR[batch.mask_BR], (returns_BR - batch.values_BR)[batch.mask_BR]
        assert float(advantage_N.mean()) == pytest.approx(0.0, abs=1e-9)
        if len(plain_N) > 1 and plain_N.var() > 1e-2:
            assert float(advantage_N.var()) == pytest.approx(1.0, abs=1e-5)  # 1e-8 is added to the variance


@given(batch=batches(), copies=st.integers(2, 4))
def test_trajectories_that_are_all_equal_teach_nothing(batch, copies):
    batch = in_order(batch, [0] * copies)
    keys = [[str(turn) for turn in range(len(keys))] for keys in batch.state_keys]  # each state met once an episode
    for estimator in [*GROUPED, TurnReturns(), TurnReturns(0.5)]:
        assert estimator(replace(batch, state_keys=keys)).advantages_BR.count_nonzero() == 0


@given(batch=batches(), factor=st.sampled_from([0.5, 3.0, -2.0]), gamma=fractions)
def test_rewards_times_a_factor_are_advantages_times_that_factor_where_nothing_is_normalised(batch, factor, gamma):
    scaled = replace(batch, rewards_BR=batch.rewards_BR * factor)
    for estimator in (GiGpo(gamma, normalise=False), TurnGrpo(gamma), TurnReturns(gamma)):
        close(estimator(scaled).advantages_BR, estimator(batch).advantages_BR * factor, atol=1e-9)


# What they reduce to


@given(batch=batches(max_turns=1), gamma=fractions)
def test_with_one_turn_turn_grpo_is_rloo(batch, gamma):
    close(TurnGrpo(gamma)(batch).advantages_BR, TrajectoryRloo()(batch).advantages_BR)


@given(batch=batches(min_group=2, max_turns=1))
def test_with_one_turn_turn_grpo_by_its_deviation_is_grpo_by_one_less_than_the_group(batch):
    size_B = torch.bincount(batch.group_B)[batch.group_B]
    expected_BR = TrajectoryGrpo()(batch).advantages_BR * (size_B / (size_B - 1))[:, None]
    close(TurnGrpo(divide_by_std=True)(batch).advantages_BR, expected_BR)


@given(batch=batches(), gamma=fractions)
def test_turn_returns_are_turn_grpo_of_one_group(batch, gamma):
    one_group = replace(batch, group_B=torch.zeros_like(batch.group_B))
    close(TurnReturns(gamma)(batch).advantages_BR, TurnGrpo(gamma)(one_group).advantages_BR)


@given(batch=batches(), gamma=fractions, normalise=st.booleans())
def test_without_weight_on_steps_gigpo_is_grpo(batch, gamma, normalise):
    found = GiGpo(gamma, step_weight=0.0, normalise=normalise)(batch)
    close(found.advantages_BR, TrajectoryGrpo(normalise)(batch).advantages_BR)


@given(batch=batches(max_turns=1), normalise=st.booleans())
def test_with_one_turn_from_the_same_state_gigpo_is_grpo_twice(batch, normalise):
    batch = replace(batch, state_keys=[["start"]] * len(batch.group_B))
    close(GiGpo(normalise=normalise)(batch).advantages_BR, 2 * TrajectoryGrpo(normalise)(batch).advantages_BR)


@given(batch=batches().filter(lambda batch: batch.mask_BR.sum() > 1), gamma=fractions, lam=fractions)
def test_of_terminated_trajectories_gae_is_verls_on_sampled_tokens(batch, gamma, lam):
    batch = replace(batch, terminated_B=torch.ones_like(batch.terminated_B))
    mask_BR = batch.mask_BR.to(torch.float64)
    expected = compute_gae_advantage_return(batch.rewards_BR, batch.values_BR, mask_BR, gamma, lam)
    for found_BR, expected_BR in zip(TrajectoryGae(gamma, lam)(batch), expected, strict=True):
        close(found_BR, expected_BR * mask_BR)


@given(batch=batches())
def test_without_discount_and_with_lambda_1_both_gaes_return_what_was_earned(batch):
    follows_B = batch.bootstrap_B
    earned_BR = (batch.rewards_BR.flip(1).cumsum(1).flip(1) + follows_B[:, None]) * batch.mask_BR
    for estimator in (TrajectoryGae(1.0, 1.0), TurnGae(1.0, 1.0, 1.0)):
        close(estimator(batch).returns_BR, earned_BR)


@given(batch=batches(max_turns=1), lam=fractions, token_lam=fractions)
def test_with_one_turn_turn_gae_is_gae_inside_the_turn(batch, lam, token_lam):
    for found_BR, expected_BR in zip(
        TurnGae(1.0, lam, token_lam)(batch), TrajectoryGae(1.0, token_lam)(batch), strict=True
    ):
        close(found_BR, expected_BR)


@given(batch=batches(), gamma=fractions, lam=fractions, token_lam=fractions)
def test_with_one_token_a_turn_turn_gae_is_gae(batch, gamma, lam, token_lam):
    batch = of_first_tokens(batch)
    for found_BR, expected_BR in zip(
        TurnGae(gamma, lam, token_lam)(batch), TrajectoryGae(gamma, lam)(batch), strict=True
    ):
        close(found_BR, expected_BR)


@given(batch=batches(), gamma=fractions, lam=fractions)
def test_with_token_lambda_1_a_turns_first_token_gets_the_turns_advantage(batch, gamma, lam):
    first = of_first_tokens(batch)
    found_BR = TurnGae(gamma, lam, token_lam=1.0)(batch).returns_BR
    expected_BR = TrajectoryGae(gamma, lam)(first).returns_BR
    close(found_BR[first.mask_BR], expected_BR[first.mask_BR])


def of_first_tokens(batch: TrajectoryBatch) -> TrajectoryBatch:
    """Each turn played in one token, its first, which earns what the turn earned."""
    turn_BR, rewards_BR = torch.full_like(batch.turn_BR, -1), torch.zeros_like(batch.rewards_BR)
    for b, turns_b in enumerate(batch.turns_B.tolist()):
        for turn in range(turns_b):
            of_turn = batch.turn_BR[b] == turn
            first = int(of_turn.nonzero()[0])
            turn_BR[b, first], rewards_BR[b, first] = turn, batch.rewards_BR[b, of_turn].sum()
    return replace(batch, turn_BR=turn_BR, rewards_BR=rewards_BR)


# More rows than are worked on at a time


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 130])
def test_turns_and_tokens_of_many_trajectories_are_each_ones_own(rows):
    batch = batch_of(*(turns(0, float(row), 2.0 * row) for row in range(rows)), dtype=torch.float64)
    assert batch.rewards_BT.tolist() == [[row, 2 * row] for row in range(rows)]
    assert batch.to_tokens(batch.rewards_BT + 1).tolist() == [[row + 1, 0, 2 * row + 1] for row in range(rows)]
