"""Learning curves as the geometry of a line chart; the report's template draws it as inline SVG.

A chart holds the curves that share an axis. Points with an interval get an error bar, the others are only a line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 58, 26, 14, 50
"""Margins around the plot, for tick labels and the name of the x axis."""
NEGLIGIBLE = 1e-9
"""A smaller range counts as flat."""


@dataclass(frozen=True)
class Point:
    """A value at a training step; `low` and `high` are its interval, None where it has none."""

    step: float
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Curve:
    """Named points in the order of their steps; curves of equal `axis` share a chart."""

    name: str
    points: Sequence[Point]
    axis: str = "success rate"
    """What is measured."""


class Tick(NamedTuple):
    at: float
    """Position in the drawing."""
    text: str


class Mark(NamedTuple):
    """One point, placed; `top` and `bottom` are the ends of its error bar, None where it has none."""

    x: float
    y: float
    top: float | None
    bottom: float | None
    text: str


class Line(NamedTuple):
    name: str
    path: str
    marks: list[Mark]
    """Empty for a long line of points without intervals."""


class Chart(NamedTuple):
    axis: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    lines: list[Line]


def charts(curves: Sequence[Curve]) -> list[Chart]:
    """One chart an axis, in order of appearance; curves without points are left out."""
    drawn = [curve for curve in curves if _finite(curve)]
    return [_chart(axis, [c for c in drawn if c.axis == axis]) for axis in dict.fromkeys(c.axis for c in drawn)]


def _chart(axis: str, curves: Sequence[Curve]) -> Chart:
    points = [point for curve in curves for point in _finite(curve)]
    heights = [h for p in points for h in (p.value, p.low, p.high) if h is not None]
    steps = [point.step for point in points]
    x_values = [tick for tick in ticks(min(steps), max(steps)) if min(steps) <= tick <= max(steps)]
    y_values = ticks(min(0.0, *heights), max(heights), count=5)
    x = Scale(min(steps), max(steps), LEFT, WIDTH - RIGHT)
    y = Scale(y_values[0], y_values[-1], HEIGHT - BOTTOM, TOP)
    return Chart(
        axis,
        [Tick(x.at(value), f"{value:g}") for value in x_values],
        [Tick(y.at(value), f"{value:g}") for value in y_values],
        [_line(curve, x, y) for curve in curves],
    )


def ticks(low: float, high: float, count: int = 6) -> list[float]:
    """About `count` round numbers, a multiple of 1, 2 or 5 apart, that enclose low and high."""
    if high - low < NEGLIGIBLE:
        high = low + 1.0
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


class Scale(NamedTuple):
    """Maps low..high to begin..end."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        if self.high == self.low:
            return (self.begin + self.end) / 2
        return round(self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin), 2)


def _line(curve: Curve, x: Scale, y: Scale) -> Line:
    points = _finite(curve)
    path = " ".join(f"{x.at(point.step):g},{y.at(point.value):g}" for point in points)
    marked = len(points) == 1 or any(point.low is not None for point in points)
    return Line(curve.name, path, [_mark(curve.name, point, x, y) for point in points] if marked else [])


def _mark(name: str, point: Point, x: Scale, y: Scale) -> Mark:
    text = f"{name}, step {point.step:g}: {point.value:.3g}"
    if point.low is None or point.high is None:
        return Mark(x.at(point.step), y.at(point.value), None, None, text)
    text += f" [{point.low:.3g}, {point.high:.3g}]"
    return Mark(x.at(point.step), y.at(point.value), y.at(point.high), y.at(point.low), text)


def _finite(curve: Curve) -> list[Point]:
    """A step without a number (nan: every episode of it failed) is a gap in the record, not a point."""
    return [point for point in curve.points if math.isfinite(point.value)]
