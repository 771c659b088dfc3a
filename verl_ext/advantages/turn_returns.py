"""REINFORCE turn by turn: the return-to-go of each turn, against all others of the batch.

For tasks that are played once each, where a group has no siblings to compare with: here the whole batch is one group.
Invariant: as in `turn_grpo.py`, a baseline holds nothing of its own trajectory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from verl_ext.advantages.batch import Advantages, TrajectoryBatch, per_turn
from verl_ext.advantages.fractions import require_fractions
from verl_ext.advantages.return_to_go import return_to_go
from verl_ext.advantages.turn_grpo import against_siblings


@dataclass(frozen=True)
class TurnReturns:
    """A_{i,t} = G_{i,t} - mean of G_{j,t} over the other trajectories j of the batch, on every token of turn t.

    G_{j,t} of one that ended before t is 0. Unbiased with `gamma=1`; a discount counts what is near more than the
    return does. Tasks of unequal difficulty share one baseline: that costs variance, not bias. A batch of one
    trajectory has advantage 0.

    Raises:
        ConfigurationError: gamma outside [0, 1].

    Source: Williams 1992, https://doi.org/10.1007/BF00992696, with the return-to-go of Sutton et al. 1999,
    https://papers.nips.cc/paper/1713, and the leave-one-out baseline of Kool et al. 2019,
    https://openreview.net/forum?id=r1lgTGL5DE.
    """

    gamma: float = 1.0
    """Discount a turn, in [0, 1]."""

    needs_states: ClassVar[bool] = False
    needs_values: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_fractions(gamma=self.gamma)

    def __call__(self, batch: TrajectoryBatch) -> Advantages:
        to_go_BT = return_to_go(batch.rewards_BT, self.gamma)
        return per_turn(batch, against_siblings(to_go_BT, torch.zeros_like(batch.group_B)))
