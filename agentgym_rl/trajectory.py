"""What happened, in order, as plain data: turns, why it stopped, and the failure if there was one.

A turn is one reply of the policy with what the environment made of it. Token ids and log-probs belong to the policy
that sampled them (`Reply.tokens`), so a trajectory of a text-only policy has none.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from agentgym_rl.errors import BoundaryError
from agentgym_rl.messages import Message
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task


class StopReason(Enum):
    """Why an episode stopped."""

    TERMINATED = "terminated"  # the task came to its own end
    TRUNCATED = "truncated"  # the environment's own limit
    MAX_TURNS = "max_turns"  # the episode's limit of turns
    TOKEN_BUDGET = "token_budget"  # no token left for another turn
    TURN_DEADLINE = "turn_deadline"  # a turn's limit of seconds
    EPISODE_DEADLINE = "episode_deadline"  # the episode's limit of seconds
    FAILED = "failed"  # an environment, tool or policy failed; see `failure`


@dataclass(frozen=True)
class Failure:
    """Whose call failed, how, and the traceback behind it."""

    cause: str
    message: str
    traceback: str = ""

    @classmethod
    def from_error(cls, error: BoundaryError) -> Failure:
        return cls(error.cause_name, str(error), "".join(traceback.format_exception(error)))


@dataclass(frozen=True, slots=True)
class Turn:
    """One reply and its consequence."""

    reply: Reply
    observation: tuple[Message, ...]
    reward: float
    valid: bool = True
    policy_seconds: float = 0.0
    environment_seconds: float = 0.0
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trajectory:
    """One episode of one task. `turns` is empty when it failed before the first reply."""

    task: Task
    opening: tuple[Message, ...]
    turns: tuple[Turn, ...]
    stop: StopReason
    success: bool | None = None
    failure: Failure | None = None
    fingerprint: str = ""
    """Of what was observed before the first turn: equal within a group."""

    @property
    def failed(self) -> bool:
        return self.stop is StopReason.FAILED

    @property
    def environment_return(self) -> float:
        """Sum of the environment's rewards, undiscounted."""
        return sum(turn.reward for turn in self.turns)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation, ending with the last reply and what followed it."""
        spoken = list(self.opening)
        for turn in self.turns:
            spoken.append(turn.reply.message)
            spoken.extend(turn.observation)
        return tuple(spoken)
