"""Tasks that are the same or nearly so, within a file and between files, such as training and test tasks.

Two tasks are the same where all but id, split and form of reply is. They are nearly the same where the texts in their
arguments and prompts are. What every one of `MANY_TASKS` or more tasks of an environment says tells nothing and doesn't
count, and neither do texts of fewer than `LEAST_WORDS` words. Tasks that begin after different prefixes of one episode
repeat nothing in their file; in another file they are a leak, for whoever has solved one knows the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agentgym_rl.data.near_duplicates import NearDuplicates
from agentgym_rl.data.record import record_id
from agentgym_rl.task import Task

LEAST_WORDS = 5
MANY_TASKS = 10


class Listed(NamedTuple):
    """A task of one of several files."""

    file: str
    place: str
    task: Task


class Overlap(NamedTuple):
    """A task that repeats an earlier one."""

    later: Listed
    earlier: Listed
    similarity: float | None
    """Of their texts; None: they are the same task."""


def same_start(task: Task) -> str:
    """A key that is equal for equal environment, arguments and seed, whatever else is asked there."""
    return record_id(task.environment, dict(task.arguments), task.seed)


def same_task(task: Task) -> str:
    """A key that is equal where prompt, reference answer and prefix are equal too."""
    whole = _same_whole(task)
    return record_id(whole, list(task.prefix)) if task.prefix else whole


def _same_whole(task: Task) -> str:
    """A key that is equal for tasks that differ in their prefix alone."""
    return record_id(same_start(task), task.prompt, task.reference_answer)


def overlaps(tasks: Sequence[Listed], near: float) -> Iterator[Overlap]:
    """Every task that repeats an earlier one: of each file the first equal one, or else the nearest.

    Args:
        tasks: of all files, a file's together.
        near: similarity of texts from which on two tasks are nearly the same, from 0 to 1.
    """
    shared = _shared_texts([one.task for one in tasks])
    firsts: dict[str, dict[str, Listed]] = {}
    wholes: dict[str, dict[str, Listed]] = {}
    indices: dict[str, NearDuplicates] = {}
    for number, one in enumerate(tasks):
        key, whole, text = same_task(one.task), _same_whole(one.task), _text(one.task, shared)
        comparable = len(text.split()) >= LEAST_WORDS
        own, own_wholes = firsts.setdefault(one.file, {}), wholes.setdefault(one.file, {})
        if comparable and one.file not in indices:
            indices[one.file] = NearDuplicates(near)
        for file in firsts:
            first = own.get(key) if file == one.file else wholes[file].get(whole)
            if first:
                yield Overlap(one, first, None)
            elif comparable and file in indices and (found := indices[file].nearest(text)):
                near_one = tasks[int(found.id)]
                if file != one.file or _same_whole(near_one.task) != whole:
                    yield Overlap(one, near_one, found.similarity)
        if comparable:
            indices[one.file].nearest(text)  # `add` takes the text that was asked about last
            indices[one.file].add(str(number))
        own.setdefault(key, one)
        own_wholes.setdefault(whole, one)


def _shared_texts(tasks: Sequence[Task]) -> dict[str, set[str]]:
    """Of each environment, what all its tasks say."""
    shared: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    for task in tasks:
        said = set(_texts(task))
        shared[task.environment] = shared.get(task.environment, said) & said
        counts[task.environment] = counts.get(task.environment, 0) + 1
    return {name: said if counts[name] >= MANY_TASKS else set() for name, said in shared.items()}


def _text(task: Task, shared: Mapping[str, set[str]]) -> str:
    return " ".join(text for text in _texts(task) if text not in shared[task.environment])


def _texts(task: Task) -> list[str]:
    return [task.prompt, *_inside(task.arguments)]


def _inside(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [text for item in items for text in _inside(item)]
