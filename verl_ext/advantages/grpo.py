"""GRPO over whole trajectories: what a trajectory earned against the mean of its group.

Unlike verl's `grpo`, a trajectory counts once however many segments, turns or tokens it has, and one that is alone in
its group has advantage 0: verl gives it its raw return, which rewards whatever it did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from verl_ext.advantages.batch import Advantages, TrajectoryBatch, per_trajectory
from verl_ext.advantages.groups import group_mean, group_std

EPSILON = 1e-6  # verl's: core_algos.compute_grpo_outcome_advantage


@dataclass(frozen=True)
class TrajectoryGrpo:
    """A_i = (R_i - mean_g R) / (std_g R + 1e-6), on every sampled token of trajectory i.

    Bias: with the standard deviation, a group counts by 1 / std_g, so tasks that are nearly always or nearly never
    solved weigh most; where returns have more than two values, not even the direction is that of the expected return.
    Scaling all returns changes nothing, but for the 1e-6.

    Source: Shao et al. 2024, DeepSeekMath, section 4.1.2, https://arxiv.org/abs/2402.03300; std as `torch.std`.
    """

    normalise: bool = True
    """Divide by the standard deviation; False: as `DrGrpo`."""

    needs_states: ClassVar[bool] = False
    needs_values: ClassVar[bool] = False

    def __call__(self, batch: TrajectoryBatch) -> Advantages:
        advantage_B = _centred(batch)
        if self.normalise:
            advantage_B = advantage_B / (group_std(batch.return_B, batch.group_B) + EPSILON)
        return per_trajectory(batch, advantage_B)


@dataclass(frozen=True)
class DrGrpo:
    """A_i = R_i - mean_g R, on every sampled token of trajectory i.

    Unbiased for the expected return up to the factor (G - 1) / G of a group of G, since the mean holds R_i itself;
    `TrajectoryRloo` is without that factor. Scaling the returns scales the advantages.
    The paper's other half, a constant in place of the response length, is verl's `loss_agg_mode:
    seq-mean-token-sum-norm`, a setting of the loss.

    Source: Liu et al. 2025, Understanding R1-Zero-Like Training, section 3.2, https://arxiv.org/abs/2503.20783
    """

    needs_states: ClassVar[bool] = False
    needs_values: ClassVar[bool] = False

    def __call__(self, batch: TrajectoryBatch) -> Advantages:
        return per_trajectory(batch, _centred(batch))


def _centred(batch: TrajectoryBatch) -> torch.Tensor:
    return batch.return_B - group_mean(batch.return_B, batch.group_B)
