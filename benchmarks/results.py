"""What a benchmark leaves behind: a table as Markdown and JSON, a plot as SVG, and the state of the machine.

Without that state no figure means anything: what else ran on the cores is in its load average.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from agentgym_rl.viewer import chart
from agentgym_rl.viewer.chart import Chart, Curve

FOLDER = Path("outputs/benchmarks")
COLOURS = ("#2166c4", "#c8560a", "#1b8a5a", "#8448b5", "#a8324a", "#4f6272")
LEGEND = 15
"""Height of a line of the legend."""


@dataclass(frozen=True)
class Verdict:
    """One figure against its target."""

    what: str
    value: float
    target: str
    met: bool


@dataclass(frozen=True)
class Result:
    """One run of a benchmark; `curves` share the x axis that `x` names."""

    name: str
    settings: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    """Column -> value; every row has the columns of the first."""
    verdicts: Sequence[Verdict]
    curves: Sequence[Curve]
    x: str
    notes: Sequence[str] = ()


def parser(description: str | None, topic: str) -> argparse.ArgumentParser:
    """With the options that every benchmark has; results of a topic go to a folder of its own."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=lambda prog: argparse.ArgumentDefaultsHelpFormatter(prog, width=100)
    )
    made.add_argument("--out", type=Path, default=FOLDER / topic, help="folder of the result files")
    return made


def machine() -> dict[str, Any]:
    """Taken before a measurement, so that the load is that of others."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }


def write(result: Result, state: Mapping[str, Any], folder: Path) -> None:
    """Write NAME.md, NAME.json and NAME.svg, and print the table."""
    folder.mkdir(parents=True, exist_ok=True)
    row = {**asdict(result), "curves": [asdict(curve) for curve in result.curves], "machine": dict(state)}
    (folder / f"{result.name}.json").write_text(json.dumps(row, indent=1, default=str) + "\n", encoding="utf-8")
    text = markdown(result, state)
    (folder / f"{result.name}.md").write_text(text, encoding="utf-8")
    (folder / f"{result.name}.svg").write_text(svg(chart.charts(result.curves), result.x), encoding="utf-8")
    print(text)


def markdown(result: Result, state: Mapping[str, Any]) -> str:
    columns = list(result.rows[0])
    lines = [f"# {result.name}", ""]
    lines += _table(columns, [[_shown(row[column]) for column in columns] for row in result.rows])
    verdicts = [[v.what, _shown(v.value), v.target, "met" if v.met else "not met"] for v in result.verdicts]
    lines += ["", *_table(["figure", "measured", "target", "verdict"], verdicts)] if verdicts else []
    lines += ["", *(f"- {note}" for note in result.notes)] if result.notes else []
    lines += ["", "Settings: " + ", ".join(f"{name} {value}" for name, value in result.settings.items())]
    lines += ["Machine: " + ", ".join(f"{name} {value}" for name, value in state.items()), ""]
    return "\n".join(lines)


def svg(charts: Sequence[Chart], x: str) -> str:
    """The charts below each other, with the geometry of the project's report, each with its legend under it."""
    parts, height = [], 0
    for drawn in charts:
        parts.append(f'<g transform="translate(0 {height + 24})">\n{_drawn(drawn, x)}\n</g>')
        height += 24 + chart.HEIGHT + LEGEND * len(drawn.lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{chart.WIDTH}" height="{height}" font-family="sans-serif"'
        ' font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _drawn(drawn: Chart, x: str) -> str:
    right, bottom = chart.WIDTH - chart.RIGHT, chart.HEIGHT - chart.BOTTOM
    parts = [_text(chart.LEFT, -8, drawn.axis, "start", "bold")]
    for tick in drawn.y_ticks:
        parts.append(f'<path d="M{chart.LEFT} {tick.at}H{right}" stroke="#ddd"/>')
        parts.append(_text(chart.LEFT - 8, tick.at + 4, tick.text, "end"))
    parts += [_text(tick.at, bottom + 18, tick.text, "middle") for tick in drawn.x_ticks]
    parts.append(_text((chart.LEFT + right) / 2, bottom + 36, x, "middle"))
    for number, line in enumerate(drawn.lines):
        colour, y = COLOURS[number % len(COLOURS)], bottom + 52 + LEGEND * number
        parts.append(f'<polyline points="{line.path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<rect x="{chart.LEFT}" y="{y - 6}" width="12" height="3" fill="{colour}"/>')
        parts.append(_text(chart.LEFT + 18, y, line.name, "start"))
    return "\n".join(parts)


def _text(x: float, y: float, text: str, anchor: str, weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
    return str(value)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
