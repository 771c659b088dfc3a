"""What may be said to a Gymnasium environment: every action of a finite space has a name, a text space takes text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from agentgym_rl.environments.turn_limited import last_line
from agentgym_rl.errors import ConfigurationError

MOST_ACTIONS = 512
"""Of a space whose actions are listed."""


class Named(NamedTuple):
    """An action and how it is said."""

    name: str
    action: Any


class FiniteActions:
    """Discrete and MultiDiscrete spaces. A reply's last line names the action, in any case.

    Args:
        space: of the environment.
        names: of its actions in order; None: their numbers ("2"; "0 1" for a MultiDiscrete space, whose first number
            changes slowest).

    Raises:
        ConfigurationError: more than `MOST_ACTIONS` actions, or not one name of its own for each.
    """

    def __init__(self, space: Any, names: Sequence[str] | None):
        actions = _listed(space)
        self.names = tuple(names or (named.name for named in actions))
        self._actions = {last_line(name): named.action for name, named in zip(self.names, actions, strict=False)}
        if len(self.names) != len(actions) or len(self._actions) != len(actions) or "" in self._actions:
            raise ConfigurationError(
                f"{space} has {len(actions)} actions, and each needs a name of its own; given: {', '.join(self.names)}"
            )
        self.told = f"Actions: {', '.join(self.names)}."

    def understood(self, text: str) -> Any:
        """The action; None if the text names none."""
        return self._actions.get(last_line(text))


class TextActions:
    """Text spaces: the whole reply, without the white space around it, is the action."""

    def __init__(self, space: Any):
        self._space = space
        characters = "".join(sorted(space.character_set))
        self.told = f"Answer with {space.min_length} to {space.max_length} characters out of: {characters}"

    def understood(self, text: str) -> str | None:
        action = text.strip()
        return action if self._space.contains(action) else None


def require_names(given: Any) -> Sequence[str] | None:
    """The task's argument `actions`."""
    if given is not None and not (isinstance(given, (list, tuple)) and all(isinstance(name, str) for name in given)):
        raise ConfigurationError(f"the argument 'actions' must be a list of names; given: {given!r}")
    return given


def _listed(space: Any) -> list[Named]:
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        size, first = int(space.n), int(space.start)
        actions: Iterable[Named] = (Named(str(number), number) for number in range(first, first + size))
    elif isinstance(space, spaces.MultiDiscrete):
        size, actions = math.prod(space.nvec.flat), _combinations(space)
    else:
        raise ConfigurationError(
            f"the action space {space} can't be said in words; allowed: Discrete, MultiDiscrete, and Text in the "
            "environment 'gymnasium-text'"
        )
    if size > MOST_ACTIONS:
        raise ConfigurationError(f"{space} has {size} actions; at most {MOST_ACTIONS} can be listed")
    return list(actions)


def _combinations(space: Any) -> Iterable[Named]:
    import numpy as np

    starts = space.start.ravel()
    ranges = [range(start, start + size) for start, size in zip(starts, space.nvec.ravel(), strict=True)]
    for numbers in itertools.product(*ranges):
        action = np.array(numbers, dtype=space.dtype).reshape(space.nvec.shape)
        yield Named(" ".join(str(int(number)) for number in numbers), action)
