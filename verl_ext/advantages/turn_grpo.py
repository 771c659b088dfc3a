"""GRPO turn by turn: what a turn earned from there on, against what its siblings earned from that turn on.

Invariant: a trajectory's baseline holds nothing of that trajectory, so it takes nothing from the expected gradient,
whatever the policy decides, and so also where it decides when to stop. The usual construction (center each turn's own
reward over the siblings that reached that turn, then sum the turns that follow) does take: how many means it subtracts
is decided by the trajectory's own last turn. Its bias is -∇ E[Σ_{t<T} mean_t]: every further turn is punished by what
turns earn on average. See https://github.com/verl-project/verl/issues/7244.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from verl_ext.advantages.batch import Advantages, TrajectoryBatch, per_turn
from verl_ext.advantages.fractions import require_fractions
from verl_ext.advantages.groups import group_count, group_std, leave_one_out_mean
from verl_ext.advantages.grpo import EPSILON
from verl_ext.advantages.return_to_go import return_to_go


@dataclass(frozen=True)
class TurnGrpo:
    """A_{i,t} = G_{i,t} - b_{i,t} on every token of turn t; G is the return-to-go and b `sibling_mean`.

    Unbiased with `gamma=1` and without `divide_by_std`. A discount counts what is near more than the return does; the
    deviation (one of each group, of all its returns-to-go) contains the trajectory itself. A trajectory without
    siblings has advantage 0. With one turn this is RLOO.

    Raises:
        ConfigurationError: gamma outside [0, 1].

    Source: Shao et al. 2024, https://arxiv.org/abs/2402.03300, section 4.1.3 (process supervision), with the
    leave-one-out baseline of Kool et al. 2019, https://openreview.net/forum?id=r1lgTGL5DE.
    """

    gamma: float = 1.0
    """Discount a turn, in [0, 1]."""
    divide_by_std: bool = False
    """Divide by the standard deviation of the group's returns-to-go. Not verl's switch, which is on by default."""

    needs_states: ClassVar[bool] = False
    needs_values: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_fractions(gamma=self.gamma)

    def __call__(self, batch: TrajectoryBatch) -> Advantages:
        to_go_BT = return_to_go(batch.rewards_BT, self.gamma)
        advantage_BT = against_siblings(to_go_BT, batch.group_B)
        if self.divide_by_std:
            group_BT = batch.group_B[:, None].expand_as(to_go_BT)
            advantage_BT = advantage_BT / (group_std(to_go_BT, group_BT, batch.turn_mask_BT) + EPSILON)
        return per_turn(batch, advantage_BT)


def against_siblings(to_go_BT: torch.Tensor, group_B: torch.Tensor) -> torch.Tensor:
    """Return-to-go minus `sibling_mean`; 0 for a trajectory without siblings.

    Args:
        to_go_BT: float [B, T]: `return_to_go`.
        group_B: int64 [B]: trajectories with the same number are siblings.

    Returns:
        float [B, T].
    """
    has_sibling_B = group_count(to_go_BT[:, 0], group_B) > 1
    return (to_go_BT - sibling_mean(to_go_BT, group_B)) * has_sibling_B[:, None]


def sibling_mean(to_go_BT: torch.Tensor, group_B: torch.Tensor) -> torch.Tensor:
    """Mean return-to-go from turn t on of all siblings; one that ended before t earned 0 from there on.

    The mean over those that reached turn t is as unbiased, and nearer to what i may expect there. But at late turns it
    is the mean of one or two, and of none in the end; its noise costs more than it is worth: see the variances in
    `tests/test_advantages_exact_gradient.py`.

    Returns:
        float [B, T].
    """
    turns = to_go_BT.shape[1]
    turn_group_BT = group_B[:, None] * turns + torch.arange(turns, device=group_B.device)
    return leave_one_out_mean(to_go_BT, turn_group_BT)
