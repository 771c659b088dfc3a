"""What the collapse watch measures of a step's sessions. A session is counted once, however many rows it has."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_ROUNDING = 1e-6
"""Rewards of a group that differ by less are equal: they are sums."""


class Session(NamedTuple):
    """What the watch needs to know of one session."""

    group: str
    reward: float
    turns: int
    said: str
    """Fingerprint of all its replies, in order."""


def flat_groups(sessions: Sequence[Session]) -> float:
    """Share of groups whose sessions all earned the same, groups of one among them."""
    rewards: dict[str, list[float]] = defaultdict(list)
    for session in sessions:
        rewards[session.group].append(session.reward)
    return sum(max(group) - min(group) <= _ROUNDING for group in rewards.values()) / len(rewards)


def repeated(sessions: Sequence[Session]) -> float:
    """Share of sessions whose replies are all those of a sibling."""
    alike = Counter((session.group, session.said) for session in sessions)
    return sum(count for count in alike.values() if count > 1) / len(sessions)


def watched(keys: Sequence[str], facts: Sequence[Mapping[str, Any] | None]) -> list[Session]:
    """The sessions that rows belong to.

    Args:
        keys: `{group}_{session}_{segment}` of each row, without padding.
        facts: `episode_facts` on the last row of each session, None on the others.
    """
    return [
        Session(key.rsplit("_", 2)[0], math.fsum(fact["reward_parts"].values()), fact["turns"], fact["said"])
        for key, fact in zip(keys, facts, strict=True)
        if fact
    ]
