"""Where an episode may go on from: the turns of an earlier one, and how an environment gets to where they led.

Invariant: what the policy is shown of a beginning is what the environment did. A snapshot is taken at its word; a
replay is compared with the turns that it repeats, and the first difference is a failure that says where.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_rl.environment import Opening, StepResult, fingerprint
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed, Manner
from agentgym_rl.messages import Message
from agentgym_rl.trajectory import StopReason, Trajectory, Turn

_SHOWN = 200
"""Characters of an observation in a message."""


@dataclass(frozen=True)
class Beginning:
    """The first turns of an episode, to be gone on from."""

    opening: Opening
    turns: tuple[Turn, ...]
    snapshot: bytes | None = None
    """The environment's state after `turns`; None: it plays them again."""

    @classmethod
    def of(cls, trajectory: Trajectory, turn: int, snapshot: bytes | None = None) -> Beginning:
        """What stood before turn `turn` of a trajectory, from 0; one past its last turn if it had not come to an end.

        Raises:
            DataError: the trajectory has no first observation.
            ConfigurationError: there is no such turn to play.
        """
        if not trajectory.opening:
            raise DataError(f"the trajectory of task {trajectory.task.id!r} failed before its first observation")
        ended = trajectory.stop in (StopReason.TERMINATED, StopReason.TRUNCATED)
        last = len(trajectory.turns) - ended
        if not 0 <= turn <= last:
            raise ConfigurationError(
                f"the trajectory of task {trajectory.task.id!r} can go on from turn 0 to {last}; given: {turn}"
            )
        return cls(Opening(trajectory.opening, trajectory.fingerprint), trajectory.turns[:turn], snapshot)

    def conversation(self) -> list[Message]:
        """All that was said so far."""
        spoken = list(self.opening.messages)
        for turn in self.turns:
            spoken += [turn.reply.message, *turn.observation]
        return spoken

    def require_same_start(self, name: str, start: Opening) -> None:
        """Raise an EnvironmentFailed unless the first observation is the same again."""
        if start.fingerprint != self.opening.fingerprint:
            _diverged(name, "its first observation", _text(self.opening.messages[-1:]), _text(start.messages[-1:]))

    def require_same_turn(self, name: str, number: int, result: StepResult) -> None:
        """Raise an EnvironmentFailed unless the environment did at this turn what it had done before."""
        turn = self.turns[number]
        if result.terminated or result.truncated:
            _diverged(name, f"turn {number}", "the episode going on", "its end")
        if fingerprint(result.observation) != fingerprint(turn.observation):
            _diverged(name, f"the observation of turn {number}", _text(turn.observation), _text(result.observation))
        if result.reward != turn.reward:
            _diverged(name, f"the reward of turn {number}", str(turn.reward), str(result.reward))


def _diverged(name: str, where: str, before: str, now: str) -> None:
    message = f"the replay of {name} diverged at {where}: it was {before}, now it is {now}"
    raise EnvironmentFailed(message, Manner.DIVERGED)


def _text(messages: tuple[Message, ...]) -> str:
    text = "\n".join(message.content for message in messages)
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
