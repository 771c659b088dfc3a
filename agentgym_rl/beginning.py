"""Where an episode may go on from: the turns of an earlier one, and how an environment gets to where they led.

Invariant: what the policy is shown of a beginning is what the environment did. A snapshot is taken at its word; a
replay is compared with the turns that it repeats, and the first difference is a failure that says where. A task's
prefix is no beginning but part of the opening, which a replay plays first: turns are counted after it.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_rl.environment import Opening, StepResult, fingerprint
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed, Manner
from agentgym_rl.messages import Message
from agentgym_rl.task import Task
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
            pairs = zip(self.opening.messages, start.messages, strict=False)
            told = [pair for pair in pairs if pair[0] != pair[1] and pair[0].role != "system"][:1]
            before = tuple(pair[0] for pair in told) or self.opening.messages[-1:]
            now = tuple(pair[1] for pair in told) or start.messages[-1:]
            _diverged(name, "its first observation", _text(before), _text(now))

    def require_same_turn(self, name: str, number: int, result: StepResult) -> None:
        """Raise an EnvironmentFailed unless the environment did at this turn what it had done before."""
        turn = self.turns[number]
        if result.terminated or result.truncated:
            _diverged(name, f"turn {number}", "the episode going on", "its end")
        if fingerprint(result.observation) != fingerprint(turn.observation):
            _diverged(name, f"the observation of turn {number}", _text(turn.observation), _text(result.observation))
        if result.reward != turn.reward:
            _diverged(name, f"the reward of turn {number}", str(turn.reward), str(result.reward))


def require_prefix_fits(task: Task, number: int, result: StepResult) -> None:
    """Raise a ConfigurationError unless an action of its task's prefix was understood, and the episode goes on."""
    if result.valid and not result.terminated and not result.truncated:
        return
    went_wrong = "was not understood" if not result.valid else "ended the episode"
    raise ConfigurationError(
        f"the prefix of task {task.id!r} can't be played: turn {number} of {len(task.prefix)} (from 0) {went_wrong}; "
        f"environment {task.environment!r} answered {_text(result.observation)}"
    )


def _diverged(name: str, where: str, before: str, now: str) -> None:
    message = f"the replay of {name} diverged at {where}: it was {before}, now it is {now}"
    raise EnvironmentFailed(message, Manner.DIVERGED)


def _text(messages: tuple[Message, ...]) -> str:
    text = "\n".join(message.content for message in messages)
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
