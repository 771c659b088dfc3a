"""Generalised advantage estimation for PPO with a critic: token by token, over sampled tokens alone.

What the environment wrote is no action: the value that follows the last token of a turn is that of the next turn's
first token. Invariant: a trajectory is one sequence, however many segments it has; one that terminated is followed by
nothing, one that was cut off by the critic's value of what would have come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from agentgym_rl.errors import DataError
from verl_ext.advantages.batch import Advantages, TrajectoryBatch
from verl_ext.advantages.fractions import require_fractions
from verl_ext.advantages.recurrence import SampledTokens
from verl_ext.advantages.reinforce_pp import EPSILON


@dataclass(frozen=True)
class TrajectoryGae:
    """A_n = δ_n + γ λ A_{n+1}, δ_n = r_n + γ V_{n+1} - V_n, over the sampled tokens n of a trajectory.

    Behind the last token V is `bootstrap_B` where the trajectory was cut off, 0 where it terminated, and A is 0.
    Advantages are whitened over all sampled tokens, as verl's; returns are A + V before that. One turn that
    terminated: equal to verl's `compute_gae_advantage_return`, except that tokens that were not sampled get 0.

    Bias: with λ < 1 as far as the critic is wrong; with λ = 1 only where it stands for what was cut off, for any
    critic. γ < 1 counts near tokens more than the return does. Whitening by the batch adds an error of order 1 / B.

    Raises:
        ConfigurationError: gamma or lam outside [0, 1].
        DataError: the batch has no values.

    Source: Schulman et al. 2016, equation 16, https://arxiv.org/abs/1506.02438
    """

    gamma: float = 1.0
    """Discount a sampled token, in [0, 1]."""
    lam: float = 1.0
    """λ a sampled token, in [0, 1]."""

    needs_states: ClassVar[bool] = False
    needs_values: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_fractions(gamma=self.gamma, lam=self.lam)

    def __call__(self, batch: TrajectoryBatch) -> Advantages:
        critic, tokens = critic_of(batch), SampledTokens(batch.mask_BR)
        value_N = tokens.select(critic.values_BR)
        next_N = value_N.roll(-1)
        next_N[tokens.last_B] = critic.bootstrap_B
        delta_N = tokens.select(batch.rewards_BR).add_(next_N, alpha=self.gamma).sub_(value_N)
        advantage_N = tokens.backward_sum(delta_N, delta_N.new_tensor(self.gamma * self.lam))
        return actor_and_critic(tokens, advantage_N, value_N)


class Critic(NamedTuple):
    """What a critic said of a batch."""

    values_BR: torch.Tensor
    bootstrap_B: torch.Tensor
    """Value of what would have followed; 0 for trajectories that terminated."""


def critic_of(batch: TrajectoryBatch) -> Critic:
    """The batch's values.

    Raises:
        DataError: it has none.
    """
    if batch.values_BR is None or batch.bootstrap_B is None:
        raise DataError("GAE needs a critic's values and bootstraps; the batch has none")
    return Critic(batch.values_BR, batch.bootstrap_B.masked_fill(batch.terminated_B, 0.0))


def actor_and_critic(tokens: SampledTokens, advantage_N: torch.Tensor, value_N: torch.Tensor) -> Advantages:
    """Advantages whitened over all sampled tokens, and returns: advantage + value before that."""
    returns_BR = tokens.spread(advantage_N + value_N)
    centred_N = advantage_N - advantage_N.mean()
    variance = centred_N.square().sum() / max(len(centred_N) - 1, 1)
    return Advantages(tokens.spread(centred_N * torch.rsqrt(variance + EPSILON)), returns_BR)
