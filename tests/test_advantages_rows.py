"""verl's rows as trajectories and back: order, padding, segments, rejected sessions, and what a loss makes of them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Qwen2Config, Qwen2ForCausalLM
from verl.trainer.ppo.core_algos import agg_loss, get_adv_estimator_fn

from agentgym_rl.errors import ConfigurationError
from verl_ext.advantages import registry
from verl_ext.advantages.registry import ESTIMATORS
from verl_ext.advantages.rows import KnownRows, joined, known

ALGORITHM = {"gamma": 0.9, "lam": 0.8, "advantage": {"loss_weight": "token"}}


@pytest.fixture(scope="module", autouse=True)
def _registered():
    import verl_ext.plugin  # noqa: F401


@dataclass(frozen=True)
class Row:
    """One training row: `mask` and `rewards` are aligned."""

    key: str
    group: str
    mask: tuple[int, ...]
    rewards: tuple[float, ...]
    values: tuple[float, ...] = ()
    facts: Any = None


def facts(turns: int, stop: str = "terminated") -> dict[str, Any]:
    return {"stop": stop, "state_keys": [f"state {turn % 2}" for turn in range(turns)]}


def tensors(rows: list[Row]) -> tuple[torch.Tensor, torch.Tensor, KnownRows]:
    """Padded rewards and mask, and what our trainer knows."""
    width = max(len(row.mask) for row in rows)

    def padded(values: Any) -> torch.Tensor:
        return torch.tensor([[*value, *[0] * (width - len(value))] for value in values])

    mask = padded([row.mask for row in rows])
    values = padded([row.values or [0.0] * len(row.mask) for row in rows])
    knows = KnownRows(
        keys=[row.key for row in rows],
        mask_NR=mask.bool(),
        lengths_N=[len(row.mask) for row in rows],
        facts_N=[row.facts for row in rows],
        bootstrapped=frozenset({"max_turns"}),
        values_NR=values.double(),
    )
    return padded([row.rewards for row in rows]).double(), mask, knows


def estimate(name: str, rows: list[Row], algorithm: Any = ALGORITHM, mask: Any = None) -> dict[str, list[float]]:
    """Advantages by row key, cut to the row's length."""
    rewards, own_mask, knows = tensors(rows)
    with known(knows):
        advantages, _ = get_adv_estimator_fn(name)(
            token_level_rewards=rewards,
            response_mask=own_mask if mask is None else mask,
            config=algorithm,
            index=[row.group for row in rows],
        )
    return {row.key: advantages[n, : len(row.mask)].tolist() for n, row in enumerate(rows)}


# Two sessions of group a, the first in two segments, one of group b, and padding; in any order.
#   a_0_0  mask 1 1 0 1    turns 0 0 . 1   rewards 0 1 0 2
#   a_0_1  mask 1 0 1      turns 2 . 3     rewards 3 0 4
#   a_1_0  mask 1          turn  0         reward  5
#   b_0_0  mask 1 1        turn  0 0       rewards 0 6, cut off
HAND = [
    Row("a_0_1", "a", (1, 0, 1), (3, 0, 4), (7.0, 8.0, 9.0), facts(4)),
    Row("pad1_0_0", "pad1", (0,), (0,)),
    Row("b_0_0", "b", (1, 1), (0, 6), (0.5, 0.25), facts(1, "max_turns")),
    Row("a_0_0", "a", (1, 1, 0, 1), (0, 1, 0, 2), (1.0, 2.0, 3.0, 4.0)),
    Row("a_1_0", "a", (1,), (5,), (6.0,), facts(1)),
]


def test_rows_become_trajectories_by_hand():
    rewards, mask, knows = tensors(HAND)
    with known(knows):
        made = joined(rewards, mask, [row.group for row in HAND])
    assert [list(rows) for rows in made.rows] == [[3, 0], [2], [4]]
    batch = made.batch
    assert batch.group_B.tolist() == [0, 2, 0]
    assert batch.turn_BR.tolist() == [[0, 0, -1, 1, 2, -1, 3], [0, 0, *[-1] * 5], [0, *[-1] * 6]]
    assert batch.rewards_BR.tolist() == [[0, 1, 0, 2, 3, 0, 4], [0, 6, *[0] * 5], [5, *[0] * 6]]
    assert batch.rewards_BT.tolist() == [[1, 2, 3, 4], [6, 0, 0, 0], [5, 0, 0, 0]]
    assert batch.turns_B.tolist() == [4, 1, 1]
    assert batch.terminated_B.tolist() == [True, False, True]
    assert batch.values_BR[0].tolist() == [1, 2, 3, 4, 7, 8, 9]
    assert batch.bootstrap_B.tolist() == [0, 0.25, 0]
    assert [len(keys) for keys in batch.state_keys] == [4, 1, 1]
    back = made.split(torch.arange(21.0).reshape(3, 7))
    assert back.tolist() == [[4, 5, 6, 0], [0] * 4, [7, 8, 0, 0], [0, 1, 2, 3], [14, 0, 0, 0]]


def test_grpo_of_a_split_session_counts_it_once():
    # returns of group a: 10 and 5, mean 7.5, std 3.5355; b is alone
    algorithm = {**ALGORITHM, "norm_adv_by_std_in_grpo": False}
    given_ = estimate("trajectory_grpo", HAND, algorithm)
    assert given_["a_0_0"] == [2.5, 2.5, 0, 2.5]
    assert given_["a_0_1"] == [2.5, 0, 2.5]
    assert given_["a_1_0"] == [-2.5]
    assert given_["b_0_0"] == [0, 0]


# Any rows


@st.composite
def sessions(draw: st.DrawFn) -> list[list[list[tuple[int, float, float]]]]:
    """Sessions as turns of (mask, reward, value), each turn 1 to 3 sampled tokens and then 0 to 2 observed ones."""
    value = st.floats(-2, 2, allow_subnormal=False)
    made = []
    for _ in range(draw(st.integers(1, 6))):
        turns = []
        for _ in range(draw(st.integers(1, 4))):
            length = draw(st.integers(1, 3))
            sampled = [(1, 0.0, draw(value)) for _ in range(length - 1)] + [(1, draw(value), draw(value))]
            turns.append(sampled + [(0, 0.0, draw(value))] * draw(st.integers(1, 2)))
        made.append(turns)
    return made


def rows_of(drawn: Any, cuts: random.Random | None) -> list[Row]:
    """The sessions in groups of two; split at random turns where `cuts` is given."""
    rows = []
    for number, turns in enumerate(drawn):
        segments: list[list[Any]] = [[]]
        for turn in turns:
            if segments[-1] and cuts and cuts.random() < 0.5:
                segments.append([])
            segments[-1] += turn
        for index, tokens in enumerate(segments):
            mask, rewards, values = zip(*tokens, strict=True)
            last = facts(len(turns), "max_turns" if number % 3 else "terminated")
            key = f"g{number // 2}_{number % 2}_{index}"
            rows.append(
                Row(key, f"g{number // 2}", mask, rewards, values, last if index == len(segments) - 1 else None)
            )
    return rows


def by_session(given_: dict[str, list[float]]) -> dict[str, list[float]]:
    """The tokens of each session in the order of its segments."""
    whole: dict[str, list[float]] = {}
    for key in sorted(given_, key=lambda key: int(key.rsplit("_", 1)[1])):
        whole.setdefault(key.rsplit("_", 1)[0], []).extend(given_[key])
    return whole


def same(one: dict[str, list[float]], other: dict[str, list[float]]) -> None:
    assert one.keys() == other.keys()
    for key in one:
        assert one[key] == pytest.approx(other[key], abs=1e-8)


@pytest.mark.parametrize("weight", ["token", "trajectory", "turn"])
@pytest.mark.parametrize("name", ESTIMATORS)
@settings(deadline=None, max_examples=15)
@given(drawn=sessions(), seed=st.integers(0, 1000))
def test_neither_order_nor_padding_nor_segments_change_an_advantage(name, weight, drawn, seed):
    draw = random.Random(seed)
    algorithm = {**ALGORITHM, "advantage": {"loss_weight": weight}}
    if name == "maxrl":  # is for returns that are not negative
        drawn = [[[(bit, abs(reward), value) for bit, reward, value in turn] for turn in turns] for turns in drawn]
    whole = rows_of(drawn, None)
    disturbed = [*rows_of(drawn, draw), Row("pad_0_0", "pad", (0,), (0.0,)), Row("pad_1_0", "pad", (0,), (0.0,))]
    draw.shuffle(disturbed)
    given_ = estimate(name, disturbed, algorithm)
    assert given_.pop("pad_0_0") == given_.pop("pad_1_0") == [0]
    same(by_session(given_), by_session(estimate(name, whole, algorithm)))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_session_that_rollout_correction_rejected_moves_no_baseline(name):
    rejected = Row("a_2_0", "a", (1, 1), (0, 100), (1.0, 1.0), facts(1))
    mask = tensors([*HAND, rejected])[1]
    mask[-1] = 0
    given_ = estimate(name, [*HAND, rejected], mask=mask)
    assert given_.pop("a_2_0") == [0, 0]
    same(given_, estimate(name, HAND))


def test_nothing_trained_gives_nothing():
    assert estimate("trajectory_grpo", [HAND[1]]) == {"pad1_0_0": [0]}


# A stock trainer, and wrong settings


def test_with_a_stock_trainer_each_row_is_a_session():
    rewards, mask = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.tensor([[1, 1], [1, 0]])
    algorithm = {"norm_adv_by_std_in_grpo": False}
    advantages, _ = get_adv_estimator_fn("trajectory_grpo")(
        token_level_rewards=rewards, response_mask=mask, config=algorithm, index=["g", "g"]
    )
    assert advantages.tolist() == [[0.5, 0.5], [-0.5, 0]]


@pytest.mark.parametrize(
    ("name", "message"), [("gigpo", "compares states, which only our trainers know"), ("turn_gae", "needs a critic")]
)
def test_what_a_stock_trainer_does_not_know_is_said(name, message):
    ones = torch.ones(2, 2)
    with pytest.raises(ConfigurationError, match=message):
        get_adv_estimator_fn(name)(token_level_rewards=ones, response_mask=ones, config={}, index=["g", "g"])


def test_wrong_settings_are_named():
    with pytest.raises(ConfigurationError, match="step_wieght.*step_weight"):
        registry.estimator("gigpo", {"advantage": {"step_wieght": 1}})
    with pytest.raises(ConfigurationError, match=r"no algorithm\.advantage\.loss_weight 'turns'; did you mean 'turn'"):
        registry.loss_weight({"advantage": {"loss_weight": "turns"}})


def test_settings_of_verls_own_names_are_read_where_verl_has_them():
    made = registry.estimator("turn_gae", {"gamma": 0.5, "lam": 0.25})
    assert (made.gamma, made.lam) == (0.5, 0.25)
    assert registry.estimator("trajectory_grpo", {"norm_adv_by_std_in_grpo": False}).normalise is False


# The loss


# a_0: two turns of 3 and 1 tokens; a_1: one turn of 2 tokens. N = 6, B = 2, N / B = 3.
#   trajectory: 3/4 on each token of a_0, 3/2 on each of a_1
#   turn:       a_0 has two turns: 3 / (2 * 3) = 1/2 and 3 / (2 * 1) = 3/2; a_1: 3/2
@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ("token", [[1, 1, 1, 0, 1], [1, 1]]),
        ("trajectory", [[0.75, 0.75, 0.75, 0, 0.75], [1.5, 1.5]]),
        ("turn", [[0.5, 0.5, 0.5, 0, 1.5], [1.5, 1.5]]),
    ],
)
def test_loss_weights_by_hand(weight, expected):
    rows = [
        Row("a_0_0", "a", (1, 1, 1, 0, 1), (0, 0, 0, 0, 1.0), facts=facts(2)),
        Row("a_1_0", "a", (1, 1), (0, -1.0), facts=facts(1)),
    ]
    algorithm = {"norm_adv_by_std_in_grpo": False, "advantage": {"loss_weight": weight}}
    given_ = estimate("trajectory_grpo", rows, algorithm)
    assert given_["a_0_0"] == pytest.approx(expected[0])
    assert given_["a_1_0"] == pytest.approx([-x for x in expected[1]])


@pytest.mark.parametrize("weight", ["token", "trajectory", "turn"])
@pytest.mark.parametrize("name", ["trajectory_grpo", "turn_grpo", "trajectory_gae"])
def test_the_gradient_of_a_split_session_is_that_of_the_whole_one(name, weight):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=23,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    policy = Qwen2ForCausalLM(config).double()
    algorithm = {**ALGORITHM, "advantage": {"loss_weight": weight}}
    whole = [
        ([1, 2], Row("a_0_0", "a", (1, 1, 0, 1, 0, 1), (0, 1, 0, 0, 0, 2.0), facts=facts(3)), [3, 4, 5, 6, 7, 8]),
        ([1, 2], Row("a_1_0", "a", (1,), (0.5,), facts=facts(1)), [9]),
    ]
    split = [
        ([1, 2], Row("a_0_0", "a", (1, 1, 0, 1), (0, 1, 0, 0)), [3, 4, 5, 6]),
        whole[1],
        ([1, 2, 3, 4, 5, 6, 7], Row("a_0_1", "a", (1,), (2.0,), facts=facts(3)), [8]),
    ]
    assert gradient(policy, name, whole, algorithm).abs().max() > 1e-3
    assert torch.allclose(gradient(policy, name, whole, algorithm), gradient(policy, name, split, algorithm), atol=1e-9)


def gradient(policy: Any, name: str, rows: Any, algorithm: Any) -> torch.Tensor:
    """Of verl's token-mean loss at the sampling policy, flattened."""
    advantages = estimate(name, [row for _, row, _ in rows], algorithm)
    losses, masks = [], []
    for prompt, row, response in rows:
        logits = policy(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        logprobs = logits.log_softmax(-1).gather(1, torch.tensor(response)[:, None])[:, 0]
        losses.append(-torch.tensor(advantages[row.key]) * logprobs)
        masks.append(torch.tensor(row.mask))
    loss = agg_loss(torch.cat(losses)[None], torch.cat(masks)[None], "token-mean")
    policy.zero_grad()
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in policy.parameters() if parameter.grad is not None])


def test_a_step_has_as_many_updates_as_its_configuration_means():
    from omegaconf import OmegaConf

    from verl_ext.updates import fixed_updates, rows_multiple, updates_of_actor, updates_of_critic

    config = OmegaConf.create(
        {
            "data": {"train_batch_size": 8},
            "actor_rollout_ref": {"actor": {"ppo_mini_batch_size": 4}},
            "critic": {"ppo_mini_batch_size": 3},
        }
    )
    assert (updates_of_actor(config), updates_of_critic(config)) == (2, 2)
    assert rows_multiple(3, 2, 4) == 12
    sent = []
    group = SimpleNamespace(update_actor=lambda batch: sent.append(dict(batch.extra_info)))
    send = group.update_actor
    batch = SimpleNamespace(extra_info={"mini_batch_size": 32, "global_batch_size": 32, "seed": 1})
    with fixed_updates(group, "update_actor", 2, sessions=7):
        group.update_actor(batch)
    assert sent == [{"num_mini_batch": 2, "global_batch_size": 3.5, "seed": 1}]
    assert group.update_actor is send
