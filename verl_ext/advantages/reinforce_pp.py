"""REINFORCE++: advantages whitened over all sampled tokens of the batch.

Whitening is what the two estimators share: minus the mean, over the standard deviation, of every sampled token in the
batch. So long trajectories weigh more in both numbers, and every trajectory changes the advantages of all others.
Bias of both: the mean and the deviation hold the token's own return, an error of order 1 / number of trajectories.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from verl_ext.advantages.batch import Advantages, TrajectoryBatch, per_trajectory
from verl_ext.advantages.fractions import require_fractions
from verl_ext.advantages.groups import group_count, group_mean
from verl_ext.advantages.recurrence import SampledTokens

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
        tokens = SampledTokens(batch.mask_BR)
        rewards_N = tokens.select(batch.rewards_BR)
        returns_N = tokens.backward_sum(rewards_N, rewards_N.new_tensor(self.gamma))
        return Advantages(tokens.spread(_whitened(returns_N, torch.ones_like(returns_N))), tokens.spread(returns_N))


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
        return per_trajectory(batch, _whitened(centred_B, batch.mask_BR.sum(dim=1) * compared_B))


def _whitened(values: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Values that stand for so many tokens each, with mean 0 and variance 1 over the tokens; 0 where there are none."""
    weights = tokens.double()
    count = weights.sum()
    mean = (weights * values).sum() / count.clamp(min=1)
    variance = (weights * (values - mean).square()).sum() / (count - 1).clamp(min=1)
    whitened = (values - mean) * torch.rsqrt(variance + EPSILON) * (weights > 0)
    return whitened.to(values.dtype)
