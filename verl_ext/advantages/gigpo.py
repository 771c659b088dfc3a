"""GiGPO: a group of whole trajectories, and inside it groups of turns that began in the same state.

The environment says which turns those are (`state_keys`), so no model of values is needed to credit single turns.
Invariant: an episode counts once in its group's mean, however many turns it has, and a turn is compared with turns of
its own task alone. Leaves out states that are merely similar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from agentgym_rl.errors import DataError
from verl_ext.advantages.batch import Advantages, TrajectoryBatch, per_turn
from verl_ext.advantages.fractions import require_fractions
from verl_ext.advantages.groups import group_mean, group_std
from verl_ext.advantages.grpo import EPSILON
from verl_ext.advantages.return_to_go import return_to_go


@dataclass(frozen=True)
class GiGpo:
    """A_{i,t} = A^E_i + step_weight · A^S_{i,t} on every token of turn t.

    A^E is GRPO's: return minus the group's mean over episodes. A^S is the discounted return-to-go minus its mean over
    the turns of the group with the same state; 0 for a state that was met once. With `normalise` each is divided by
    its own group's standard deviation + 1e-6. With `step_weight=0` this is `TrajectoryGrpo`.

    Bias: a state's mean holds the turn itself and every later visit of the same episode, and how often an episode
    visits a state is its own decision; a turn whose state nobody else met learns from A^E alone. So the gradient is not
    that of the expected return, also without `normalise`.

    Raises:
        ConfigurationError: gamma outside [0, 1].
        DataError: the batch has no state keys, or not one a turn.

    Source: Feng et al. 2025, section 4, https://arxiv.org/abs/2505.10978
    """

    gamma: float = 1.0
    """Discount a turn of A^S, in [0, 1]."""
    step_weight: float = 1.0
    """ω of the paper."""
    normalise: bool = True
    """Divide by standard deviations; False: the paper's F_norm = 1."""

    needs_states: ClassVar[bool] = True
    needs_values: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_fractions(gamma=self.gamma)

    def __call__(self, batch: TrajectoryBatch) -> Advantages:
        advantage_BT = self._relative(batch.return_B, batch.group_B)[:, None].expand_as(batch.turn_mask_BT).clone()
        to_go_N = return_to_go(batch.rewards_BT, self.gamma)[batch.turn_mask_BT]
        advantage_BT[batch.turn_mask_BT] += self.step_weight * self._relative(to_go_N, state_groups(batch))
        return per_turn(batch, advantage_BT)

    def _relative(self, values: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
        centred = values - group_mean(values, group)
        return centred / (group_std(values, group) + EPSILON) if self.normalise else centred


def state_groups(batch: TrajectoryBatch) -> torch.Tensor:
    """int64 [N]: equal for turns of one group that began in the same state; N turns of all trajectories, row by row.

    Raises:
        DataError: the batch has no state keys, or not one a turn.
    """
    turns_B = batch.turns_B.tolist()
    if batch.state_keys is None or [len(keys) for keys in batch.state_keys] != turns_B:
        given = "none" if batch.state_keys is None else [len(keys) for keys in batch.state_keys]
        raise DataError(f"gigpo compares turns by their state and needs one key a turn: {turns_B}; given: {given}")
    number: dict[tuple[int, str], int] = {}
    groups_N = [
        number.setdefault((group, key), len(number))
        for group, keys in zip(batch.group_B.tolist(), batch.state_keys, strict=True)
        for key in keys
    ]
    return torch.tensor(groups_N, device=batch.group_B.device)
