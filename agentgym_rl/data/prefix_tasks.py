"""Records -> tasks that begin in the middle of an episode: a curriculum that goes backwards from the solved end.

    prefix    after the prefix of a trajectory that the augmentation rule of that name made
    N         N turns before the end of a trajectory; at its task's own start where it has no more turns

Only trajectories that solved their task give one, so that it can be done from there. The task is that of the
trajectory, with the turns before as its prefix and an id of its own, such as `maze_7@turn-3`.

Source: Florensa et al. 2017 (reverse curriculum generation); Resnick et al. 2018 (Backplay); Salimans & Chen 2018.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from agentgym_rl.data.augment_family import SOURCE as AUGMENT
from agentgym_rl.data.imports import SOURCE as IMPORT
from agentgym_rl.data.record import Record
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.prefix import entry
from agentgym_rl.reply_form import FORMS
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Trajectory

PREFIX, TOOL_ERROR = "prefix", "tool_error"
"""Rules of augmentation."""

FirstTurn = Callable[[Record], "int | None"]
"""Gives the first turn that is the policy's, from 0; None: the record has none."""


def first_turn(start: str) -> FirstTurn:
    """Read `prefix` or N.

    Raises:
        ConfigurationError: it is neither.
    """
    if start == PREFIX:
        return _after_prefix
    if not start.isdecimal() or int(start) < 1:
        raise ConfigurationError(
            f"tasks start at {PREFIX!r}, or a number of turns, at least 1, before the end; given: {start!r}"
        )
    turns = int(start)
    return lambda record: max(len(record.trajectory.turns) - turns, 0)


def prefix_tasks(records: Iterable[Record], start: str, left_out: Counter[str]) -> Iterator[Task]:
    """The tasks that begin there, one a record; records that give none are counted by the reason why not.

    Raises:
        ConfigurationError: `start` is neither `prefix` nor a number from 1.
    """
    first = first_turn(start)
    for record in records:
        turn = first(record)
        reason = f"without a {PREFIX} that an augmentation made" if turn is None else _why_not(record, turn)
        if turn is None or reason:
            left_out[reason] += 1
        else:
            yield begins_at(record.trajectory, turn)


def begins_at(trajectory: Trajectory, turn: int) -> Task:
    """The task of a trajectory, from before this turn on, from 0; turns before it were understood, every one."""
    task, form = trajectory.task, FORMS[trajectory.task.reply_form]
    prefix = (*task.prefix, *(entry(before.reply.message, form) for before in trajectory.turns[:turn]))
    if len(prefix) == len(task.prefix):
        return task
    whole = task.id.removesuffix(_mark(len(task.prefix)))
    return replace(task, id=whole + _mark(len(prefix)), prefix=prefix)


def _mark(turns: int) -> str:
    return f"@turn-{turns}"


def _after_prefix(record: Record) -> int | None:
    changed = _change(record)
    return changed["turn"] if changed.get("rule") == PREFIX else None


def _change(record: Record) -> dict:
    """What an augmentation changed; empty: nothing."""
    said, by = record.provenance.perturbation, record.provenance.source
    return json.loads(said) if said and by == AUGMENT else {}


def _why_not(record: Record, turn: int) -> str:
    """Why there is no task that begins at this turn; empty if there is one."""
    trajectory, change = record.trajectory, _change(record)
    if record.provenance.source == IMPORT and not trajectory.fingerprint:
        return "imported"
    if trajectory.success is not True:
        return "not solved"
    if change.get("rule") == TOOL_ERROR and change["turn"] < turn:
        return "with a failed call before, which the environment would carry out"
    if not all(before.valid for before in trajectory.turns[:turn]):
        return "with an action before that was not understood"
    return ""
