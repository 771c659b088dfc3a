"""What an environment says about its own words: which parts of an observation may read otherwise, and what they mean.

An environment's class declares it as `rephrasing`. Both functions know the text alone, so that a changed observation
can be held to the declaration without the environment that gave the first one: it must mean the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Rephrasing:
    """Of one kind of environment."""

    vary: Callable[[str, random.Random], str]
    """An observation in other words or another order; the same text where nothing may vary. A function of its
    arguments."""
    meaning: Callable[[str], Hashable]
    """What an observation says, equal for texts that say the same. Raises ValueError for what the environment never
    says."""


def shuffled(items: Sequence[T], chance: random.Random) -> list[T]:
    """The same items in a random order."""
    return chance.sample(items, len(items))
