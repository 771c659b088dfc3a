"""verl's rollout row with a reward for every turn: each is put on its turn's last sampled token.

The sum over the response is exactly the trajectory's reward. verl's own row has room for one score, on the last token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput


class TurnRewardOutput(AgentLoopOutput):
    """`rewards_T[t]` belongs to turn t, whose last sampled token is `response_ids[turn_ends_T[t]]`."""

    rewards_T: list[float]
    turn_ends_T: list[int]

    def as_dict(self) -> dict[str, Any]:
        row = super().as_dict()
        rewards_T, turn_ends_T = row.pop("rewards_T"), row.pop("turn_ends_T")
        row["rm_scores"] = token_scores(rewards_T, turn_ends_T, len(self.response_ids))
        return row


def token_scores(rewards_T: Sequence[float], turn_ends_T: Sequence[int], length: int) -> torch.Tensor:
    """Per-turn rewards [T] -> token-level scores [R], 0 except on the last token of each turn."""
    scores_R = torch.zeros(length, dtype=torch.float32)
    for reward, end in zip(rewards_T, turn_ends_T, strict=True):
        scores_R[end] = reward
    return scores_R
