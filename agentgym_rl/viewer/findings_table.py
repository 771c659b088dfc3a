"""What a check of task files found, a line a finding; of many of a kind, the first ones and how many more there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from agentgym_rl.data.task_check import Finding

SHOWN_OF_A_KIND = 20


def findings_table(findings: Sequence[Finding]) -> Table:
    """In the order in which they were found."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("file", "where", "finding", ""):
        table.add_column(column, overflow="fold")
    seen: Counter[str] = Counter()
    for finding in findings:
        seen[finding.kind] += 1
        if seen[finding.kind] <= SHOWN_OF_A_KIND:
            table.add_row(*map(Text, finding))
    for kind, count in seen.items():
        if count > SHOWN_OF_A_KIND:
            table.add_row("", "", Text(kind), f"{count - SHOWN_OF_A_KIND} more")
    return table
