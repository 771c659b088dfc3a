"""Horizon curriculum: more turns as training goes on, so that a policy first learns what short episodes can teach.

Which limit holds follows from the training step alone, so there is nothing to save and a resumed run goes on as it was.

Source: Xi et al. 2025, AgentGym-RL (arXiv 2509.08755), section on ScalingInter-RL.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from agentgym_rl.errors import ConfigurationError


@dataclass(frozen=True)
class Horizon:
    """The most turns of an episode, by training step."""

    turns: Mapping[int, int]
    """Step from which on it holds -> most turns, e.g. {0: 4, 100: 8}; both ascend, and the first step is 0."""

    def __post_init__(self) -> None:
        steps, turns = list(self.turns), list(self.turns.values())
        if not all(type(number) is int for number in (*steps, *turns)):
            raise ConfigurationError(f"a horizon maps steps to turns, all whole numbers; given: {dict(self.turns)}")
        if not steps or steps[0] != 0:
            raise ConfigurationError(f"a horizon starts at step 0; given: {dict(self.turns)}")
        if not _ascend(steps) or not _ascend(turns) or turns[0] < 1:
            raise ConfigurationError(
                f"the steps of a horizon ascend, and so do its turns, from 1 at least; given: {dict(self.turns)}"
            )

    def max_turns(self, global_step: int) -> int:
        """The most turns of an episode that is played for this training step, from 0."""
        return max(turns for step, turns in self.turns.items() if step <= global_step)


def _ascend(numbers: list[int]) -> bool:
    return all(before < after for before, after in itertools.pairwise(numbers))
