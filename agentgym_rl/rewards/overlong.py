"""A penalty for trajectories that come close to their budget of tokens, before a limit cuts them off.

Source: Yu et al. 2025, DAPO (arXiv 2503.14476), equation 13, "soft overlong punishment".
"""

from __future__ import annotations

from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.trajectory import Trajectory


def overlong(trajectory: Trajectory, budget: int, buffer: int) -> list[float]:
    """0 up to `budget - buffer` sampled tokens n, from there linear to -1 at `budget`; on the last turn.

    clip((budget - buffer - n) / buffer, -1, 0)

    Args:
        trajectory: of a policy that says which tokens it sampled.
        budget: sampled tokens of a trajectory, all turns together, from which on the whole penalty is due; summaries
            of its history don't count.
        buffer: tokens below the budget over which the penalty grows, from 1 to `budget`.

    Raises:
        ConfigurationError: a buffer that is empty or larger than the budget.
        DataError: a reply without token ids.
    """
    if not 1 <= buffer <= budget:
        raise ConfigurationError(
            f"the buffer of reward 'overlong' must be from 1 to its budget; given: buffer {buffer}, budget {budget}"
        )
    scores_T = [0.0] * len(trajectory.turns)
    if scores_T:
        scores_T[-1] = max(-1.0, min(0.0, (budget - buffer - _sampled(trajectory)) / buffer))
    return scores_T


def _sampled(trajectory: Trajectory) -> int:
    """Sampled tokens of all turns."""
    sampled = 0
    for number, turn in enumerate(trajectory.turns):
        if turn.reply.tokens is None:
            raise DataError(
                f"reward 'overlong' counts sampled tokens, and turn {number} of task {trajectory.task.id!r} has none: "
                "its policy answers in text only"
            )
        sampled += len(turn.reply.tokens.ids)
    return sampled
