"""What a trajectory says about itself, as annotations: plain counts, with None for what is unknown.

An automatic annotation is a function of the trajectory alone; annotating again gives the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentgym_rl.data.derive import Derived, derive
from agentgym_rl.data.record import Record
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.errors import require_allowed_keys
from agentgym_rl.messages import Message
from agentgym_rl.trajectory import Trajectory


def success(trajectory: Trajectory) -> bool | None:
    """Whether the task was solved; None: the environment can't tell, or it failed."""
    return trajectory.success


def environment_return(trajectory: Trajectory) -> float:
    """Sum of the environment's rewards, undiscounted."""
    return trajectory.environment_return


def turns(trajectory: Trajectory) -> int:
    return len(trajectory.turns)


def tokens(trajectory: Trajectory) -> int | None:
    """Tokens that the policy sampled, over all turns; None where those of a turn are unknown."""
    sampled = [turn.reply.tokens for turn in trajectory.turns]
    return None if None in sampled else sum(len(one.ids) for one in sampled if one)


def invalid_actions(trajectory: Trajectory) -> int:
    """Turns whose action the environment did not understand."""
    return sum(not turn.valid for turn in trajectory.turns)


def repetitions(trajectory: Trajectory) -> int:
    """Turns that do again what the turn before them did."""
    said = actions(trajectory)
    return sum(before == after for before, after in itertools.pairwise(said))


AUTOMATIC: Mapping[str, Callable[[Trajectory], Any]] = {
    "success": success,
    "return": environment_return,
    "turns": turns,
    "tokens": tokens,
    "invalid_actions": invalid_actions,
    "repetitions": repetitions,
}
"""Name of the annotation -> what gives it."""


def annotate_store(source: TrajectoryStore, out: str | Path, names: Sequence[str] = tuple(AUTOMATIC)) -> Derived:
    """Write a store of the same records with these automatic annotations; where it is there already, that one.

    Raises:
        ConfigurationError: no automatic annotation has that name, or something else is at `out`.
    """
    require_allowed_keys(names, AUTOMATIC, "the list of automatic annotations")
    step = {"name": "annotate", "annotations": list(names)}
    return derive(source, out, step, lambda records, folder: annotated(records, names))


def annotated(records: Iterable[Record], names: Sequence[str] = tuple(AUTOMATIC)) -> Iterator[Record]:
    """The records with these automatic annotations; others that they have stay."""
    for record in records:
        found = {name: AUTOMATIC[name](record.trajectory) for name in names}
        yield replace(record, annotations={**record.annotations, **found})


def actions(trajectory: Trajectory) -> list[str]:
    """What the policy did, turn by turn, as text that is equal for equal actions."""
    return [_action(turn.reply.message) for turn in trajectory.turns]


def _action(message: Message) -> str:
    """Ids of calls are drawn anew each time, and the order of arguments means nothing."""
    calls = [(call.name, sorted(call.arguments.items())) for call in message.tool_calls]
    return f"{message.content.strip()} {calls}" if calls else message.content.strip()
