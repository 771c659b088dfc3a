"""The rules of augmentation by name, and how many tries of each a parent gets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from agentgym_rl.data.augment_continued import mistake_places, prefix, prefix_places, recovery
from agentgym_rl.data.augment_replayed import (
    error_places,
    reorder,
    rephrase,
    rewording_places,
    swap_places,
    tool_error,
)
from agentgym_rl.data.augment_try import Changed, Place, Try
from agentgym_rl.errors import ConfigurationError, did_you_mean
from agentgym_rl.trajectory import Trajectory


class Rule(NamedTuple):
    """One way of changing a trajectory."""

    says: str
    places: Callable[[Trajectory], Sequence[Place]]
    """Where it may be applied."""
    apply: Callable[[Try], Awaitable[Changed]]
    """Raises NotKept where nothing comes of it."""
    nothing: str
    """What is said of a parent that has no such place."""
    goes_on: bool = False
    """A policy goes on; otherwise the parent's replies do."""
    draws: bool = True
    """Another try at the same place may come out another way."""
    takes_unsolved: bool = False
    """Parents that did not solve the task will do."""


RULES: Mapping[str, Rule] = {
    "recovery": Rule(
        "a mistake, which is not trained on, and the recovery",
        mistake_places,
        recovery,
        nothing="it has no turn",
        goes_on=True,
    ),
    "reorder": Rule(
        "two actions change places",
        swap_places,
        reorder,
        nothing="no two bare actions to swap",
        draws=False,
    ),
    "rephrase": Rule(
        "observations in other words",
        rewording_places,
        rephrase,
        nothing="its environment declares no rephrasing",
    ),
    "prefix": Rule(
        "the first turns as context, then another way",
        prefix_places,
        prefix,
        nothing="it has no turn before its last",
        goes_on=True,
        takes_unsolved=True,
    ),
    "tool_error": Rule(
        "an action fails once and is done again",
        error_places,
        tool_error,
        nothing="no valid action before its last",
    ),
}


def rule_counts(specs: Sequence[str]) -> dict[str, int]:
    """Read "RULE" or "RULE=TRIES" -> tries of each parent (default 1).

    Raises:
        ConfigurationError: no rule, an unknown one, one that stands twice, or a number below 1.
    """
    if not specs:
        raise ConfigurationError(f"an augmentation needs at least one rule; there are: {', '.join(RULES)}")
    counts: dict[str, int] = {}
    for spec in specs:
        name, given, count = spec.partition("=")
        if name not in RULES:
            raise ConfigurationError(f"no rule {name!r}; {did_you_mean(name, RULES)}")
        if given and not (count.isdigit() and int(count) >= 1):
            raise ConfigurationError(f"a rule is written RULE or RULE=TRIES, with at least 1 try; given: {spec!r}")
        if name in counts:
            raise ConfigurationError(f"the rule {name!r} stands twice")
        counts[name] = int(count or 1)
    return counts
