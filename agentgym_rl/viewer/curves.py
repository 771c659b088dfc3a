"""How a training went so far, one line of text a curve: success of each environment, reward, loss, and pace."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from agentgym_rl.viewer.step import environments_of

Steps = Mapping[int, Mapping[str, float]]
"""Training step -> its metrics."""
WIDTH = 40
HEIGHTS = "▁▂▃▄▅▆▇█"
GAP = " "
"""Stands for a step without a number."""
_VALIDATED = re.compile(r"val-core/(.+)/acc/mean@\d+")
_OTHERS = (
    # (metric, label, format)
    ("critic/score/mean", "reward", ".3f"),
    ("train/loss", "loss", ".3f"),
    ("val/loss", "validation loss", ".3f"),
    ("timing_s/step", "seconds a step", ".1f"),
)


class Curve(NamedTuple):
    metric: str
    label: str
    form: str


def curves_table(steps: Steps) -> Table:
    """One line a curve: its name, its course, its last value, and between which values it is drawn."""
    table = Table.grid(padding=(0, 2))
    for metric, label, form in _curves(steps):
        course = [values[metric] for values in steps.values() if metric in values]
        finite = [value for value in course if math.isfinite(value)]
        span = f"{min(finite):{form}} to {max(finite):{form}}" if finite else ""
        drawn = Text(sparkline(course, WIDTH), style="cyan")
        table.add_row(Text(label), drawn, f"{course[-1]:{form}}", Text(span, style="dim"))
    return table


def sparkline(values: Sequence[float], width: int) -> str:
    """The values from first to last, the lowest at the bottom and the highest at the top.

    Args:
        values: what is not finite is a gap. Where all are equal, they are drawn at the bottom.
        width: at most so many characters, >= 1; each stands for the mean of as many neighbours as that takes.
    """
    size = max(1, math.ceil(len(values) / width))
    means = [_mean(values[start : start + size]) for start in range(0, len(values), size)]
    known = [mean for mean in means if mean is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    return "".join(GAP if mean is None else HEIGHTS[_level(mean, low, high)] for mean in means)


def _curves(steps: Steps) -> list[Curve]:
    """Those of which some step has a value."""
    metrics = dict.fromkeys(metric for values in steps.values() for metric in values)
    played = [Curve(f"episode/{name}/success", f"success {name}", ".1%") for name in environments_of(metrics)]
    matches = [match for metric in metrics if (match := _VALIDATED.fullmatch(metric))]
    validated = [Curve(match[0], f"validation success {match[1]}", ".1%") for match in matches]
    others = [Curve(*other) for other in _OTHERS]
    return [curve for curve in (*played, *validated, *others) if curve.metric in metrics]


def _mean(values: Sequence[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else None


def _level(value: float, low: float, high: float) -> int:
    return round((value - low) / (high - low) * (len(HEIGHTS) - 1)) if high > low else 0
