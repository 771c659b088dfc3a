"""The rules by which trajectories are dropped, by name: a rule is written NAME or NAME=VALUE."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from agentgym_rl.data import filter_across as across
from agentgym_rl.data import filter_checks as checks
from agentgym_rl.data import filter_compared as compared
from agentgym_rl.data.filter_values import Check
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.store_rows import Row
from agentgym_rl.errors import ConfigurationError, did_you_mean


class RuleKind(NamedTuple):
    """One kind of rule."""

    form: str
    """How it is written."""
    what: str
    """What it keeps."""
    make: Callable[[str, Any], Check]
    """Value behind the "=", store that is filtered -> check of its rows."""
    reads_file: bool = False
    """The value names a file, whose content decides too."""
    compares: bool = False
    """It can't judge a row without later ones: `make` gets, for the store, what reads the rows that are left to it."""


class Rule(NamedTuple):
    """A rule as written, ready to look at one store's records in order."""

    spec: str
    check: Check
    file: str | None = None
    """That the check was made from; None: none."""


def make_rule(spec: str, store: TrajectoryStore, before: Sequence[str] = ()) -> Rule:
    """Read a rule.

    Args:
        before: the rules that apply before it.

    Raises:
        ConfigurationError: no such rule, or its value is missing, superfluous or wrong.
    """
    name, _, value = spec.partition("=")
    if name not in RULES:
        raise ConfigurationError(f"no rule {name!r}; {did_you_mean(name, RULES)}")
    kind = RULES[name]
    if bool(value) != ("=" in kind.form):
        raise ConfigurationError(f"this rule is written {kind.form}; given: {spec!r}")
    try:
        check = kind.make(value, partial(_kept_by, before, store) if kind.compares else store)
        return Rule(spec, check, value if kind.reads_file else None)
    except ConfigurationError as error:
        raise ConfigurationError(f"rule {spec!r}: {error}") from error


def _kept_by(specs: Sequence[str], store: TrajectoryStore) -> Iterator[Row]:
    """In order; with rules of its own, for a rule may remember what it was asked about."""
    rules = [make_rule(spec, store, specs[:place]) for place, spec in enumerate(specs)]
    for rows in TrajectoryStore(store.folder).rows():
        for row in rows:
            if not any(rule.check(row) for rule in rules):
                yield row


RULES: dict[str, RuleKind] = {
    "outcome": RuleKind("outcome=success|failure|known|played", "what ended like this; never failures", checks.outcome),
    "min-return": RuleKind("min-return=NUMBER", "returns from this on", checks.min_return),
    "max-return": RuleKind("max-return=NUMBER", "returns up to this", checks.max_return),
    "min-turns": RuleKind("min-turns=COUNT", "so many turns or more", checks.min_turns),
    "max-turns": RuleKind("max-turns=COUNT", "so many turns or fewer", checks.max_turns),
    "annotation": RuleKind("annotation=NAME>=NUMBER", "what meets it; also <=, ==, !=, >, <", checks.annotation),
    "max-loop": RuleKind("max-loop=COUNT", "the same action at most so often in a row", checks.max_loop),
    "max-invalid-rate": RuleKind("max-invalid-rate=SHARE", "at most so many actions invalid", checks.max_invalid_rate),
    "exact-duplicates": RuleKind("exact-duplicates", "of equal conversations, the first", across.exact_duplicates),
    "near-duplicates": RuleKind("near-duplicates=SHARE", "of so similar ones, the first", across.near_duplicates),
    "contamination": RuleKind(
        "contamination=TEST-TASKS", "tasks that are none of that file's", across.contamination, reads_file=True
    ),
    "cap": RuleKind("cap=COUNT", "so many of each task, the first", across.cap),
    "cap-environment": RuleKind("cap-environment=COUNT", "so many of each environment", across.cap_environment),
    "best": RuleKind(
        "best=COUNT:SCORE",
        "so many of each task, by return, turns or annotation; -SCORE: lowest first",
        compared.best,
        compares=True,
    ),
    "balance": RuleKind(
        "balance=environment|task", "of each as many as the rarest has, the first", compared.balance, compares=True
    ),
    "difficulty": RuleKind("difficulty=LOW..HIGH", "tasks with such a success rate in this store", across.difficulty),
}
"""Name of the rule -> how it is made."""
