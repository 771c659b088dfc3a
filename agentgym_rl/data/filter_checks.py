"""Rules that look at one row: each function makes the check of one, from the value that it is written with."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping

from agentgym_rl.data.annotate import actions, invalid_actions
from agentgym_rl.data.filter_values import Check, count, number, share
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.store_rows import Row
from agentgym_rl.errors import ConfigurationError

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


def outcome(value: str, store: TrajectoryStore) -> Check:
    """The episode ended like this; one that failed never did."""
    allowed: dict[str, tuple[bool | None, ...]] = {
        "success": (True,),
        "failure": (False,),
        "known": (True, False),
        "played": (True, False, None),
    }
    if value not in allowed:
        raise ConfigurationError(f"an outcome is one of {', '.join(allowed)}; given: {value!r}")
    said = {True: "solved", False: "not solved", None: "no verdict"}

    def check(row: Row) -> str:
        if row.failure_cause is not None:
            return f"failed: {row.failure_cause}"
        return "" if row.success in allowed[value] else said[row.success]

    return check


def min_return(value: str, store: TrajectoryStore) -> Check:
    """The sum of rewards is at least this."""
    return _bounded(lambda row: row.environment_return, "return", ">=", number(value))


def max_return(value: str, store: TrajectoryStore) -> Check:
    """The sum of rewards is at most this."""
    return _bounded(lambda row: row.environment_return, "return", "<=", number(value))


def min_turns(value: str, store: TrajectoryStore) -> Check:
    """So many turns or more."""
    return _bounded(lambda row: row.num_turns, "turns", ">=", count(value))


def max_turns(value: str, store: TrajectoryStore) -> Check:
    """So many turns or fewer."""
    return _bounded(lambda row: row.num_turns, "turns", "<=", count(value))


def annotation(value: str, store: TrajectoryStore) -> Check:
    """The annotation meets the threshold; a missing one, or one that is no number, meets none."""
    found = re.fullmatch(r"(.+?)(>=|<=|==|!=|>|<)(.+)", value)
    if not found:
        raise ConfigurationError(f"a threshold is written NAME>=NUMBER (or {', '.join(COMPARISONS)}); given: {value!r}")
    name, sign, threshold = found[1].strip(), found[2], number(found[3])

    def check(row: Row) -> str:
        given = row.annotations.get(name)
        if not isinstance(given, int | float) or math.isnan(given):
            return f"annotation {name} is {'missing' if name not in row.annotations else repr(given)}"
        return (
            "" if COMPARISONS[sign](given, threshold) else f"annotation {name} is {given:g}, not {sign} {threshold:g}"
        )

    return check


def max_loop(value: str, store: TrajectoryStore) -> Check:
    """No action is taken more often in a row."""
    longest = count(value)

    def check(row: Row) -> str:
        run, before = 0, None
        for action in actions(row.trajectory):
            run, before = (run + 1 if action == before else 1), action
            if run > longest:
                return f"action {_short(action)} more than {longest} times in a row"
        return ""

    return check


def max_invalid_rate(value: str, store: TrajectoryStore) -> Check:
    """At most this share of the actions was not understood."""
    limit = share(value)

    def rate(row: Row) -> float:
        return invalid_actions(row.trajectory) / max(len(row.trajectory.turns), 1)

    return _bounded(rate, "share of invalid actions", "<=", limit)


def _bounded(value: Callable[[Row], float], name: str, sign: str, limit: float) -> Check:
    def check(row: Row) -> str:
        given = value(row)
        return "" if COMPARISONS[sign](given, limit) else f"{name} is {given:g}, not {sign} {limit:g}"

    return check


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
