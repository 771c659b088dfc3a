"""Trajectories to time estimators on, and the same rows as verl's own functions take them.

Invariant: every trajectory has the tokens and turns that a seed gives, the first one all of them; turns are of unequal
length, with observations between, and every turn earns something.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import torch

from verl_ext.advantages.batch import TrajectoryBatch

GROUP = 8
"""Trajectories of a task."""
STATES = 40
"""Different states that a task's turns begin in."""


@dataclass(frozen=True)
class Rows:
    """What verl's functions read."""

    rewards_BR: torch.Tensor
    mask_BR: torch.Tensor
    """float, as verl makes it for rewards."""
    group_names: np.ndarray
    values_BR: torch.Tensor


def trajectories(count: int, tokens: int, turns: int, seed: int) -> TrajectoryBatch:
    """A batch with state keys and values.

    Args:
        tokens: of the longest trajectory's response; at least 4 a turn.
        turns: of the longest trajectory; the others have half as many or more.
    """
    dice, torch_dice = random.Random(seed), torch.Generator().manual_seed(seed)
    turns_B = [turns, *(dice.randint((turns + 1) // 2, turns) for _ in range(count - 1))]
    turn_BR = _turns(turns_B, tokens, tokens // turns, torch_dice)
    ends_BR = (turn_BR >= 0) & (turn_BR.roll(-1, 1) != turn_BR)
    terminated_B = torch.rand(count, generator=torch_dice) < 0.8
    return TrajectoryBatch(
        group_B=torch.arange(count) // GROUP,
        turn_BR=turn_BR,
        rewards_BR=ends_BR * torch.rand(turn_BR.shape, generator=torch_dice),
        terminated_B=terminated_B,
        state_keys=[[f"state {dice.randrange(STATES)}" for _ in range(number)] for number in turns_B],
        values_BR=torch.rand(turn_BR.shape, generator=torch_dice),
        bootstrap_B=torch.rand(count, generator=torch_dice) * ~terminated_B,
    )


def rows_of(batch: TrajectoryBatch) -> Rows:
    """One row a trajectory."""
    assert batch.values_BR is not None
    names = np.array([f"task {group}" for group in batch.group_B.tolist()])
    return Rows(batch.rewards_BR, (batch.turn_BR >= 0).float(), names, batch.values_BR)


def _turns(turns_B: list[int], tokens: int, width: int, dice: torch.Generator) -> torch.Tensor:
    """int64 [B, R]: `width` tokens for each turn and what follows it, a quarter of them sampled or more."""
    turn_R, place_R = torch.arange(tokens) // width, torch.arange(tokens) % width
    sampled_BT = torch.randint(width // 4, width, (len(turns_B), int(turn_R.max()) + 1), generator=dice)
    sampled_BR = (place_R < sampled_BT[:, turn_R]) & (turn_R < torch.tensor(turns_B)[:, None])
    return torch.where(sampled_BR, turn_R, -1)
