"""Rules that look across records: each function makes the check of one, which remembers what it was asked about.

A check is asked about the records in the order of the store, each once.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable

from agentgym_rl.data.annotate import actions
from agentgym_rl.data.filter_values import Check, count, share
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.store_rows import Row
from agentgym_rl.data.task_overlap import same_start
from agentgym_rl.data.user_tasks import load_tasks
from agentgym_rl.errors import ConfigurationError


def exact_duplicates(value: str, store: TrajectoryStore) -> Check:
    """Nobody said and did the same in an earlier row."""
    first: dict[bytes, str] = {}

    def check(row: Row) -> str:
        texts = [*_words_of(row), *actions(row.trajectory)]
        digest = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).digest()
        earlier = first.setdefault(digest, row.id)
        return "" if earlier == row.id else f"same conversation as {earlier}"

    return check


def near_duplicates(value: str, store: TrajectoryStore) -> Check:
    """No earlier record that was kept is so similar; see `near_duplicates.py`."""
    from agentgym_rl.data.near_duplicates import NearDuplicates

    seen = NearDuplicates(share(value))

    def check(row: Row) -> str:
        found = seen.nearest(" ".join(_words_of(row)))
        if found:
            return f"{found.similarity:.2f} like {found.id}"
        seen.add(row.id)
        return ""

    return check


def contamination(value: str, store: TrajectoryStore) -> Check:
    """The task is not one of that file's: same environment, arguments and seed, whatever its id."""
    tests = {same_start(task): task.id for task in load_tasks(value)}

    def check(row: Row) -> str:
        test = tests.get(same_start(row.task))
        return f"same environment, arguments and seed as test task {test}" if test is not None else ""

    return check


def cap(value: str, store: TrajectoryStore) -> Check:
    """At most so many of a task, the first ones."""
    return _capped(lambda row: (row.environment, row.task_id), count(value), "this task")


def cap_environment(value: str, store: TrajectoryStore) -> Check:
    """At most so many of an environment, the first ones."""
    return _capped(lambda row: row.environment, count(value), "this environment")


def difficulty(value: str, store: TrajectoryStore) -> Check:
    """The success rate of the task, over the whole store, whatever other rules drop, is in LOW..HIGH."""
    low, found, high = value.partition("..")
    if not found:
        raise ConfigurationError(f"a range of success rates is written LOW..HIGH; given: {value!r}")
    lowest, highest = share(low), share(high)
    solved: Counter[tuple[str, str]] = Counter()
    known: Counter[tuple[str, str]] = Counter()
    for environment, task, success in store.columns("environment", "task_id", "success"):
        known[environment, task] += success is not None
        solved[environment, task] += success is True

    def check(row: Row) -> str:
        key = row.environment, row.task_id
        if not known[key]:
            return "success rate of its task is unknown"
        rate = solved[key] / known[key]
        said = f"success rate of its task is {rate:.2f} ({solved[key]} of {known[key]}), not in {low}..{high}"
        return "" if lowest <= rate <= highest else said

    return check


def _capped(key: Callable[[Row], object], most: int, what: str) -> Check:
    kept: Counter[object] = Counter()

    def check(row: Row) -> str:
        group = key(row)
        if kept[group] == most:
            return f"{what} has {most} already"
        kept[group] += 1
        return ""

    return check


def _words_of(row: Row) -> list[str]:
    return [message.content for message in row.trajectory.messages]
