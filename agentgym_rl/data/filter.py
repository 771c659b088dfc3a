"""Store -> smaller store: every record is kept, or dropped by the first rule that holds against it.

A rule sees only what the rules before it kept, so a cap counts what is good enough to count. Each drop is a line of
`_dropped.jsonl` in the new store: id, rule, reason.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from agentgym_rl.data.derive import content_digest, derive
from agentgym_rl.data.encodable import encodable
from agentgym_rl.data.filter_rules import Rule, make_rule
from agentgym_rl.data.record import Record
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.errors import ConfigurationError

DROPPED_FILE = "_dropped.jsonl"


@dataclass(frozen=True)
class Filtered:
    """What a filter did: the numbers add up to what came in."""

    store: TrajectoryStore
    kept: int
    dropped: tuple[tuple[str, int], ...]
    """(rule, number), in the order in which the rules apply."""


def filter_store(source: TrajectoryStore, out: str | Path, rules: Sequence[str]) -> Filtered:
    """Write a store of what all rules keep; where it is there already, only say what it is.

    Args:
        source: is only read.
        out: folder of the new store.
        rules: as `filter_rules.RULES` says, in the order in which they apply.

    Raises:
        ConfigurationError: a rule that can't work or stands twice, or something else at `out`.
        DataError: a record, or a file that a rule names, can't be read.
    """
    if not rules:
        raise ConfigurationError("a filter needs at least one rule")
    twice = [rule for rule, count in Counter(rules).items() if count > 1]
    if twice:
        raise ConfigurationError(f"the rule {twice[0]!r} stands {Counter(rules)[twice[0]]} times")
    made = [make_rule(spec, source) for spec in rules]
    counts: Counter[str] = Counter()

    def kept(records: Iterator[Record], folder: Path) -> Iterator[Record]:
        with (folder / DROPPED_FILE).open("w", encoding="utf-8") as file:
            for record in records:
                rule, reason = _against(record, made)
                counts[rule] += 1
                if not rule:
                    yield record
                else:
                    _note(file, record, rule, reason)

    def report() -> dict[str, int]:
        return {"": counts[""], **{rule: counts[rule] for rule in rules}}

    files = {rule.spec: content_digest(rule.file) for rule in made if rule.file is not None}
    done = derive(source, out, {"name": "filter", "rules": list(rules), "files": files}, kept, report)
    return Filtered(done.store, done.report[""], tuple((rule, done.report[rule]) for rule in rules))


def _against(record: Record, rules: Sequence[Rule]) -> tuple[str, str]:
    """(rule, reason) of the first rule that holds against a record; two empty texts: none does."""
    for rule in rules:
        reason = rule.check(record)
        if reason:
            return rule.spec, reason
    return "", ""


def _note(file: TextIO, record: Record, rule: str, reason: str) -> None:
    line = {"id": record.id, "task": record.trajectory.task.id, "rule": rule, "reason": reason}
    file.write(encodable(json.dumps(line, ensure_ascii=False)) + "\n")
