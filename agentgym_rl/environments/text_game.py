"""What text games with an engine of their own share: commands, rises of the score as rewards, a known solution.

A reply that holds no command leaves the world as it is and counts as a turn. The expert follows the game's own
solution, which the engine makes when the expert is first asked, and knows no way from where something else was done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentgym_rl.environment import StepResult
from agentgym_rl.environments.replayed import Replayed
from agentgym_rl.environments.turn_limited import last_line
from agentgym_rl.errors import EnvironmentFailed
from agentgym_rl.task import Task

COMMAND_CHARACTERS = 200
"""A longer line is no command."""


class Outcome(NamedTuple):
    """What became of a command."""

    observation: str
    score: float
    """Of the whole episode so far."""
    solved: bool = False
    failed: bool = False
    """The task came to its end unsolved."""
    understood: bool = True


class TextGame(Replayed):
    """Subclasses are the game itself: the methods from `set_up` to `help`."""

    _ahead: list[str] | None = None
    """What is left of the solution; None: nobody has asked for it."""

    def set_up(self, task: Task, with_solution: bool) -> str:
        """Make the task's world and return the first observation; `with_solution`: `solution` will be asked for.

        Raises:
            ConfigurationError: the task's arguments can't work.
        """
        raise NotImplementedError

    def solution(self) -> Sequence[str]:
        """The commands that solve the task from its start."""
        raise NotImplementedError

    def understand(self, line: str) -> str | None:
        """The command in a line of small letters; None: there is none, and the world is not to be bothered."""
        raise NotImplementedError

    def do(self, command: str) -> Outcome:
        """Give the world a command."""
        raise NotImplementedError

    def help(self) -> str:
        """The commands that are understood, for a reply that was not."""
        raise NotImplementedError

    def begin(self, task: Task) -> str:
        return self._start(task, with_solution=False)

    def act(self, text: str) -> StepResult:
        line = last_line(text)
        sane = line.isprintable() and len(line) <= COMMAND_CHARACTERS
        command = self.understand(line) if sane else None
        if command is None:
            return StepResult.going_on(f"That is no action here. {self.help()}", valid=False)
        self._follow(command)
        return self._result(self.do(command))

    def expert_action(self) -> str:
        self.require_open("was asked for its expert")
        if self._ahead is None:
            self._start_again_with_solution()
        command = self._next_of_solution()
        if command is None:
            raise EnvironmentFailed(
                f"the expert of {type(self).__name__} knows the way from the start only; {self._lost}"
            )
        return command

    def solution_of(self, task: Task) -> Sequence[str]:
        """The commands that solve a task; ends the episode that was being played."""
        self.turns_left = None
        self.set_up(task, with_solution=True)
        return list(self.solution())

    def _start(self, task: Task, with_solution: bool) -> str:
        observation = self.set_up(task, with_solution)
        self._ahead = list(self.solution()) if with_solution else None
        self._lost = "it is at its end"
        self._score = 0.0
        return observation

    def _start_again_with_solution(self) -> None:
        assert self._task is not None
        self._start(self._task, with_solution=True)
        for action in self.played:
            self.act(action.content)

    def _follow(self, command: str) -> None:
        """Take note of a command that the world is about to get."""
        if self._ahead is None:
            return
        if (self._next_of_solution() or "").lower() == command.lower():
            del self._ahead[0]
        elif self._ahead:
            self._ahead, self._lost = [], f"{command!r} led away from it"

    def _next_of_solution(self) -> str | None:
        """The solution's next command, without those that would be refused now: engines make such slips."""
        assert self._ahead is not None
        while self._ahead and self.understand(last_line(self._ahead[0])) is None:
            del self._ahead[0]
        return self._ahead[0] if self._ahead else None

    def _result(self, outcome: Outcome) -> StepResult:
        reward, self._score = outcome.score - self._score, outcome.score
        if outcome.solved or outcome.failed:
            return StepResult.at_end(reward, outcome.solved, outcome.observation)
        if outcome.understood:
            return StepResult.going_on(outcome.observation, reward)
        return StepResult.going_on(f"{outcome.observation} {self.help()}", reward, valid=False)
