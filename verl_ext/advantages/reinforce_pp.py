"""REINFORCE++: advantages whitened over all sampled tokens of the batch.

Whitening is what the two estimators share: minus the mean, over the standard deviation, of every sampled token in the
batch. So long trajectories weigh more in both numbers, and every trajectory changes the advantages of all others.
Bias of both: the mean and the deviation hold the token's own return, an error of order 1 / number of trajectories.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from verl_ext.advantages.batch import Advantages, TrajectoryBatch
from verl_ext.advantages.fractions import require_fractions
from verl_ext.advantages.groups import group_count, group_mean

EPSILON = 1e-8  # verl's: torch_functional.masked_whiten


@dataclass(frozen=True)
class TrajectoryReinforcePlusPlus:
    """A_t = (G_t - mean G) / √(var G + 1e-8), with G_t = Σ_{s ≥ t} γ^(number of sampled tokens in (t, s]) r_s.

    The discount counts sampled tokens alone: an observation of any length between two turns costs nothing, and a
    reward reaches the turns before it. The returns are G, without whitening. Scaling all rewards changes nothing, but
    for the 1e-8. Groups play no part.

    Raises:
        ConfigurationError: gamma outside [0, 1].

    Source: Hu et al. 2025, REINFORCE++, https://arxiv.org/abs/2501.03262
    """

    gamma: float = 1.0
    """Discount per sampled token, in [0, 1]."""

    needs_states: ClassVar[bool] = False
    needs_values: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_fractions(gamma=self.gamma)

    def __call__(self, batch: TrajectoryBatch) -> Advantages:
        returns_BR = discounted_returns(batch, self.gamma)
        return Advantages(whiten(returns_BR, batch.mask_BR), returns_BR)


@dataclass(frozen=True)
class TrajectoryReinforcePlusPlusBaseline:
    """A_t = (a_i - mean a) / √(var a + 1e-8), with a_i = R_i - mean_g R on every sampled token of trajectory i.

    Mean and variance are over the batch's sampled tokens, as the group's baseline alone leaves tasks of different
    spread. A trajectory that is alone in its group has no baseline: it has advantage 0 and no part in the whitening;
    verl gives it its raw return. Scaling all rewards changes nothing, but for the 1e-8.

    Source: Hu et al. 2025, REINFORCE++, section on the baseline form, https://arxiv.org/abs/2501.03262
    """

    needs_states: ClassVar[bool] = False
    needs_values: ClassVar[bool] = False

    def __call__(self, batch: TrajectoryBatch) -> Advantages:
        centred_B = batch.return_B - group_mean(batch.return_B, batch.group_B)
        compared_B = group_count(batch.return_B, batch.group_B) > 1
        mask_BR = batch.mask_BR & compared_B[:, None]
        advantages_BR = whiten(centred_B[:, None].expand_as(mask_BR), mask_BR)
        return Advantages(advantages_BR, advantages_BR)


def discounted_returns(batch: TrajectoryBatch, gamma: float) -> torch.Tensor:
    """float [B, R]: discounted sum of what each sampled token and those after it earned; 0 elsewhere."""
    # One token of all trajectories is one run of memory; the loop fills this copy in place.
    returns_RB = batch.rewards_BR.T.clone(memory_format=torch.contiguous_format)
    decay_RB = torch.where(batch.mask_BR.T.contiguous(), gamma, 1.0).to(returns_RB.dtype)
    later_B = torch.zeros_like(returns_RB[0])
    for position in reversed(range(len(returns_RB))):
        later_B = returns_RB[position].addcmul_(decay_RB[position], later_B)
    return returns_RB.T.contiguous() * batch.mask_BR


def whiten(values_BR: torch.Tensor, mask_BR: torch.Tensor) -> torch.Tensor:
    """float [B, R]: values with mean 0 and variance 1 over the mask, 0 outside it; all 0 for fewer than two."""
    values_N = values_BR[mask_BR]
    if len(values_N) < 2:
        return torch.zeros_like(values_BR)
    variance, mean = torch.var_mean(values_N)
    return (values_BR - mean) * torch.rsqrt(variance + EPSILON) * mask_BR
