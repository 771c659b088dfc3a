"""An environment whose snapshot is the task and the actions so far; restoring plays them again.

For worlds that are fast and deterministic: all that the state of an episode follows from is its task and its actions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from agentgym_rl.environment import StepResult
from agentgym_rl.environments.turn_limited import TurnLimited
from agentgym_rl.errors import EnvironmentFailed
from agentgym_rl.messages import Message
from agentgym_rl.task import Task


class Replayed(TurnLimited):
    """Subclasses claim `can_snapshot` in their facts."""

    played: tuple[Message, ...] = ()
    """The actions of this episode. In `act`, the last is the one to carry out, with its `tool_calls`."""

    _task: Task | None = None
    """None: not reset yet."""

    def reset(self, task: Task) -> Sequence[Message]:
        self._task = None  # a reset that fails leaves no episode
        observation = super().reset(task)
        self._task, self.played = task, ()
        return observation

    def step(self, action: Message) -> StepResult:
        self.require_open("was stepped")
        self.played = (*self.played, action)
        return super().step(action)

    def snapshot(self) -> bytes:
        if self._task is None:
            raise EnvironmentFailed(f"a snapshot of {type(self).__name__} was asked for before reset")
        return json.dumps([self._task.to_json(), [action.to_chat() for action in self.played]]).encode()

    def restore(self, snapshot: bytes) -> None:
        task, actions = json.loads(snapshot)
        self.reset(Task.from_json(task))
        for action in actions:
            self.step(Message.from_chat(action))
