"""The gap between the rollout's and the trainer's log-probs of each turn, and the batch that is refused for it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.errors import ConfigurationError
from verl_ext.logprob_gap import LogprobGapTooLarge, TurnGaps, gap_metrics, require_small_gap, turn_gaps

#            turn 0        seen  turn 1  turn 2   padding
TURNS = [[0, 0, -1, 1, 2, 2, -1], [0, -1, -1, 1, 1, 1, 1]]
ROLLOUT = [[-1.0, -2.0, 0.0, -0.5, -3.0, -1.0, 0.0], [-1.0, 0.0, 0.0, -1.0, -1.0, -1.0, -1.0]]
TRAINER = [[-1.1, -1.7, -9.0, -0.5, -2.0, -1.4, 5.0], [-1.0, -8.0, 7.0, -1.4, -0.8, -1.0, -1.2]]
# |gap|      0.1   0.3         0     1     0.4                  0                  0.4   0.2   0     0.2
GAPS = [[0.2, 0.0, 0.7], [0.0, 0.2, 0.0]]
TOKENS = [[2, 1, 2], [1, 4, 0]]


def gaps() -> TurnGaps:
    return turn_gaps(torch.tensor(ROLLOUT), torch.tensor(TRAINER), torch.tensor(TURNS))


def test_the_gap_of_each_turn_by_hand():
    assert gaps().gap_BT.tolist() == [pytest.approx(row, abs=1e-6) for row in GAPS]
    assert gaps().tokens_BT.tolist() == TOKENS


def test_the_metrics_by_hand():
    # over tokens, not over turns: (0.4 + 0 + 1.4 + 0 + 0.8) / 10
    assert gap_metrics(gaps()) == pytest.approx(
        {
            "logprob_gap/mean": 0.26,
            "logprob_gap/turn_max": 0.7,
            "logprob_gap/turn_0": 0.4 / 3,
            "logprob_gap/turn_1": 0.8 / 5,
            "logprob_gap/turn_2_to_3": 0.7,
        }
    )


def test_late_turns_share_a_metric():
    turn_BR = torch.arange(40)[None]
    late = gap_metrics(turn_gaps(torch.zeros(1, 40), -turn_BR.float(), turn_BR))
    assert late["logprob_gap/turn_8_to_15"] == pytest.approx(11.5)
    assert late["logprob_gap/turn_16_up"] == pytest.approx((16 + 39) / 2)


turns = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=5), min_size=1, max_size=4)


def laid_out(tokens_BT: list[list[int]]) -> torch.Tensor:
    """Turns of so many tokens, one observed token between them, as a padded tensor."""
    rows = [[t for turn, n in enumerate(row) for t in [turn] * n + [-1]] for row in tokens_BT]
    width = max(map(len, rows))
    return torch.tensor([row + [-1] * (width - len(row)) for row in rows])


@given(turns, st.integers(0, 2**31))
def test_what_was_not_sampled_changes_nothing(tokens_BT, seed):
    turn_BR = laid_out(tokens_BT)
    generator = torch.Generator().manual_seed(seed)
    rollout, trainer, noise = torch.randn(3, *turn_BR.shape, generator=generator)
    noisy = torch.where(turn_BR < 0, noise * math.inf, trainer)
    padded = [torch.nn.functional.pad(x, (0, 3), value=float("nan")) for x in (rollout, noisy)]
    wide = turn_gaps(*padded, torch.nn.functional.pad(turn_BR, (0, 3), value=-1))
    plain = turn_gaps(rollout, trainer, turn_BR)
    assert torch.equal(plain.gap_BT, wide.gap_BT)
    assert plain.tokens_BT.sum() == (turn_BR >= 0).sum()


@given(turns, st.floats(0, 5))
def test_a_gap_that_is_the_same_everywhere_is_the_gap_of_every_turn(tokens_BT, gap):
    turn_BR = laid_out(tokens_BT)
    found = turn_gaps(torch.zeros(turn_BR.shape), torch.full(turn_BR.shape, -gap), turn_BR)
    there = found.tokens_BT > 0
    assert found.gap_BT[there].tolist() == pytest.approx([gap] * int(there.sum()), rel=1e-5)
    assert not found.gap_BT[~there].any()
    assert gap_metrics(found)["logprob_gap/mean"] == pytest.approx(gap, rel=1e-5)


def test_a_turn_over_the_bound_is_named_with_its_session_its_gap_and_the_likely_reasons():
    require_small_gap(gaps(), 0.71, ["a_0", "a_1"])
    with pytest.raises(LogprobGapTooLarge) as error:
        require_small_gap(gaps(), 0.15, ["a_0", "a_1"])
    message = str(error.value)
    assert "turn 2 of session 'a_0': its 2 sampled tokens have a mean log-prob gap of 0.7 " in message
    assert "allowed: 0.15; 3 of 5 turns of this batch are over it" in message
    for reason in ("tokenised anew", "weight sync", "temperature", "precision"):
        assert reason in message


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_gap_that_is_no_number_is_over_every_bound(broken):
    trainer = torch.tensor(TRAINER)
    trainer[1, 4] = broken
    found = turn_gaps(torch.tensor(ROLLOUT), trainer, torch.tensor(TURNS))
    with pytest.raises(LogprobGapTooLarge, match=f"turn 1 of session 'a_1'.*gap of {broken}"):
        require_small_gap(found, 1e9, ["a_0", "a_1"])


@pytest.mark.parametrize("bound", [0, -1.0, math.nan])
def test_a_bound_must_be_above_zero(bound):
    with pytest.raises(ConfigurationError, match=f"must be above 0; given: {bound}"):
        require_small_gap(gaps(), bound, ["a_0", "a_1"])


def test_a_batch_in_which_nothing_was_sampled_has_no_gap():
    nothing = turn_gaps(torch.ones(2, 3), torch.zeros(2, 3), torch.full((2, 3), -1))
    assert gap_metrics(nothing) == {"logprob_gap/mean": 0.0, "logprob_gap/turn_max": 0.0}
    require_small_gap(nothing, 0.1, ["a", "b"])
