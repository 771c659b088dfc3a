"""Penalties for replies that the environment could not understand: by their share, or by their number."""

from __future__ import annotations

from agentgym_rl.trajectory import Trajectory


def format_penalty(trajectory: Trajectory) -> list[float]:
    """-1/T for each invalid turn of T, so that the total lies in [-1, 0] whatever the episode's length."""
    return [0.0 if turn.valid else -1.0 / len(trajectory.turns) for turn in trajectory.turns]


def invalid_action(trajectory: Trajectory) -> list[float]:
    """-1 for each invalid turn, so that one costs the same in a long episode: for estimators that look at turns."""
    return [0.0 if turn.valid else -1.0 for turn in trajectory.turns]
