"""How what happened in chaos looks in a terminal."""

from __future__ import annotations

from collections import Counter

from rich.table import Table
from rich.text import Text

from agentgym_rl.environments.chaos import Fault
from agentgym_rl.evaluation.chaos import SURVIVED, Books


def chaos_table(books: Books) -> Table:
    """One line a fault and way in which it ended; of failures that no fault explains, one a cause."""
    table = Table("fault", "injected", "ended as", "times", title="Faults", title_justify="left")
    fates = books.fates()
    for fault in (*Fault, None):
        endings = fates.get(fault, Counter())
        name, total = (fault.value, str(endings.total())) if fault else ("not injected", "-")
        for ending, times in endings.most_common():
            table.add_row(name, total, Text(ending, "green" if ending == SURVIVED else "red"), str(times))
            name = total = ""
    return table


def chaos_total(books: Books) -> Text:
    """The sum that must come out."""
    total = f"{len(books.started)} started = {books.finished} finished + {books.failed} failed"
    if books.balance:
        return Text(f"{total}, each exactly once", "green")
    return Text(f"{total} does not come out: a session was lost or emitted twice", "bold red")
