"""A run or a store as one self-contained HTML file: settings, curves, evaluations, histograms, trajectories to read.

It fetches nothing and runs no script. Whatever a model or an environment wrote is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_rl.data.encodable import encodable
from agentgym_rl.data.replaced import replaced
from agentgym_rl.data.sft_parquet import TRAINED
from agentgym_rl.errors import DataError
from agentgym_rl.evaluation.result import Evaluation, Summary
from agentgym_rl.evaluation.success import Estimate, difference
from agentgym_rl.trajectory import Trajectory
from agentgym_rl.viewer import chart
from agentgym_rl.viewer.chart import Curve
from agentgym_rl.viewer.histogram import Histogram

TEMPLATE = "report.html.j2"


class Shown(NamedTuple):
    """A trajectory to read, and what else is known about it: name -> value, shown as they are."""

    trajectory: Trajectory
    facts: Mapping[str, Any]


class EvaluationLine(NamedTuple):
    """One line of the evaluation table."""

    label: str
    summary: Summary
    gain: Estimate | None
    """Success rate minus that of the first line, paired; None for that line itself, and where the tasks differ."""
    is_part: bool
    """One environment of several, under the line over all."""


def write_report(
    path: str | Path,
    title: str,
    settings: Mapping[str, Any],
    curves: Sequence[Curve] = (),
    evaluations: Sequence[tuple[str, Evaluation]] = (),
    trajectories: Sequence[Trajectory | Shown] = (),
    overview: Sequence[Sequence[str]] = (),
    histograms: Sequence[Histogram] = (),
) -> None:
    """Write the report; a part that is empty is left out.

    Args:
        path: where the HTML file goes.
        title: the heading.
        settings: name -> value, shown as they are.
        curves: what happened at which training step; one chart for each axis among them.
        evaluations: label -> evaluation in the table's order; the others are compared with the first.
        trajectories: to read; a few are enough.
        overview: a table, its head first.
        histograms: how numbers are spread.
    """
    html = _template().render(
        title=title,
        settings=settings,
        charts=chart.charts(curves),
        size=chart,
        lines=evaluation_lines(evaluations),
        episodes=[one if isinstance(one, Shown) else Shown(one, {}) for one in trajectories],
        overview=overview,
        histograms=histograms,
        trained=TRAINED,
    )
    with replaced(path) as beside:
        beside.write_text(encodable(html), encoding="utf-8")


def evaluation_lines(evaluations: Sequence[tuple[str, Evaluation]]) -> list[EvaluationLine]:
    """A line for each evaluation, and one for each of its environments where there are several."""
    lines = []
    for index, (label, evaluation) in enumerate(evaluations):
        gain = _gain(evaluations[0][1], evaluation) if index else None
        parts = evaluation.summary()
        only = parts[0] if len(parts) == 1 else evaluation.overall()
        lines.append(EvaluationLine(label, only, gain, is_part=False))
        if len(parts) > 1:
            lines += [EvaluationLine(part.environment, part, None, is_part=True) for part in parts[:-1]]
    return lines


def _gain(first: Evaluation, second: Evaluation) -> Estimate | None:
    try:
        return difference(first.outcomes, second.outcomes)
    except DataError:
        return None


def _template() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(percent=_percent, points=_points)
    return environment.get_template(TEMPLATE)


def _percent(share: float | None) -> str:
    return "undefined" if share is None else f"{share:.1%}"


def _points(share: float | None) -> str:
    """A difference of two rates, in percentage points and with its sign."""
    return "undefined" if share is None else f"{100 * share:+.1f}"
