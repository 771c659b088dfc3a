"""A penalty for replies that the environment could not understand."""

from __future__ import annotations

from agentgym_rl.trajectory import Trajectory


def format_penalty(trajectory: Trajectory) -> list[float]:
    """-1/T for each invalid turn of T, so that the total lies in [-1, 0] whatever the episode's length."""
    return [0.0 if turn.valid else -1.0 / len(trajectory.turns) for turn in trajectory.turns]
