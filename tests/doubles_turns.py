"""`doubles_advantages` for estimators that read states or values: the same changes of a batch, with both kept."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import doubles_advantages
import torch
from hypothesis import strategies as st

from verl_ext.advantages.batch import TrajectoryBatch


@st.composite
def batches(draw: st.DrawFn, *, min_group: int = 1, max_turns: int = 3) -> TrajectoryBatch:
    """With few states, so that many turns share one, and values on all tokens, also on those that nobody sampled."""
    batch = draw(doubles_advantages.batches(min_group=min_group, max_turns=max_turns))
    dice = random.Random(draw(st.integers(0, 99)))  # to draw each number would take most of a test's time
    rows, columns = batch.turn_BR.shape
    values_BR = torch.tensor([[dice.uniform(-2, 2) for _ in range(columns)] for _ in range(rows)], dtype=torch.float64)
    bootstrap_B = torch.tensor([dice.uniform(-2, 2) for _ in range(rows)], dtype=torch.float64)
    return replace(
        batch,
        state_keys=[dice.choices("ab", k=turns) for turns in batch.turns_B.tolist()],
        values_BR=values_BR,
        bootstrap_B=bootstrap_B * ~batch.terminated_B,
    )


def in_order(batch: TrajectoryBatch, order: Sequence[int]) -> TrajectoryBatch:
    return replace(
        doubles_advantages.in_order(batch, order),
        state_keys=[batch.state_keys[number] for number in order],
        values_BR=batch.values_BR[order],
        bootstrap_B=batch.bootstrap_B[order],
    )


def with_gap(batch: TrajectoryBatch, at: int, width: int) -> TrajectoryBatch:
    """The critic says something of tokens that nobody sampled, too."""
    noise = torch.full((len(batch.group_B), width), 7.0, dtype=torch.float64)
    values_BR = torch.cat([batch.values_BR[:, :at], noise, batch.values_BR[:, at:]], dim=1)
    wider = doubles_advantages.with_gap(batch, at, width)
    return replace(wider, state_keys=batch.state_keys, values_BR=values_BR, bootstrap_B=batch.bootstrap_B)


def joined(first: TrajectoryBatch, second: TrajectoryBatch) -> TrajectoryBatch:
    columns = max(first.turn_BR.shape[1], second.turn_BR.shape[1])
    first, second = (with_gap(b, b.turn_BR.shape[1], columns - b.turn_BR.shape[1]) for b in (first, second))
    return replace(
        doubles_advantages.joined(first, second),
        state_keys=[*first.state_keys, *second.state_keys],
        values_BR=torch.cat([first.values_BR, second.values_BR]),
        bootstrap_B=torch.cat([first.bootstrap_B, second.bootstrap_B]),
    )
