"""BabyAI's own planner (`minigrid.utils.baby_ai_bot.BabyAIBot`), guarded: it always answers, or says that it can't.

It follows what was really done, also when that was not its advice. Two faults of the planner are caught: it may trip
over a state that its plan did not foresee (it then starts over from where the agent stands), and it may plan in circles
for ever (its searches per action are counted).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentgym_rl.errors import EnvironmentFailed

SEARCHES_PER_ACTION = 100
"""Searches after which the planner counts as going round in circles; an ordinary action takes fewer than 10."""


class Expert:
    """Advises on one world, from now on.

    Args:
        world: the unwrapped minigrid environment, which someone else steps.
    """

    def __init__(self, world: Any):
        self._world = world
        self._bot: Any = None
        self._advice: int | None = None
        self._start_over()

    def follow(self, action: int) -> None:
        """Take note of an action that the world has carried out."""
        try:
            self._advice = self._plan(action)
        except _NoPlan:
            self._start_over()

    def advice(self) -> int:
        """The action to take now.

        Raises:
            EnvironmentFailed: the planner has no plan from here.
        """
        if self._advice is None:
            raise EnvironmentFailed(f"BabyAI's planner finds no way to {self._world.mission!r} from here")
        return self._advice

    def _start_over(self) -> None:
        from minigrid.utils.baby_ai_bot import BabyAIBot

        try:
            self._bot = BabyAIBot(self._world)
            self._bot._breadth_first_search = self._counted(self._bot._breadth_first_search)
            self._advice = self._plan(None)
        except _NoPlan:
            self._advice = None

    def _plan(self, action_taken: int | None) -> int:
        self._searches = 0
        try:
            advice = self._bot.replan(action_taken)
        except Exception as error:  # the planner's own assertions, of many kinds: each means that the plan is lost
            raise _NoPlan from error
        if advice == self._world.actions.done:  # it takes the mission for solved, but the world has not ended
            raise _NoPlan
        return int(advice)

    def _counted(self, search: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self._searches += 1
            if self._searches > SEARCHES_PER_ACTION:
                raise _NoPlan
            return search(*arguments, **named)

        return counted


class _NoPlan(Exception):
    """The planner gave no usable action."""
