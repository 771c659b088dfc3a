"""What a trajectory says about itself, as annotations: plain counts, with None for what is unknown.

An automatic annotation is a function of the trajectory alone, but for `efficiency`, which needs the expert's episode of
the same task; annotating again gives the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentgym_rl.data.derive import Derived, derive
from agentgym_rl.data.efficiency import efficiency, turns_of_experts
from agentgym_rl.data.record import Record
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.task_overlap import same_task
from agentgym_rl.errors import require_allowed_keys
from agentgym_rl.messages import Message
from agentgym_rl.reply_form import FORMS
from agentgym_rl.task import Task
from agentgym_rl.tools import TOOL_ERRORS
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


def tool_errors(trajectory: Trajectory) -> int | None:
    """Calls that came back with an error; None where the environment tells of none of its calls."""
    told = [turn.info[TOOL_ERRORS] for turn in trajectory.turns if TOOL_ERRORS in turn.info]
    return sum(told) if told else None


AUTOMATIC: Mapping[str, Callable[[Trajectory], Any]] = {
    "success": success,
    "return": environment_return,
    "turns": turns,
    "tokens": tokens,
    "invalid_actions": invalid_actions,
    "repetitions": repetitions,
    "tool_errors": tool_errors,
}
"""Name of the annotation -> what gives it."""
EFFICIENCY = "efficiency"
NAMES = (*AUTOMATIC, EFFICIENCY)
"""Every automatic annotation."""


def annotate_store(source: TrajectoryStore, out: str | Path, names: Sequence[str] = tuple(AUTOMATIC)) -> Derived:
    """Write a store of the same records with these automatic annotations; where it is there already, that one.

    Args:
        names: of `NAMES`; `efficiency` plays the expert once on each task that was solved.

    Raises:
        ConfigurationError: no automatic annotation has that name, or something else is at `out`.
    """
    require_allowed_keys(names, NAMES, "the list of automatic annotations")
    step = {"name": "annotate", "annotations": list(names)}

    def transform(records: Iterator[Record], folder: Path) -> Iterator[Record]:
        plain = annotated(records, [name for name in names if name != EFFICIENCY])
        return with_efficiency(plain, source) if EFFICIENCY in names else plain

    return derive(source, out, step, transform)


def annotated(records: Iterable[Record], names: Sequence[str] = tuple(AUTOMATIC)) -> Iterator[Record]:
    """The records with these annotations, which need the trajectory alone; others that they have stay."""
    for record in records:
        found = {name: AUTOMATIC[name](record.trajectory) for name in names}
        yield replace(record, annotations={**record.annotations, **found})


def with_efficiency(records: Iterable[Record], source: TrajectoryStore) -> Iterator[Record]:
    """The records with their efficiency, where the expert has solved their task as well."""
    expert = turns_of_experts(Task.from_json(text) for text, solved in source.columns("task", "success") if solved)
    for record in records:
        found = efficiency(record.trajectory, expert.get(same_task(record.trajectory.task)))
        yield replace(record, annotations={**record.annotations, EFFICIENCY: found})


def actions(trajectory: Trajectory) -> list[str]:
    """What the policy did, turn by turn, as text that is equal for equal actions, whatever it thought before them."""
    form = FORMS[trajectory.task.reply_form]
    return [action_text(form.acted(turn.reply.message)) for turn in trajectory.turns]


def action_text(message: Message) -> str:
    """Equal for equal actions. Ids of calls are drawn anew each time, and the order of arguments means nothing."""
    calls = [(call.name, sorted(call.arguments.items())) for call in message.tool_calls]
    return f"{message.content.strip()} {calls}" if calls else message.content.strip()
