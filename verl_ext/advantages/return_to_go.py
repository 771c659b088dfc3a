"""What a trajectory still earned from each of its turns on.

Invariant: a turn's return-to-go holds nothing that was earned before it, and nothing behind the last turn.
"""

from __future__ import annotations

import torch


def return_to_go(rewards_BT: torch.Tensor, gamma: float) -> torch.Tensor:
    """G_t = r_t + γ G_{t+1}; discounted by turns, never by tokens.

    Args:
        rewards_BT: float [B, T]: what each turn earned; 0 behind the last.
        gamma: in [0, 1].

    Returns:
        float [B, T]: 0 behind the last turn.
    """
    to_go_BT = torch.empty_like(rewards_BT)
    following_B = torch.zeros_like(rewards_BT[:, 0])
    for turn in reversed(range(rewards_BT.shape[1])):
        following_B = rewards_BT[:, turn] + gamma * following_B
        to_go_BT[:, turn] = following_B
    return to_go_BT
