"""Rejection sampling's second half: of what was sampled, keep what is worth imitating.

Every trajectory is kept, or dropped by exactly one rule: the first that holds against it, in the order of `Rule`. Those
of one task compete, best first: by return, then by fewer turns, then by their order.

Source: Nakano et al. (2021), WebGPT, rejection sampling (best of n), https://arxiv.org/abs/2112.09332; Dong et al.
(2023), RAFT, https://arxiv.org/abs/2304.06767
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from agentgym_rl.data.sft_parquet import can_be_imitated
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.trajectory import Trajectory


class Rule(Enum):
    """Why a trajectory is dropped."""

    FAILED = "failed"  # something broke while it was played: it says nothing about the policy
    NO_REPLY = "no valid reply"  # it holds nothing to learn from
    NOT_SOLVED = "not solved"
    LOW_RETURN = "return too low"
    REPEATED = "same actions"  # a better or earlier one of its task says the same
    NOT_AMONG_BEST = "not among the best"


@dataclass(frozen=True)
class Rules:
    """What is kept. Failed trajectories never are."""

    top: int | None = None
    """At most so many of a task, the best ones; None: all."""
    min_return: float | None = None
    """Lowest sum of the environment's rewards; None: any."""
    only_success: bool = False
    """Only solved ones; an unknown outcome is none."""
    distinct: bool = False
    """Of those with the same actions in the same task, one."""

    def __post_init__(self) -> None:
        if self.top is not None and self.top < 1:
            raise ConfigurationError(f"top must be at least 1; given: {self.top}")
        if self.min_return is not None and math.isnan(self.min_return):
            raise ConfigurationError("min_return must be a number; given: nan")


class Selection(NamedTuple):
    """What was kept, in the order in which it was given, and how many each rule dropped."""

    kept: list[Trajectory]
    dropped: Mapping[Rule, int]


def select(trajectories: Sequence[Trajectory], rules: Rules) -> Selection:
    """Apply the rules; tasks are told apart by environment and id."""
    reasons = [_unfit(trajectory, rules) for trajectory in trajectories]
    for indices in _by_task(trajectories, reasons):
        ranked = sorted(indices, key=lambda index: _rank(trajectories[index]))  # stable: ties keep their order
        for index, reason in _compete([trajectories[index] for index in ranked], rules):
            reasons[ranked[index]] = reason
    kept = [trajectory for trajectory, reason in zip(trajectories, reasons, strict=True) if reason is None]
    return Selection(kept, Counter(reason for reason in reasons if reason is not None))


def _unfit(trajectory: Trajectory, rules: Rules) -> Rule | None:
    """The rule that holds against a trajectory whatever the others of its task are."""
    if trajectory.failed:
        return Rule.FAILED
    if not can_be_imitated(trajectory):
        return Rule.NO_REPLY
    if rules.only_success and trajectory.success is not True:
        return Rule.NOT_SOLVED
    if rules.min_return is not None and trajectory.environment_return < rules.min_return:
        return Rule.LOW_RETURN
    return None


def _by_task(trajectories: Sequence[Trajectory], reasons: Sequence[Rule | None]) -> Iterator[list[int]]:
    """For each task, the indices of those against which no rule holds yet."""
    indices: dict[tuple[str, str], list[int]] = {}
    for index, (trajectory, reason) in enumerate(zip(trajectories, reasons, strict=True)):
        if reason is None:
            indices.setdefault((trajectory.task.environment, trajectory.task.id), []).append(index)
    yield from indices.values()


def _rank(trajectory: Trajectory) -> tuple[float, int]:
    return -trajectory.environment_return, len(trajectory.turns)


def _compete(ranked: Sequence[Trajectory], rules: Rules) -> Iterator[tuple[int, Rule | None]]:
    """(index, rule against it) of one task's trajectories, best first."""
    seen: set[Hashable] = set()
    kept = 0
    for index, trajectory in enumerate(ranked):
        actions = _actions(trajectory)
        if rules.distinct and actions in seen:
            yield index, Rule.REPEATED
        elif rules.top is not None and kept == rules.top:
            yield index, Rule.NOT_AMONG_BEST
        else:
            yield index, None
            kept += 1
        seen.add(actions)


def _actions(trajectory: Trajectory) -> Hashable:
    """What the policy said. Tool calls hold mappings, so they are compared by their text."""
    return tuple((turn.reply.message.content, repr(turn.reply.message.tool_calls)) for turn in trajectory.turns)
