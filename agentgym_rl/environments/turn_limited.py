"""What environments that read one line of text a turn have in common: counting turns, and the ends of an episode.

A subclass says how an episode begins and what a line of text does; every turn counts, whether it was understood or
not, and the last one of `max_turns` is answered as truncated unless the task came to its own end in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentgym_rl.environment import BlockingEnvironment, StepResult
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed
from agentgym_rl.messages import Message, user
from agentgym_rl.task import Task


class TurnLimited(BlockingEnvironment):
    """An environment whose episodes end after the task's argument `max_turns`, or else `facts.max_turns`, turns."""

    turns_left: int | None = None
    """None: not reset yet; 0: over."""

    def begin(self, task: Task) -> str:
        """Set the task up and return the first observation.

        Raises:
            ConfigurationError: the task's arguments can't work.
        """
        raise NotImplementedError

    def act(self, text: str) -> StepResult:
        """Carry a reply out; its limit of turns is not this method's concern."""
        raise NotImplementedError

    def reset(self, task: Task) -> Sequence[Message]:
        self.turns_left = None
        max_turns = whole_number(task.arguments, "max_turns", self.facts.max_turns)
        observation = self.begin(task)
        self.turns_left = max_turns
        return [user(observation)]

    def step(self, action: Message) -> StepResult:
        turns_left = self.require_open("was stepped")
        result = self.act(action.content)
        if not result.terminated and (result.truncated or turns_left == 1):
            result = replace(result, truncated=True, success=False)
        self.turns_left = 0 if result.terminated or result.truncated else turns_left - 1
        return result

    def require_open(self, what: str) -> int:
        """The turns that are left.

        Raises:
            EnvironmentFailed: before reset, or after the end.
        """
        if not self.turns_left:
            when = "before reset" if self.turns_left is None else "after the end of its episode"
            raise EnvironmentFailed(f"{type(self).__name__} {what} {when}")
        return self.turns_left


def last_line(text: str) -> str:
    """The action in a reply: its last line, in lower case, without a leading "Action:" and a final dot."""
    lines = text.strip().lower().splitlines() or [""]
    return " ".join(lines[-1].strip().removeprefix("action:").strip(" .").split())


def whole_number(arguments: Mapping[str, Any], name: str, default: int, least: int = 1, most: int | None = None) -> int:
    """A task's argument that counts something.

    Raises:
        ConfigurationError: it is no whole number, below `least` or above `most`.
    """
    given = arguments.get(name, default)
    in_range = isinstance(given, int) and given >= least and (most is None or given <= most)
    if not in_range or isinstance(given, bool):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ConfigurationError(f"the argument {name!r} must be a whole number {limits}; given: {given!r}")
    return given
