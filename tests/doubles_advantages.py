"""Batches of trajectories for the tests of advantage estimators, drawn as aligned rows or drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from hypothesis import strategies as st

from verl_ext.advantages.batch import TrajectoryBatch


@dataclass(frozen=True)
class Row:
    """One trajectory, column by column: what each token is, whether it was sampled, what it earned."""

    group: int
    tokens: Sequence[int]
    mask: Sequence[int]
    rewards: Sequence[float]
    terminated: bool = True

    def __post_init__(self) -> None:
        assert len(self.tokens) == len(self.mask) == len(self.rewards), f"columns of {self} are not aligned"

    def turns(self) -> list[int]:
        """Turn of each sampled token: a turn is one run of 1s in the mask; -1 elsewhere."""
        starts = [int(now and not before) for before, now in pairwise([0, *self.mask])]
        return [sum(starts[: i + 1]) - 1 if sampled else -1 for i, sampled in enumerate(self.mask)]


def batch_of(*rows: Row, dtype: torch.dtype = torch.float32) -> TrajectoryBatch:
    """The rows as they stand, padded to the longest."""
    longest = max(len(row.tokens) for row in rows)
    return TrajectoryBatch(
        group_B=torch.tensor([row.group for row in rows]),
        turn_BR=torch.tensor([row.turns() + [-1] * (longest - len(row.tokens)) for row in rows]),
        rewards_BR=torch.tensor([[*row.rewards, *[0.0] * (longest - len(row.tokens))] for row in rows], dtype=dtype),
        terminated_B=torch.tensor([row.terminated for row in rows]),
    )


def joined(first: TrajectoryBatch, second: TrajectoryBatch) -> TrajectoryBatch:
    """The trajectories of both; the groups of `second` become groups of their own."""
    columns = max(first.turn_BR.shape[1], second.turn_BR.shape[1])
    first, second = with_columns(first, columns), with_columns(second, columns)
    return TrajectoryBatch(
        group_B=torch.cat([first.group_B, second.group_B + first.group_B.max() + 1]),
        turn_BR=torch.cat([first.turn_BR, second.turn_BR]),
        rewards_BR=torch.cat([first.rewards_BR, second.rewards_BR]),
        terminated_B=torch.cat([first.terminated_B, second.terminated_B]),
    )


def with_columns(batch: TrajectoryBatch, columns: int) -> TrajectoryBatch:
    """Padded at the end to that many columns."""
    return with_gap(batch, at=batch.turn_BR.shape[1], width=columns - batch.turn_BR.shape[1])


def with_gap(batch: TrajectoryBatch, at: int, width: int) -> TrajectoryBatch:
    """`width` columns that nobody sampled, before column `at`."""
    rows = len(batch.group_B)
    turn, rewards = batch.turn_BR, batch.rewards_BR
    none, zero = torch.full((rows, width), -1), torch.zeros(rows, width, dtype=rewards.dtype)
    return TrajectoryBatch(
        group_B=batch.group_B,
        turn_BR=torch.cat([turn[:, :at], none, turn[:, at:]], dim=1),
        rewards_BR=torch.cat([rewards[:, :at], zero, rewards[:, at:]], dim=1),
        terminated_B=batch.terminated_B,
    )


def in_order(batch: TrajectoryBatch, order: Sequence[int]) -> TrajectoryBatch:
    """Its trajectories in another order."""
    return TrajectoryBatch(
        group_B=batch.group_B[order],
        turn_BR=batch.turn_BR[order],
        rewards_BR=batch.rewards_BR[order],
        terminated_B=batch.terminated_B[order],
    )


def scaled(batch: TrajectoryBatch, factor: float) -> TrajectoryBatch:
    """Every reward times `factor`."""
    return TrajectoryBatch(batch.group_B, batch.turn_BR, batch.rewards_BR * factor, batch.terminated_B)


@st.composite
def rows_of(draw: st.DrawFn, group: int, max_turns: int) -> Row:
    """A trajectory with rewards >= 0: most stand on the last token of a turn, some on any sampled token."""
    tokens: list[int] = []
    mask: list[int] = []
    rewards: list[float] = []
    for _ in range(draw(st.integers(1, max_turns))):
        observation = draw(st.integers(1, 2)) if tokens else 0
        sampled = draw(st.integers(1, 3))
        tokens += [30] * observation + [10] * sampled
        mask += [0] * observation + [1] * sampled
        on_every = draw(st.sampled_from([0.0, 0.0, 0.125]))
        rewards += [0.0] * observation + [on_every] * (sampled - 1) + [draw(st.sampled_from([0.0, 0.0, 0.5, 1.0]))]
    return Row(group, tokens, mask, rewards, terminated=draw(st.booleans()))


@st.composite
def batches(draw: st.DrawFn, *, min_group: int = 1, max_turns: int = 3) -> TrajectoryBatch:
    """Up to three groups of unequal size, their trajectories mixed; in double, so that rounding can't hide an error."""
    sizes = draw(st.lists(st.integers(min_group, 4), min_size=1, max_size=3))
    groups = draw(st.permutations([group for group, size in enumerate(sizes) for _ in range(size)]))
    return batch_of(*(draw(rows_of(group, max_turns)) for group in groups), dtype=torch.float64)
