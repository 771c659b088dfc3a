"""The metrics of one training step: as a line, as a table of its environments, and what failed in it.

A number that the step does not have is left out, or shown as `-`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rich import box
from rich.table import Table
from rich.text import Text

_IN_A_LINE = (
    # (end of the metric's name, label, format)
    ("train/loss", "loss", ".3f"),
    ("val/loss", "validation loss", ".3f"),
    ("/acc/mean@1", "validation success", ".1%"),
    ("/success", "success", ".1%"),
    ("critic/score/mean", "reward", ".3f"),
    ("/turns/mean", "turns", ".1f"),
    ("episode/failed", "failed", ".0f"),
    ("timing_s/step", "seconds", ".1f"),
)
_POOL = ("running_max", "leased_max", "waiting_max", "killed")
_IN_A_TABLE: tuple[tuple[str, tuple[str, ...], str], ...] = (
    # (heading, metrics of an environment that make up a cell, format); 80 columns have room for them
    ("success", ("success",), ".1%"),
    ("turns\nmean/max", ("turns/mean", "turns/max"), ".3g"),
    ("s a turn\npolicy/env.", ("policy_seconds_per_turn", "environment_seconds_per_turn"), ".2g"),
    ("idle", ("idle_share",), ".0%"),
    ("s a turn\np50/p90/p99", ("turn_seconds/p50", "turn_seconds/p90", "turn_seconds/p99"), ".2g"),
    ("pool run/lent\n/wait/killed", tuple(f"pool/{name}" for name in _POOL), ".0f"),
)
_PLAYED = re.compile(r"episode/(.+)/turns/mean")
_FAILED = "episode/failed"


def step_line(step: int, values: Mapping[str, float]) -> str:
    """What matters most, e.g. `step   12  success 81.2%  failed 0  seconds 9.5`."""
    parts = [f"step {step:>4}"]
    for ending, label, form in _IN_A_LINE:
        parts += [f"{label} {values[name]:{form}}" for name in values if name.endswith(ending)]
    return "  ".join(parts)


def counts_failures(values: Mapping[str, float]) -> bool:
    """Whether `failures_text` has something to say of this step."""
    return _FAILED in values


def environments_of(values: Iterable[str]) -> list[str]:
    """Those that episodes were played of, by the names of the metrics."""
    return sorted(match[1] for name in values if (match := _PLAYED.fullmatch(name)))


def step_table(step: int, values: Mapping[str, float]) -> Table:
    """One line an environment: success, turns, where the time went, latency, and the load of its pool."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    table.title, table.title_justify = f"Step {step}", "left"
    table.add_column("environment", overflow="fold", min_width=len("environment"))
    for heading, _, _ in _IN_A_TABLE:
        table.add_column(heading, justify="right", no_wrap=True)
    for name in environments_of(values):
        cells = (_cell(values, [f"episode/{name}/{part}" for part in parts], form) for _, parts, form in _IN_A_TABLE)
        table.add_row(Text(name), *cells)
    return table


def failures_text(values: Mapping[str, float]) -> Text:
    """E.g. `failed 3 (environment_crashed 1, policy_raised 2), retried 1`."""
    causes = {name[len(_FAILED) + 1 :]: values[name] for name in sorted(values) if name.startswith(f"{_FAILED}/")}
    why = ", ".join(f"{cause} {count:.0f}" for cause, count in causes.items())
    text = f"failed {values[_FAILED]:.0f}" + (f" ({why})" if why else "")
    return Text(f"{text}, retried {values['episode/retried']:.0f}", "red" if values[_FAILED] else "")


def _cell(values: Mapping[str, float], names: list[str], form: str) -> str:
    return "/".join(f"{values[name]:{form}}" if name in values else "-" for name in names)
