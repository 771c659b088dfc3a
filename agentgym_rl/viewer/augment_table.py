"""What an augmentation made of a store, and why of some tries nothing came."""

from __future__ import annotations

from collections import Counter

from rich import box
from rich.table import Table
from rich.text import Text

from agentgym_rl.data.augment_report import Report


def augment_table(report: Report, is_whole: bool = True) -> Table:
    """The numbers of a rule add up: what was tried is kept or rejected, and every parent is tried or passed over."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("trajectories")
    table.add_column("number", justify="right")
    table.add_row("given", str(report.given))
    for name, counts in report.rules.items():
        table.add_row(f"{name}: tried", str(counts.tried))
        table.add_row("  kept", str(counts.kept))
        _add_reasons(table, "rejected", counts.rejected)
        _add_reasons(table, "parents passed over", counts.passed_over)
    table.add_row("in the new store" if is_whole else "so far", str(report.originals + report.kept))
    table.add_row("  originals", str(report.originals))
    table.add_row("  new", str(report.kept))
    return table


def _add_reasons(table: Table, what: str, reasons: Counter[str]) -> None:
    for reason, number in sorted(reasons.items()):
        table.add_row(Text(f"  {what}: {reason}"), str(number))
