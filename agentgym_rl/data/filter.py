"""Store -> smaller store: every record is kept, or dropped by the first rule that holds against it.

A rule sees only what the rules before it kept, so a cap counts what is good enough to count. Each drop is a line of
`_dropped.jsonl` in the new store: id, rule, reason. What is kept is copied as it is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

from agentgym_rl.data.appender import RowAppender
from agentgym_rl.data.derive import content_digest, derive_by
from agentgym_rl.data.encodable import encodable
from agentgym_rl.data.filter_rules import Rule, make_rule
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.store_held import HeldStore
from agentgym_rl.data.store_rows import Rows
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
    source = HeldStore(source)
    made = [make_rule(spec, source, rules[:place]) for place, spec in enumerate(rules)]
    counts: Counter[str] = Counter()

    def fill(folder: Path) -> None:
        store = TrajectoryStore(folder)
        with (folder / DROPPED_FILE).open("w", encoding="utf-8") as file, RowAppender(store) as new:
            for rows in source.rows():
                kept, drops = _sifted(rows, made)
                new.append(kept)
                counts[""] += len(kept)
                counts.update(drop["rule"] for drop in drops)
                file.writelines(encodable(json.dumps(drop, ensure_ascii=False)) + "\n" for drop in drops)

    def report() -> dict[str, int]:
        return {"": counts[""], **{rule: counts[rule] for rule in rules}}

    files = {rule.spec: content_digest(rule.file) for rule in made if rule.file is not None}
    done = derive_by(source, out, {"name": "filter", "rules": list(rules), "files": files}, fill, report)
    return Filtered(done.store, done.report[""], tuple((rule, done.report[rule]) for rule in rules))


def _sifted(rows: Rows, rules: Sequence[Rule]) -> tuple[Rows, list[dict[str, str]]]:
    """Those that no rule holds against, and a note of each of the others, in the order of the rows."""
    places = list(range(len(rows)))
    drops = {}
    for rule in rules:
        keep = []
        for place, row in zip(places, rows, strict=True):
            reason = rule.check(row)
            keep.append(not reason)
            if reason:
                drops[place] = {"id": row.id, "task": row.task_id, "rule": rule.spec, "reason": reason}
        places, rows = list(compress(places, keep)), rows.where(keep)
    return rows, [drops[place] for place in sorted(drops)]
