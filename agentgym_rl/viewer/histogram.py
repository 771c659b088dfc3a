"""How a number is spread over trajectories, by outcome, as the geometry of a bar chart for the report's template."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from agentgym_rl.viewer.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Scale, Tick, ticks

BARS = 30
"""About how many; whole numbers of a narrower range have a bar each."""


class Box(NamedTuple):
    """One outcome's part of a bar, placed."""

    outcome: str
    x: float
    y: float
    width: float
    height: float
    text: str


class Histogram(NamedTuple):
    name: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    boxes: list[Box]
    outcomes: list[str]
    """Those that occur, from below."""


def histogram(name: str, values: Mapping[str, Sequence[float]]) -> Histogram | None:
    """The values of each outcome, stacked on each other; None: they are the same, or none is finite.

    Args:
        name: of the number.
        values: outcome -> its values, in the order of the stack from below.
    """
    import numpy as np

    finite = {outcome: [float(value) for value in given if math.isfinite(value)] for outcome, given in values.items()}
    finite = {outcome: given for outcome, given in finite.items() if given}
    found = {value for given in finite.values() for value in given}
    if len(found) < 2:
        return None
    edges = _edges(found)
    if not all(begin < end for begin, end in pairwise(edges)):
        return None  # so close to each other that numbers of this size can't tell them apart
    inside = {outcome: np.clip(given, edges[0], edges[-1]) for outcome, given in finite.items()}  # but for rounding
    counts = {outcome: np.histogram(given, edges)[0].tolist() for outcome, given in inside.items()}
    heights = ticks(0.0, float(max(map(sum, zip(*counts.values(), strict=True)))), count=4)
    x = Scale(edges[0], edges[-1], LEFT, WIDTH - RIGHT)
    y = Scale(0.0, heights[-1], HEIGHT - BOTTOM, TOP)
    marks = [mark for mark in ticks(edges[0], edges[-1]) if edges[0] <= mark <= edges[-1]]
    return Histogram(
        name,
        [Tick(x.at(mark), f"{mark:g}") for mark in marks],
        [Tick(y.at(mark), f"{mark:g}") for mark in heights],
        list(_boxes(edges, counts, x, y)),
        list(finite),
    )


def _edges(values: Collection[float]) -> list[float]:
    low, high = min(values), max(values)
    if high - low < BARS and all(float(value).is_integer() for value in values):
        return [low - 0.5 + number for number in range(int(high - low) + 2)]
    return ticks(low, high, BARS)


def _boxes(edges: Sequence[float], counts: Mapping[str, Sequence[int]], x: Scale, y: Scale) -> Iterator[Box]:
    for place, (begin, end) in enumerate(pairwise(edges)):
        below = 0
        for outcome, count in counts.items():
            top = below + count[place]
            if count[place]:
                text = f"{outcome}: {count[place]} from {begin:.4g} to {end:.4g}"
                wide, high = x.at(end) - x.at(begin) - 1, y.at(below) - y.at(top)
                yield Box(outcome, x.at(begin), y.at(top), round(wide, 2), round(high, 2), text)
            below = top
