"""The one shape that every advantage estimator works on: whole trajectories, each with its turns.

A trajectory is one row, however many training rows its session was split into: its segments stand one behind the other
(`rows.py` joins and splits them). Invariant: a turn is what was sampled between two observations, or a summary by the
policy itself; every sampled token belongs to exactly one turn, no other token to any. Only trajectories that are
trained on are here: nothing of padding, of failed and of excluded sessions, so no estimator can count one by mistake.

Axes: B trajectories, R response tokens of the longest, T turns of the longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, Protocol

import torch


@dataclass(frozen=True)
class TrajectoryBatch:
    """B trajectories that were sampled, at least one turn each."""

    group_B: torch.Tensor
    """int64 [B]: number of its group, the trajectories of one task. Any order, any size."""
    turn_BR: torch.Tensor
    """int64 [B, R]: turn of each sampled token, from 0; -1 on observations and padding."""
    rewards_BR: torch.Tensor
    """float [B, R]: what each token earned. A turn's reward stands on its last token; a KL penalty on every one."""
    terminated_B: torch.Tensor
    """bool [B]: the task came to its own end; False: a limit cut it off."""
    state_keys: Sequence[Sequence[str]] | None = None
    """B lists of T_b keys: equal where two turns began in the same state of the environment. None: not known."""
    values_BR: torch.Tensor | None = None
    """float [B, R]: the critic's value before each token. None: there is no critic."""
    bootstrap_B: torch.Tensor | None = None
    """float [B]: the critic's value of what would have followed the last turn; 0 where nothing would. None: no
    critic."""

    @cached_property
    def mask_BR(self) -> torch.Tensor:
        """bool [B, R]: sampled tokens, the only ones that are trained."""
        return self.turn_BR >= 0

    @cached_property
    def turns_B(self) -> torch.Tensor:
        """int64 [B]: number of turns."""
        return self.turn_BR.amax(dim=1) + 1

    @cached_property
    def turn_mask_BT(self) -> torch.Tensor:
        """bool [B, T]: turns that there were."""
        return torch.arange(int(self.turns_B.max()), device=self.turn_BR.device) < self.turns_B[:, None]

    @cached_property
    def rewards_BT(self) -> torch.Tensor:
        """float [B, T]: what each turn earned; 0 behind the last."""
        batch_size, turns = self.turn_mask_BT.shape
        slots = self.rewards_BR.new_zeros(batch_size, turns + 1)  # slot 0 takes what was not sampled
        for rows in _row_blocks(batch_size):
            slots[rows].scatter_add_(1, self.turn_BR[rows] + 1, self.rewards_BR[rows])
        return slots[:, 1:]

    @cached_property
    def return_B(self) -> torch.Tensor:
        """float [B]: what each trajectory earned in all, undiscounted.

        Summed in double: the same rewards on other tokens give the same return, to the last bit. A difference by
        rounding, divided by a standard deviation of rounding, would be an advantage.
        """
        row, column = self.rewards_BR.nonzero(as_tuple=True)
        sums = torch.zeros(len(self.rewards_BR), dtype=torch.float64, device=self.rewards_BR.device)
        return sums.index_add_(0, row, self.rewards_BR[row, column].double()).to(self.rewards_BR.dtype)

    def to_tokens(self, per_turn_BT: torch.Tensor) -> torch.Tensor:
        """float [B, R]: a number of each turn on all of its tokens; 0 elsewhere."""
        slots = torch.nn.functional.pad(per_turn_BT, (1, 0))  # slot 0 gives 0 to what was not sampled
        tokens_BR = per_turn_BT.new_empty(self.turn_BR.shape)
        for rows in _row_blocks(len(slots)):
            torch.gather(slots[rows], 1, self.turn_BR[rows] + 1, out=tokens_BR[rows])
        return tokens_BR


class Advantages(NamedTuple):
    """What an estimator gives; both are 0 on every token that was not sampled."""

    advantages_BR: torch.Tensor
    """float [B, R]."""
    returns_BR: torch.Tensor
    """float [B, R]: what a critic learns; an estimator without one repeats its advantages."""


class Estimator(Protocol):
    """An advantage estimator: a frozen dataclass of its settings that is called with a batch.

    Settings called `gamma`, `lam` and `normalise` are verl's `algorithm.gamma`, `algorithm.lam` and
    `algorithm.norm_adv_by_std_in_grpo`; all others stand in `algorithm.advantage`.
    """

    needs_states: ClassVar[bool]
    """Reads `state_keys`."""
    needs_values: ClassVar[bool]
    """Reads `values_BR` and `bootstrap_B`."""

    def __call__(self, batch: TrajectoryBatch) -> Advantages: ...


def per_trajectory(batch: TrajectoryBatch, advantage_B: torch.Tensor) -> Advantages:
    """One advantage a trajectory, on all of its sampled tokens."""
    advantages_BR = torch.where(batch.mask_BR, advantage_B[:, None], 0.0)
    return Advantages(advantages_BR, advantages_BR)


def per_turn(batch: TrajectoryBatch, advantage_BT: torch.Tensor) -> Advantages:
    """One advantage a turn, on all of its tokens."""
    advantages_BR = batch.to_tokens(advantage_BT)
    return Advantages(advantages_BR, advantages_BR)


def _row_blocks(rows: int, size: int = 64) -> Iterator[slice]:
    """All rows, a block at a time: memory for a temporary of [B, R] costs more than what is calculated in it."""
    return (slice(start, start + size) for start in range(0, rows, size))
