"""Sums that run backwards over the sampled tokens of each trajectory, as if nothing stood between them.

The N sampled tokens of all trajectories are kept one behind the other, row by row, so what follows a token is simply
the next element, but for the last of each row (`last_B`). Invariant: a sum never passes from one trajectory to another.

Axes: P sampled tokens of the trajectory that has most.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch


@dataclass(frozen=True)
class SampledTokens:
    """Which tokens of [B, R] were sampled."""

    mask_BR: torch.Tensor
    """bool [B, R]: at least one in each row."""

    @cached_property
    def index_N(self) -> torch.Tensor:
        """int64 [N]: where each stands in [B * R]."""
        return self.mask_BR.flatten().nonzero().squeeze(1)

    @cached_property
    def last_B(self) -> torch.Tensor:
        """int64 [B]: number of each row's last, among the N."""
        rows, columns = self.mask_BR.shape
        ends_B = torch.arange(1, rows + 1, device=self.mask_BR.device) * columns
        return torch.searchsorted(self.index_N, ends_B) - 1

    def select(self, x_BR: torch.Tensor) -> torch.Tensor:
        """[N]: what belongs to each."""
        return x_BR.flatten().index_select(0, self.index_N)

    def spread(self, x_N: torch.Tensor) -> torch.Tensor:
        """[B, R]: each one's own; 0 on tokens that were not sampled."""
        return x_N.new_zeros(self.mask_BR.numel()).index_copy_(0, self.index_N, x_N).view(self.mask_BR.shape)

    def backward_sum(self, x_N: torch.Tensor, factor_N: torch.Tensor) -> torch.Tensor:
        """float [N]: `backward_sum` of each row.

        Args:
            x_N: float [N].
            factor_N: float [N], or one number.
        """
        factor_PB = self._pack(factor_N) if factor_N.dim() else factor_N
        sum_PB = backward_sum(self._pack(x_N), factor_PB)
        return sum_PB.T.contiguous().flatten().index_select(0, self._slot_N)

    def _pack(self, x_N: torch.Tensor) -> torch.Tensor:
        """[P, B]: all rows end in the last slot, so what is before a first token comes after it in the sum."""
        x_BP = x_N.new_zeros(self._slots_BP.numel()).index_copy_(0, self._slot_N, x_N).view(self._slots_BP.shape)
        return x_BP.T.contiguous()

    @cached_property
    def _slots_BP(self) -> torch.Tensor:
        count_B = self.last_B.diff(prepend=self.last_B.new_tensor([-1]))
        most = int(count_B.max())
        return torch.arange(most, device=count_B.device) >= most - count_B[:, None]

    @cached_property
    def _slot_N(self) -> torch.Tensor:
        return self._slots_BP.flatten().nonzero().squeeze(1)


def backward_sum(x_TB: torch.Tensor, factor_TB: torch.Tensor) -> torch.Tensor:
    """y_t = x_t + factor_t y_{t+1}, with nothing behind the last.

    Args:
        x_TB: float [T, B]; time first, so that each step reads one run of memory.
        factor_TB: float, [T, B] or one number.

    Returns:
        float [T, B].
    """
    y_TB = torch.empty_like(x_TB)
    following_B = torch.zeros_like(x_TB[0])
    for x_B, factor_B, y_B in reversed(list(zip(x_TB, factor_TB.expand_as(x_TB), y_TB, strict=True))):
        following_B = torch.addcmul(x_B, factor_B, following_B, out=y_B)
    return y_TB
