"""Pass@k policy gradient: what a trajectory adds to the best of k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from agentgym_rl.errors import ConfigurationError
from verl_ext.advantages.batch import Advantages, TrajectoryBatch, per_trajectory
from verl_ext.advantages.groups import group_count
from verl_ext.advantages.rloo import against_others


@dataclass(frozen=True)
class PassAtK:
    """A_i = k · mean over J of max(R_i - max_{j ∈ J} R_j, 0), on every sampled token of trajectory i.

    J runs over all sets of k - 1 *other* trajectories of the group. Unbiased for the expected best return of k, which
    for returns of 0 and 1 is pass@k: A_i is k · R_i · (probability that k - 1 of the others all fail). Never negative:
    max_J is the baseline of what the others reach without i. For k = 1, where it would be empty, `TrajectoryRloo`.
    A group of fewer than k is taken for what it can tell: k is lowered to its size, so it is unbiased for that pass@k;
    a trajectory that is alone has advantage 0. Scaling the returns scales the advantages.

    Raises:
        ConfigurationError: k < 1.

    Source: Walder and Karkhanis 2025, Pass@K Policy Optimization, s^(loo-1), https://arxiv.org/abs/2505.15201; times
    the group's size, as our loss takes the mean over a group where theirs takes the sum.
    """

    k: int = 4
    """How many tries the best is taken of, >= 1; at most the group's size makes sense."""

    needs_states: ClassVar[bool] = False
    needs_values: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigurationError(f"pass_at_k needs k >= 1; given: {self.k}")

    def __call__(self, batch: TrajectoryBatch) -> Advantages:
        if self.k == 1:
            return per_trajectory(batch, against_others(batch.return_B, batch.group_B))
        return per_trajectory(batch, _added_to_best(batch.return_B, batch.group_B, self.k))


def _added_to_best(return_B: torch.Tensor, group_B: torch.Tensor, k: int) -> torch.Tensor:
    """float [B]: A_i for k >= 2, from ranks rather than from sets.

    max(R_i - max_J, 0) is the sum of those steps, from one return of the group to the next higher one, that i stands
    above and all of J below; of the C(G - 1, k - 1) sets J, C(r, k - 1) stand below the step that leads to rank r.
    """
    dtype = return_B.dtype
    order_B, rank_B = _ranks(return_B, group_B)
    group_B, return_B = group_B[order_B], return_B[order_B].double()
    size_B = group_count(return_B, group_B)
    tries_B = size_B.clamp(max=k)
    step_B = torch.diff(return_B, prepend=return_B[:1]) * (rank_B > 0)
    below_B = (_log_choose(rank_B, tries_B - 1) - _log_choose(size_B - 1, tries_B - 1)).exp()
    added_B = tries_B * _sum_up_to(step_B * below_B, group_B, rank_B)
    return torch.empty_like(added_B).index_copy_(0, order_B, added_B).to(dtype)


def _ranks(return_B: torch.Tensor, group_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """An order by group, then by return, and in that order the rank within the group, from 0."""
    by_return_B = return_B.argsort()
    order_B = by_return_B[group_B[by_return_B].argsort(stable=True)]
    size_G = group_B.bincount()
    start_G = size_G.cumsum(0) - size_G
    return order_B, torch.arange(len(group_B), device=group_B.device) - start_G[group_B[order_B]]


def _log_choose(n: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """log C(n, k), -inf for k > n."""
    return torch.lgamma(n + 1.0) - torch.lgamma(k + 1.0) - torch.lgamma(n - k + 1.0)


def _sum_up_to(values_B: torch.Tensor, group_B: torch.Tensor, rank_B: torch.Tensor) -> torch.Tensor:
    """Sum over the ranks of its group, up to each one's own."""
    # A row a group: in one running sum over all groups, one would round the next.
    shape = int(group_B.max()) + 1, int(rank_B.max()) + 1
    by_rank = torch.zeros(shape, dtype=values_B.dtype, device=values_B.device)
    by_rank[group_B, rank_B] = values_B
    return by_rank.cumsum(1)[group_B, rank_B]
