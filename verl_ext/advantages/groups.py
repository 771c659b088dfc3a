"""Statistics of groups, without a loop over groups: every element gets its group's number.

`values` and `group` have one shape, any shape: trajectories [B], turns [B, T] with a group number of their own.
Invariant: sums are kept in double and rounded once, so elements of one group that are all equal lie exactly on its
mean, with a standard deviation of exactly 0; what a rounding error away from the mean would be, divided by a
deviation as small, is an advantage of order 1. Leaves out which elements share a group: that is the caller's.

Arguments of all functions:
    values: float, any shape.
    group: int64, shape of `values`, from 0; memory grows with the largest number.
    weight: bool or float >= 0, shape of `values`: how much each element counts; 0 leaves it out. None: 1 each.

All return a tensor of `values`' shape and type; an element that was left out still gets its group's number.
"""

from __future__ import annotations

import torch


def group_count(values: torch.Tensor, group: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
    """Σ w of each element's group: how many it has."""
    return _count(values, group, weight).to(values.dtype)


def group_mean(values: torch.Tensor, group: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
    """Σ w x / Σ w of each element's group; 0 for a group without weight."""
    return _mean(values.double(), group, weight).to(values.dtype)


def group_std(values: torch.Tensor, group: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
    """√(Σ w (x - mean)² / (Σ w - 1)) of each element's group, as `torch.std`; 0 for a group of one or none."""
    values_double = values.double()
    square = (values_double - _mean(values_double, group, weight)).square()
    others = _count(values, group, weight) - 1
    return _quotient(_sum(square, group, weight), others).sqrt().to(values.dtype)


def leave_one_out_mean(values: torch.Tensor, group: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
    """Σ w x / Σ w over the *other* elements of each element's group; 0 where there is no other."""
    values_double, own = values.double(), _ones(values) if weight is None else weight.double()
    others = _sum(values_double, group, weight) - own * values_double
    return _quotient(others, _count(values, group, weight) - own).to(values.dtype)


def _mean(values: torch.Tensor, group: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    return _quotient(_sum(values, group, weight), _count(values, group, weight))


def _count(values: torch.Tensor, group: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    return _sum(_ones(values), group, weight)


def _sum(values: torch.Tensor, group: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    weighted = values if weight is None else values * weight
    slots = int(group.max()) + 1 if group.numel() else 0
    sums = torch.zeros(slots, dtype=torch.float64, device=values.device)
    return sums.index_add_(0, group.reshape(-1), weighted.reshape(-1))[group]


def _ones(values: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(values, dtype=torch.float64)


def _quotient(numerator: torch.Tensor, denominator: torch.Tensor) -> torch.Tensor:
    return torch.where(denominator > 0, numerator / denominator, 0.0)
