"""Learning curves and held-out success of each estimator, as means over the seeds with t-intervals.

python -m recipes.estimators.compare --from outputs/seeds --out outputs/estimators \
    --seeds 0 1 2 --estimators trajectory_grpo gigpo
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from agentgym_rl.evaluation.result import Evaluation
from agentgym_rl.evaluation.success import mean_over_seeds
from agentgym_rl.follow import read_metrics
from agentgym_rl.viewer.chart import Curve, Point
from agentgym_rl.viewer.report import write_report
from agentgym_rl.viewer.terminal import rate_text
from recipes.quickstart.select_sft import judged_rate

SUCCESS = "episode/babyai/success"
WINDOW = 5
"""Steps that a point of a curve averages: 320 episodes a seed."""


def curve(name: str, runs: Sequence[dict[int, dict[str, float]]]) -> Curve:
    """Training success, the mean of the seeds over windows of steps."""
    steps = sorted(set.intersection(*(set(run) for run in runs)))
    points = []
    for end in range(WINDOW, len(steps) + 1, WINDOW):
        window = steps[end - WINDOW : end]
        means = [sum(run[step][SUCCESS] for step in window) / WINDOW for run in runs]
        estimate = mean_over_seeds(means)
        points.append(Point(window[-1], sum(means) / len(means), estimate.low, estimate.high))
    return Curve(name, points, "training success, mean of the seeds (95%)")


def test_rate(file: Path) -> float:
    """Share of the held-out tasks that were solved."""
    return judged_rate(Evaluation.read(file).overall())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.estimators.compare", description=__doc__)
    parser.add_argument("--from", dest="start", type=Path, required=True, help="the quickstart's runs")
    parser.add_argument("--out", type=Path, required=True, help="the estimators' runs")
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--estimators", nargs="+", required=True)
    given = parser.parse_args()

    before = [test_rate(given.start / f"seed-{seed}" / "evaluation" / "sft-sampled.json") for seed in given.seeds]
    table = Table("estimator", *[f"seed {seed}" for seed in given.seeds], "mean (95%)", "gain (95%)", "seconds a step")
    table.add_row("before", *[f"{rate:.1%}" for rate in before], rate_text(mean_over_seeds(before)), "", "")
    curves = []
    for name in given.estimators:
        folders = [given.out / name / f"seed-{seed}" for seed in given.seeds]
        runs = [read_metrics(folder / "metrics") for folder in folders]
        curves.append(curve(name, runs))
        after = [test_rate(folder / "evaluation.json") for folder in folders]
        gains = [b - a for a, b in zip(before, after, strict=True)]
        seconds = [values["timing_s/step"] for run in runs for values in run.values() if "timing_s/step" in values]
        estimates = rate_text(mean_over_seeds(after)), rate_text(mean_over_seeds(gains))
        table.add_row(name, *[f"{rate:.1%}" for rate in after], *estimates, f"{sum(seconds) / len(seconds):.1f}")
    Console(width=120).print(table)
    report = given.out / "report.html"
    write_report(report, "Estimators on BabyAI", {"seeds": len(given.seeds), "points": f"{WINDOW} steps"}, curves)
    print(f"curves: {report}")


if __name__ == "__main__":
    main()
