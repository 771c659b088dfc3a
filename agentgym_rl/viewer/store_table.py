"""What a store holds, and what a collection added to one."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.table import Table
from rich.text import Text

from agentgym_rl.data.collect import Collected
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.store_query import Query

COLUMNS = ("environment", "source", "tasks", "trajectories", "solved", "failed", "return", "turns")


def store_table(store: TrajectoryStore, query: Query) -> Table:
    """One line an environment and source."""
    table = _table(*COLUMNS)
    for line in store_lines(store, query):
        table.add_row(*map(Text, line))
    return table


def store_lines(store: TrajectoryStore, query: Query) -> list[tuple[str, ...]]:
    """`COLUMNS` of each environment and source; a mean leaves failed episodes out."""
    found: dict[tuple[str, str], list[tuple]] = {}
    names = ("environment", "source", "task_id", "success", "return", "num_turns", "failure_cause")
    for environment, source, *rest in store.columns(*names, query=query):
        found.setdefault((environment, source), []).append(tuple(rest))
    return [(*kind, *_figures(rows)) for kind, rows in sorted(found.items())]


def _figures(rows: list[tuple]) -> tuple[str, ...]:
    played = [row for row in rows if row[4] is None]
    return (
        str(len({row[0] for row in rows})),
        str(len(rows)),
        str(sum(row[1] is True for row in rows)),
        str(len(rows) - len(played)),
        _mean(row[2] for row in played),
        _mean(row[3] for row in played),
    )


def collected_table(collected: Collected) -> Table:
    """What became of the episodes that were asked for."""
    table = _table("episodes", "number")
    table.add_row("asked for", str(collected.found + collected.played))
    table.add_row("in the store already", str(collected.found))
    table.add_row("played", str(collected.played))
    table.add_row("  solved", str(collected.solved))
    table.add_row("  failed", str(collected.failed))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in ("environment", "source", "episodes") else "right")
    return table


def _mean(values: Iterable[float]) -> str:
    given = list(values)
    return f"{sum(given) / len(given):.3g}" if given else "-"
