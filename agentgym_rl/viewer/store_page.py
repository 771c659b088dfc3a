"""A store as a page to look at: how its numbers are spread by outcome, and some of its trajectories to read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from agentgym_rl.data.record import Record
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.store_query import Query
from agentgym_rl.viewer.histogram import Histogram, histogram
from agentgym_rl.viewer.report import Shown, write_report
from agentgym_rl.viewer.store_table import COLUMNS, store_lines

DRAWN = 1e15
"""Numbers beyond this are no measurement, and the scale of a chart can't tell them apart."""
OUTCOMES = ("solved", "not solved", "no verdict", "failed")


def write_store_page(store: TrajectoryStore, path: str | Path, query: Query, show: int) -> None:
    """Write the page as one HTML file.

    Args:
        show: how many trajectories are there to be read, the first ones.
    """
    shown = [Shown(record.trajectory, _facts(record)) for record in islice(store.records(query), show)]
    write_report(
        path,
        f"Trajectories in {store.folder.resolve().name}",
        {},
        overview=[COLUMNS, *store_lines(store, query)],
        histograms=histograms(store, query),
        trajectories=shown,
    )


def histograms(store: TrajectoryStore, query: Query) -> list[Histogram]:
    """Of the return, of the turns, and of each annotation that is a number in some trajectory."""
    found: dict[str, dict[str, list[float]]] = {}
    for outcome, numbers in _numbers(store, query):
        for name, number in numbers.items():
            found.setdefault(name, {known: [] for known in OUTCOMES})[outcome].append(number)
    drawn = (histogram(name, values) for name, values in found.items())
    return [one for one in drawn if one is not None]


def _numbers(store: TrajectoryStore, query: Query) -> Iterator[tuple[str, dict[str, float]]]:
    """Of each trajectory, its outcome and its numbers by their names."""
    names = ("failure_cause", "success", "return", "num_turns", "annotations")
    for cause, success, total, turns, text in store.columns(*names, query=query):
        said = {name: value for name, value in json.loads(text).items() if _is_number(value)}
        outcome = "failed" if cause else {True: "solved", False: "not solved", None: "no verdict"}[success]
        yield outcome, {"return": total, "turns": turns, **said}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= DRAWN


def _facts(record: Record) -> Mapping[str, Any]:
    """What a record knows beside its trajectory, as far as it knows it."""
    provenance = record.provenance
    known = {"id": record.id, **vars(provenance), "sampling": json.dumps(dict(provenance.sampling))}
    found = {f"annotation {name}": value for name, value in record.annotations.items()}
    return {name: value for name, value in {**known, **found}.items() if value not in ("", None, "{}")}
