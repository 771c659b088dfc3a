"""The run as one HTML file: learning curve, evaluation table, trajectories.

python -m recipes.quickstart.report --out outputs/quickstart/seed-0
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from agentgym_rl.data.trajectory_json import read_trajectories
from agentgym_rl.evaluation.result import Evaluation
from agentgym_rl.evaluation.success import success_rate
from agentgym_rl.follow import read_metrics
from agentgym_rl.viewer.chart import Curve, Point
from agentgym_rl.viewer.report import write_report
from agentgym_rl.viewer.terminal import rate_text

STAGES = {"start": "untrained", "sft": "after SFT", "grpo": "after GRPO"}
SAMPLERS = ("sampled", "greedy")
SHOWN_TRAJECTORIES = 6


def evaluations(out: Path) -> list[tuple[str, Evaluation]]:
    """(label, evaluation) of every stage and way of sampling; the stages of one way stand together."""
    return [
        (f"{label}, {sampler}", Evaluation.read(out / "evaluation" / f"{stage}-{sampler}.json"))
        for sampler in SAMPLERS
        for stage, label in STAGES.items()
    ]


def curves(out: Path, validation_episodes: int) -> list[Curve]:
    """Training and validation success per GRPO step."""
    metrics = read_metrics(out / "metrics" / "grpo")
    training, validation, turns = [], [], []
    for step, values in metrics.items():
        if "episode/babyai/success" in values:
            training.append(Point(step, values["episode/babyai/success"]))
            turns.append(Point(step, values["episode/babyai/turns/mean"]))
        if "val-core/babyai/acc/mean@1" in values:
            validation.append(_with_interval(step, values["val-core/babyai/acc/mean@1"], validation_episodes))
    return [Curve("training tasks", training), Curve("validation tasks", validation), Curve("turns", turns, "turns")]


def _with_interval(step: int, rate: float, episodes: int) -> Point:
    solved = round(rate * episodes)
    estimate = success_rate([True] * solved + [False] * (episodes - solved))
    return Point(step, rate, estimate.low, estimate.high)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.quickstart.report", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the run's folder")
    parser.add_argument("--validation-episodes", type=int, required=True, help="of one validation, for its interval")
    parser.add_argument("--setting", action="append", default=[], help="NAME=VALUE to show; any number")
    given = parser.parse_args()

    found = evaluations(given.out)
    trajectories = read_trajectories(given.out / "evaluation" / "grpo-sampled.jsonl")[:SHOWN_TRAJECTORIES]
    file = given.out / "report.html"
    settings = dict(text.split("=", 1) for text in given.setting)
    write_report(
        file, "Quickstart: BabyAI", settings, curves(given.out, given.validation_episodes), found, trajectories
    )

    table = Table("policy", "episodes", "success (95%)", "turns", title="Held-out test tasks", title_justify="left")
    for label, evaluation in found:
        whole = evaluation.overall()
        table.add_row(label, str(whole.episodes), rate_text(whole.success), f"{whole.mean_turns:.1f}")
    console = Console()
    console.print(table)
    console.print(f"report: {file}", soft_wrap=True)


if __name__ == "__main__":
    main()
