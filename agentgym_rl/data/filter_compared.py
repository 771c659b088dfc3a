"""Rules that compare a row with all others that the rules before them keep, also those that come later.

Each function makes the check of one; the others are read when the first row is asked about.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache

from agentgym_rl.data.filter_values import Check, count
from agentgym_rl.data.store_rows import Row
from agentgym_rl.errors import ConfigurationError

Kept = Callable[[], Iterable[Row]]
"""The rows that the rules before keep, in order."""


def best(value: str, kept: Kept) -> Check:
    """The best so many of a task by a score; of equal ones, those that come first."""
    number, found, name = value.partition(":")
    score = name.removeprefix("-")
    if not found or not score:
        raise ConfigurationError(f"the best are written COUNT:SCORE or COUNT:-SCORE; given: {value!r}")
    most, sign = count(number), 1 if name == score else -1

    @cache
    def chosen() -> set[str]:
        scored: dict[tuple[str, str], list[tuple[float, str]]] = {}
        for row in kept():
            earned = _number(row, score)
            if earned is not None:
                scored.setdefault((row.environment, row.task_id), []).append((-sign * earned, row.id))
        return {id for rows in scored.values() for _, id in sorted(rows, key=lambda row: row[0])[:most]}

    def check(row: Row) -> str:
        earned = _number(row, score)
        if earned is None:
            return f"{score} is missing or no number"
        return "" if row.id in chosen() else f"{score} {earned:g} is not among the best {most} of this task"

    return check


def balance(value: str, kept: Kept) -> Check:
    """Of each environment, or task, as many as the one with the fewest has; the first ones."""
    keys: dict[str, Callable[[Row], object]] = {
        "environment": lambda row: row.environment,
        "task": lambda row: (row.environment, row.task_id),
    }
    if value not in keys:
        raise ConfigurationError(f"what is balanced is one of {', '.join(keys)}; given: {value!r}")
    key = keys[value]
    taken: Counter[object] = Counter()

    @cache
    def fewest() -> int:
        return min(Counter(map(key, kept())).values())

    def check(row: Row) -> str:
        group = key(row)
        if taken[group] == fewest():
            return f"this {value} has {fewest()} already, as many as the rarest"
        taken[group] += 1
        return ""

    return check


def _number(row: Row, score: str) -> float | None:
    said = {"return": row.environment_return, "turns": row.num_turns}
    given = said[score] if score in said else row.annotations.get(score)
    return given if isinstance(given, int | float) and not math.isnan(given) else None
