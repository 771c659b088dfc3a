"""What one token counts for in the loss, whatever segments its trajectory was split into.

    token       w = 1                      long trajectories, and in them long turns, weigh most
    trajectory  w = (N / B) / len_b        every trajectory weighs the same
    turn        w = (N / B) / (T_b len_bt) every trajectory the same, and in it every turn

N sampled tokens in B trajectories of T_b turns. Multiplied into the advantages, under verl's loss_agg_mode=token-mean:
sum_n w_n A_n / N = 1/B sum_b (mean over its tokens, or over its turns of the mean over their tokens). The weights have
mean 1 over the batch, so learning rate, KL and entropy terms keep their scale. verl's seq-mean modes would count a
session once a segment.

Source: the trade-off is discussed in Liu et al. (2025), "Understanding R1-Zero-like training", arXiv 2503.20783, and
Yu et al. (2025), "DAPO", arXiv 2503.14476.
"""

from __future__ import annotations

from enum import Enum

import torch

from verl_ext.advantages.batch import TrajectoryBatch


class LossWeight(Enum):
    """What weighs the same in the loss."""

    TOKEN = "token"
    TRAJECTORY = "trajectory"
    TURN = "turn"


def loss_weights(batch: TrajectoryBatch, kind: LossWeight) -> torch.Tensor:
    """float [B, R]: mean 1 over the sampled tokens; 0 on all others."""
    mask_BR = batch.mask_BR.to(batch.rewards_BR.dtype)
    if kind is LossWeight.TOKEN:
        return mask_BR
    per_trajectory = mask_BR.sum() / len(mask_BR)
    if kind is LossWeight.TRAJECTORY:
        return per_trajectory * mask_BR / mask_BR.sum(dim=1, keepdim=True)
    lengths_BT = torch.zeros(batch.turn_mask_BT.shape, dtype=mask_BR.dtype)
    lengths_BT.scatter_add_(1, batch.turn_BR.clamp(min=0), mask_BR)
    shares_BT = torch.where(batch.turn_mask_BT, 1 / (batch.turns_B[:, None] * lengths_BT), 0.0)
    return per_trajectory * batch.to_tokens(shares_BT)
