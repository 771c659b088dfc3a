"""Rewards that the environment's own verdict decides."""

from __future__ import annotations

from agentgym_rl.trajectory import Trajectory


def outcome(trajectory: Trajectory) -> list[float]:
    """1 on the last turn of a solved task, 0 everywhere else."""
    scores_T = [0.0] * len(trajectory.turns)
    if trajectory.success and scores_T:
        scores_T[-1] = 1.0
    return scores_T


def environment_reward(trajectory: Trajectory) -> list[float]:
    """What the environment itself gave at each step."""
    return [turn.reward for turn in trajectory.turns]
