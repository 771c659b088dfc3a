"""One try at changing a trajectory: what it has to work with, what came of it, and how it says that nothing did.

Invariant: whatever a try makes was played in the environment, from the task's start, by `play()`. Turns before the
change are the parent's own, with their sampled tokens; a reply that stands in another conversation than the one that it
was sampled in has none, for nobody sampled it there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from agentgym_rl.beginning import Beginning
from agentgym_rl.data.sft_parquet import TRAINED
from agentgym_rl.environment import Environment
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import BudgetExhausted
from agentgym_rl.messages import Message
from agentgym_rl.policy import Policy, Reply
from agentgym_rl.trajectory import StopReason, Trajectory, Turn

Place = tuple[int, ...]
"""Where a rule may be applied; what the numbers mean is the rule's own."""


class NotKept(Exception):
    """A try came to nothing; the message is the reason that is counted."""


@dataclass(frozen=True)
class Perturbation:
    """What was changed in a parent."""

    rule: str
    turn: int
    """The first turn whose reply or observation may not be the parent's, from 0."""
    what: Mapping[str, Any]
    """The change itself (JSON values)."""

    def to_json(self) -> str:
        return json.dumps({"rule": self.rule, "turn": self.turn, **self.what}, ensure_ascii=False)


class Changed(NamedTuple):
    """A new trajectory, and what makes it differ from its parent."""

    trajectory: Trajectory
    perturbation: Perturbation


@dataclass(frozen=True)
class Try:
    """What a rule may use."""

    parent: Trajectory
    place: Place
    environment: Environment
    limits: Limits
    make_policy: Callable[[], Policy]
    """The policy that goes on, for this episode."""
    expert_goes_on: bool
    """That policy is the environment's expert."""
    donors: Sequence[Message]
    """Actions of other trajectories in this environment."""
    chance: random.Random

    async def go_on(self, turn: int, policy: Policy, environment: Environment | None = None) -> Trajectory:
        """Play the parent's turns before `turn` again, and then what the policy says.

        Raises:
            NotKept: something failed.
        """
        beginning = Beginning.of(self.parent, turn)
        environment = environment or self.environment
        played = await play(policy, environment, self.parent.task, self.limits, beginning=beginning)
        return without_failure(played)


class Script:
    """A policy that gives these replies in order; out of budget after the last."""

    def __init__(self, replies: Iterable[Reply]):
        self._replies = iter(replies)

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        for reply in self._replies:
            return reply
        raise BudgetExhausted("the script has no reply left")


def without_failure(trajectory: Trajectory) -> Trajectory:
    """The trajectory itself.

    Raises:
        NotKept: it failed.
    """
    if trajectory.failure:
        raise NotKept(trajectory.failure.cause)
    return trajectory


def ended(trajectory: Trajectory) -> bool:
    """Whether its last turn brought the episode to an end in the environment."""
    return trajectory.stop in (StopReason.TERMINATED, StopReason.TRUNCATED)


def turns_that_went_on(trajectory: Trajectory) -> tuple[Turn, ...]:
    """Those after which the environment waited for another action."""
    return trajectory.turns[:-1] if ended(trajectory) else trajectory.turns


def with_own_ids(message: Message, mark: str) -> Message:
    """The same message, with calls that can be told from those of the original."""
    calls = tuple(replace(call, id=f"{call.id}-{mark}") if call.id else call for call in message.tool_calls)
    return replace(message, tool_calls=calls)


def unsampled(turns: Iterable[Turn]) -> list[Reply]:
    """The replies of these turns, to be given in another conversation."""
    return [replace(turn.reply, tokens=None) for turn in turns]


def context_only(trajectory: Trajectory, turns: Iterable[int]) -> Trajectory:
    """The trajectory, with replies that are not to be imitated."""
    marked = set(turns)
    changed = (
        replace(turn, info={**turn.info, TRAINED: False}) if number in marked else turn
        for number, turn in enumerate(trajectory.turns)
    )
    return replace(trajectory, turns=tuple(changed))


def with_flags_of(trajectory: Trajectory, turns: Sequence[Turn]) -> Trajectory:
    """The trajectory, whose replies are those of `turns`, with what these say about being imitated."""
    return context_only(trajectory, (number for number, turn in enumerate(turns) if turn.info.get(TRAINED) is False))
