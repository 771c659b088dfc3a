"""A task so small that everything about it can be enumerated: its trajectories, its policy gradient, every group.

Three states, two actions, at most three turns; `STOP` ends the episode, so the policy decides how long it is. Every
action earns something, and where `GO` leads is chance. Each action is one sampled token, with an observation of one
token between two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import torch

from verl_ext.advantages.batch import TrajectoryBatch

STOP, GO = 0, 1
TURNS = 3
REWARD_SA = torch.tensor([[0.7, 0.3], [-0.2, 0.9], [1.1, -0.4]], dtype=torch.float64)
NEXT_SS = torch.tensor([[0.0, 0.6, 0.4], [0.0, 0.5, 0.5], [0.0, 0.3, 0.7]], dtype=torch.float64)
"""Where GO leads from each state."""
LOGITS_SA = torch.tensor([[0.2, -0.3], [-0.5, 0.4], [0.1, 0.6]], dtype=torch.float64)
CRITIC_ST = torch.tensor([[0.9, 0.0, 0.0], [0.3, -0.8, 0.5], [0.0, 1.2, 0.2]], dtype=torch.float64)
"""Values that are wrong for every state and turn."""


@dataclass(frozen=True)
class Episode:
    states: tuple[int, ...]
    actions: tuple[int, ...]
    probability: float


def policy() -> torch.Tensor:
    return LOGITS_SA.softmax(dim=1)


def expected_return(logits_SA: torch.Tensor, state: int = 0, turn: int = 0) -> torch.Tensor:
    """Exact, and differentiable."""
    if turn == TURNS:
        return logits_SA.new_zeros(())
    probability_A = logits_SA[state].softmax(dim=0)
    later = sum(NEXT_SS[state, s] * expected_return(logits_SA, s, turn + 1) for s in range(3) if NEXT_SS[state, s])
    return probability_A @ REWARD_SA[state] + probability_A[GO] * later


def reaches(logits_SA: torch.Tensor, turns: int, state: int = 0) -> torch.Tensor:
    """Probability of at least that many turns more behind this one, differentiable."""
    if turns == 0:
        return logits_SA.new_ones(())
    later = sum(NEXT_SS[state, s] * reaches(logits_SA, turns - 1, s) for s in range(3) if NEXT_SS[state, s])
    return logits_SA[state].softmax(dim=0)[GO] * later


def gradient(of: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """[S, A]: exact derivative by the logits."""
    logits_SA = LOGITS_SA.clone().requires_grad_()
    (found_SA,) = torch.autograd.grad(of(logits_SA), logits_SA)
    return found_SA


def episodes(state: int = 0, turn: int = 0) -> Iterator[Episode]:
    """Every trajectory with its probability."""
    for action, probability in enumerate(policy()[state].tolist()):
        if action == STOP or turn == TURNS - 1:
            yield Episode((state,), (action,), probability)
            continue
        for following in range(3):
            if chance := float(NEXT_SS[state, following]):
                for rest in episodes(following, turn + 1):
                    states, actions = (state, *rest.states), (action, *rest.actions)
                    yield Episode(states, actions, probability * chance * rest.probability)


def batch_of_episodes(numbers: Sequence[int], group_B: torch.Tensor) -> TrajectoryBatch:
    """Those of `episodes()`, with their states and with the values of `CRITIC_ST`."""
    every = list(episodes())
    shape = len(every), 2 * TURNS - 1
    turn_ER, rewards_ER, values_ER = torch.full(shape, -1), torch.zeros(shape).double(), torch.zeros(shape).double()
    for e, episode in enumerate(every):
        for turn, (state, action) in enumerate(zip(episode.states, episode.actions, strict=True)):
            turn_ER[e, 2 * turn] = turn
            rewards_ER[e, 2 * turn] = REWARD_SA[state, action]
            values_ER[e, 2 * turn] = CRITIC_ST[state, turn]
    chosen = torch.tensor(numbers)
    return TrajectoryBatch(
        group_B=group_B,
        turn_BR=turn_ER[chosen],
        rewards_BR=rewards_ER[chosen],
        terminated_B=torch.ones(len(numbers), dtype=torch.bool),
        state_keys=[[str(state) for state in every[number].states] for number in numbers],
        values_BR=values_ER[chosen],
        bootstrap_B=torch.zeros(len(numbers)).double(),
    )


def expected_estimate(advantages_of: Callable[[TrajectoryBatch], torch.Tensor], size: int) -> torch.Tensor:
    """[S, A]: the expected gradient estimate of groups of `size`, over all groups that there are.

    The estimate of a group is the mean over its trajectories of Σ_t A_t ∇ log π(a_t | s_t).

    Args:
        advantages_of: batch of many groups -> [B, R]; a group must be blind to the others.
    """
    weight_C, estimate_CSA = _estimates(advantages_of, size)
    return torch.einsum("c,csa->sa", weight_C, estimate_CSA)


def variance_of_estimate(advantages_of: Callable[[TrajectoryBatch], torch.Tensor], size: int) -> float:
    """Sum over all logits of the variance of a group's estimate, exact."""
    weight_C, estimate_CSA = _estimates(advantages_of, size)
    square_C = (estimate_CSA - torch.einsum("c,csa->sa", weight_C, estimate_CSA)).square().sum(dim=(1, 2))
    return float(weight_C @ square_C)


def _estimates(
    advantages_of: Callable[[TrajectoryBatch], torch.Tensor], size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """[C] and [C, S, A]: probability of each of the C groups, and its estimate."""
    probability_E = torch.tensor([episode.probability for episode in episodes()], dtype=torch.float64)
    groups_CG = torch.tensor(list(product(range(len(probability_E)), repeat=size)))
    group_B = torch.arange(len(groups_CG)).repeat_interleave(size)
    advantage_BT = advantages_of(batch_of_episodes(groups_CG.flatten().tolist(), group_B))[:, ::2]
    estimate_BSA = torch.einsum("bt,btsa->bsa", advantage_BT, scores()[groups_CG.flatten()])
    return probability_E[groups_CG].prod(dim=1), estimate_BSA.view(*groups_CG.shape, 3, 2).mean(dim=1)


def scores() -> torch.Tensor:
    """[E, T, S, A]: ∇ log π(a_t | s_t) of each episode by the logits; 0 behind the last turn."""
    every = list(episodes())
    score_ETSA = torch.zeros(len(every), TURNS, 3, 2, dtype=torch.float64)
    for e, episode in enumerate(every):
        for turn, (state, action) in enumerate(zip(episode.states, episode.actions, strict=True)):
            score_ETSA[e, turn, state] -= policy()[state]
            score_ETSA[e, turn, state, action] += 1
    return score_ETSA


def one_group_at_a_time(
    advantages_of: Callable[[TrajectoryBatch], torch.Tensor],
) -> Callable[[TrajectoryBatch], torch.Tensor]:
    """For an estimator that compares the whole batch: each group is a batch of its own."""

    def each(batch: TrajectoryBatch) -> torch.Tensor:
        sizes = batch.group_B.unique_consecutive(return_counts=True)[1].tolist()
        parts = zip(batch.group_B.split(sizes), batch.turn_BR.split(sizes), batch.rewards_BR.split(sizes), strict=True)
        return torch.cat(
            [
                advantages_of(replace(batch, group_B=group, turn_BR=turn, rewards_BR=rewards))
                for group, turn, rewards in parts
            ]
        )

    return each
