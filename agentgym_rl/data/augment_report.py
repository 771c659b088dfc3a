"""What became of every try of an augmentation: counts by rule and reason that add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentgym_rl.data.collect import POLICY_FAILED


@dataclass
class RuleCounts:
    """Of one rule."""

    kept: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    """Tries that came to nothing, by the reason."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """Parents that were not tried, by the reason."""

    @property
    def tried(self) -> int:
        return self.kept + self.rejected.total()


class Report:
    """Of one parent, or the sum over many."""

    def __init__(self, rules: Iterable[str]):
        self.given = 0
        """Trajectories that were there."""
        self.originals = 0
        """Of those, in the new store as well."""
        self.rules = {rule: RuleCounts() for rule in rules}

    @property
    def kept(self) -> int:
        """New trajectories."""
        return sum(counts.kept for counts in self.rules.values())

    @property
    def policy_failures(self) -> int:
        """Tries that came to nothing because the policy failed, as all do while its server is down."""
        reasons = [one.rejected for one in self.rules.values()]
        return sum(number for one in reasons for reason, number in one.items() if reason.startswith(POLICY_FAILED))

    def add(self, other: Report) -> None:
        """Count what another one of the same rules counts."""
        self.given += other.given
        self.originals += other.originals
        for name, counts in other.rules.items():
            self.rules[name].kept += counts.kept
            self.rules[name].rejected += counts.rejected
            self.rules[name].passed_over += counts.passed_over

    def to_json(self) -> dict[str, Any]:
        rules = {
            name: {"kept": one.kept, "rejected": _sorted(one.rejected), "passed_over": _sorted(one.passed_over)}
            for name, one in self.rules.items()
        }
        return {"given": self.given, "originals": self.originals, "rules": rules}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Report:
        report = cls(())
        report.given, report.originals = row["given"], row["originals"]
        report.rules = {
            name: RuleCounts(one["kept"], Counter(one["rejected"]), Counter(one["passed_over"]))
            for name, one in row["rules"].items()
        }
        return report


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
