"""What went into a step, which rule dropped how much of it, and what was kept."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text


def drops_table(kept: int, dropped: Sequence[tuple[str, int]]) -> Table:
    """One line a rule, in the order in which they apply; the numbers add up to what came in."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("trajectories")
    table.add_column("number", justify="right")
    table.add_row("in", str(kept + sum(number for _, number in dropped)))
    for rule, number in dropped:
        table.add_row(Text(f"dropped: {rule}"), str(number))
    table.add_row("kept", str(kept))
    return table
