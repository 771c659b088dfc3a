"""RLOO over whole trajectories: the baseline of each is the mean return of the others in its group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from verl_ext.advantages.batch import Advantages, TrajectoryBatch, per_trajectory
from verl_ext.advantages.groups import group_count, leave_one_out_mean


@dataclass(frozen=True)
class TrajectoryRloo:
    """A_i = R_i - mean of R_j over the other trajectories j of its group, on every sampled token of trajectory i.

    Unbiased for the expected return: the baseline does not depend on trajectory i. It equals G / (G - 1) times the
    advantage of `DrGrpo`. Scaling the returns scales the advantages. A trajectory that is alone in its group has
    advantage 0; verl's `rloo` gives it its raw return.

    Source: Ahmadian et al. 2024, Back to Basics, section 2, https://arxiv.org/abs/2402.14740
    """

    needs_states: ClassVar[bool] = False
    needs_values: ClassVar[bool] = False

    def __call__(self, batch: TrajectoryBatch) -> Advantages:
        return per_trajectory(batch, against_others(batch.return_B, batch.group_B))


def against_others(return_B: torch.Tensor, group_B: torch.Tensor) -> torch.Tensor:
    """float [B]: each return minus the mean of the others of its group; 0 where there are none."""
    centred_B = return_B - leave_one_out_mean(return_B, group_B)
    return centred_B * (group_count(return_B, group_B) > 1)
