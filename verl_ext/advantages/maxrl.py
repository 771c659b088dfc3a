"""MaxRL: the more rarely a task is solved, the more each of its successes counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from agentgym_rl.errors import DataError
from verl_ext.advantages.batch import Advantages, TrajectoryBatch, per_trajectory
from verl_ext.advantages.groups import group_mean


@dataclass(frozen=True)
class MaxRl:
    """A_i = (R_i - mean_g R) / mean_g R, on every sampled token of trajectory i; 0 where the group's mean is 0.

    For returns of 0 and 1 and groups of G it is unbiased for the gradient of

        Σ_{k=1}^{G-1} pass@k / k  =  const - Σ_{k=1}^{G-1} (1 - p)^k / k,

    the likelihood log p of a success, cut off after G - 1 terms: the expected return for G = 2, maximum likelihood for
    large groups. For other returns >= 0 there is no such statement; scaling them changes nothing. A trajectory that is
    alone in its group has advantage 0.

    Raises:
        DataError: a return is negative; then the group's mean says nothing about how rarely the task is solved.

    Source: Tajwar et al. 2026, Maximum Likelihood Reinforcement Learning, https://arxiv.org/abs/2602.02710
    """

    needs_states: ClassVar[bool] = False
    needs_values: ClassVar[bool] = False

    def __call__(self, batch: TrajectoryBatch) -> Advantages:
        _require_not_negative(batch.return_B)
        mean_B = group_mean(batch.return_B, batch.group_B)
        return per_trajectory(batch, torch.where(mean_B > 0, (batch.return_B - mean_B) / mean_B, 0.0))


def _require_not_negative(return_B: torch.Tensor) -> None:
    if (return_B < 0).any():
        lowest = int(return_B.argmin())
        raise DataError(
            "maxrl divides by a group's mean return, so no return may be negative; "
            f"given: {return_B[lowest].item():.6g} for trajectory {lowest}. "
            "Use rewards from 0 to 1 and no penalty in the reward, or another estimator"
        )
