"""What a selection kept, and which rule dropped how many."""

from __future__ import annotations

from rich import box
from rich.table import Table

from agentgym_rl.data.select import Rule, Selection


def selection_table(selection: Selection) -> Table:
    """One line a rule, in the order in which they apply; the numbers add up to what came in."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("trajectories")
    table.add_column("number", justify="right")
    kept, dropped = len(selection.kept), selection.dropped
    table.add_row("in", str(kept + sum(dropped.values())))
    for rule in Rule:
        if dropped.get(rule):
            table.add_row(f"dropped: {rule.value}", str(dropped[rule]))
    tasks = len({trajectory.task.id for trajectory in selection.kept})
    table.add_row(f"kept, of {tasks} task{'' if tasks == 1 else 's'}", str(kept))
    return table
