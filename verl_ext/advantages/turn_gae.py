"""Bi-level GAE: first over turns, as the environment's clock has them, then over the tokens inside each turn.

With one discount for both, a reward three turns away is discounted by every token in between: long answers would hide
the future. Here time passes between turns alone. Invariant: the tokens of a turn share out exactly the turn's advantage
and what the critic says of the tokens; nothing passes from turn to turn but the turns' own advantages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from verl_ext.advantages.batch import Advantages, TrajectoryBatch
from verl_ext.advantages.fractions import require_fractions
from verl_ext.advantages.gae import Critic, actor_and_critic, critic_of
from verl_ext.advantages.recurrence import SampledTokens, backward_sum


@dataclass(frozen=True)
class TurnGae:
    """Turns: A_k = δ_k + γ λ A_{k+1}, δ_k = r_k + γ V_{k+1} - V_k; V_k is the value before the first token of turn k.

    Tokens n of turn k: a_n = r_n + V_{n+1} - V_n + token_lam · a_{n+1}, without discount; behind the turn's last token
    V is γ (V_{k+1} + λ A_{k+1}), the turn's λ-return, and a is 0. Behind the last turn as in `TrajectoryGae`, and so
    are whitening and returns.

    With `token_lam=1` the first token of each turn gets A_k. With one token a turn, and with one turn, this is
    `TrajectoryGae` (one turn: with `token_lam` for its λ and no discount). Bias as there.

    Source: Wang et al. 2025, VAGEN, Bi-Level GAE, https://arxiv.org/abs/2510.16907, without its discount of tokens, and
    with the value of a turn taken where the turn begins, which is when the environment's state is known.

    Raises:
        ConfigurationError: gamma, lam or token_lam outside [0, 1].
        DataError: the batch has no values.
    """

    gamma: float = 1.0
    """Discount a turn, in [0, 1]."""
    lam: float = 1.0
    """λ a turn, in [0, 1]."""
    token_lam: float = 1.0
    """λ a token inside its turn, in [0, 1]."""

    needs_states: ClassVar[bool] = False
    needs_values: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_fractions(gamma=self.gamma, lam=self.lam, token_lam=self.token_lam)

    def __call__(self, batch: TrajectoryBatch) -> Advantages:
        critic, tokens = critic_of(batch), SampledTokens(batch.mask_BR)
        value_N, ends_N = tokens.select(critic.values_BR), last_of_turn(batch, tokens)
        next_N = value_N.roll(-1)
        next_N[ends_N] = self._lambda_returns(batch, critic, value_N[ends_N.roll(1)])
        delta_N = tokens.select(batch.rewards_BR).add_(next_N).sub_(value_N)
        factor_N = torch.where(ends_N, 0.0, self.token_lam).to(delta_N.dtype)
        return actor_and_critic(tokens, tokens.backward_sum(delta_N, factor_N), value_N)

    def _lambda_returns(self, batch: TrajectoryBatch, critic: Critic, first_M: torch.Tensor) -> torch.Tensor:
        """float [M]: γ (V_{k+1} + λ A_{k+1}), what follows each of the M turns of all trajectories, row by row.

        Args:
            first_M: float [M]: V_k.
        """
        there_BT = batch.turn_mask_BT
        value_BT = first_M.new_zeros(there_BT.shape).masked_scatter_(there_BT, first_M)
        next_BT = torch.nn.functional.pad(value_BT[:, 1:], (0, 1))
        next_BT.scatter_(1, batch.turns_B[:, None] - 1, critic.bootstrap_B[:, None])
        delta_BT = batch.rewards_BT + self.gamma * next_BT - value_BT
        advantage_BT = backward_sum(delta_BT.T.contiguous(), delta_BT.new_tensor(self.gamma * self.lam)).T
        following_BT = torch.nn.functional.pad(advantage_BT[:, 1:], (0, 1))
        return (self.gamma * (next_BT + self.lam * following_BT))[there_BT]


def last_of_turn(batch: TrajectoryBatch, tokens: SampledTokens) -> torch.Tensor:
    """bool [N]: sampled tokens that are the last of their turn."""
    turn_N = tokens.select(batch.turn_BR)
    ends_N = turn_N != turn_N.roll(-1)
    ends_N[tokens.last_B] = True  # the next trajectory may begin with the turn number that this one ended with
    return ends_N
