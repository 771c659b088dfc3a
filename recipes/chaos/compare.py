"""What the faults cost: success after GRPO with and without them, from the same start, and what became of them.

python -m recipes.chaos.compare --from outputs/quickstart --out outputs/chaos
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from agentgym_rl.evaluation.result import Evaluation
from agentgym_rl.evaluation.success import difference
from agentgym_rl.follow import read_metrics
from agentgym_rl.viewer.terminal import rate_text

FAILED = "episode/failed/"


def lost_by_cause(metrics: dict[int, dict[str, float]]) -> dict[str, int]:
    """Sessions lost over the whole run, by cause."""
    causes: dict[str, int] = {}
    for values in metrics.values():
        for name, count in values.items():
            if name.startswith(FAILED):
                cause = name.removeprefix(FAILED)
                causes[cause] = causes.get(cause, 0) + int(count)
    return dict(sorted(causes.items()))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.chaos.compare", description=__doc__)
    parser.add_argument("--from", dest="start", type=Path, required=True, help="the quickstart's run")
    parser.add_argument("--out", type=Path, required=True, help="the run with faults")
    given = parser.parse_args()
    calm = Evaluation.read(given.start / "evaluation" / "grpo-sampled.json")
    chaos = Evaluation.read(given.out / "sampled.json")
    metrics = read_metrics(given.out / "metrics")

    table = Table("GRPO", "success (95%), sampled")
    table.add_row("without faults", rate_text(calm.overall().success))
    table.add_row("with faults", rate_text(chaos.overall().success))
    table.add_row("difference", rate_text(difference(calm.outcomes, chaos.outcomes)))
    console = Console()
    console.print(table)
    trained = sum(values.get("episode/babyai/count", 0) for values in metrics.values())
    retried = sum(values.get("episode/retried", 0) for values in metrics.values())
    console.print(f"sessions trained on: {trained:.0f}; tries played again: {retried:.0f}; lost, by cause:")
    for cause, count in lost_by_cause(metrics).items():
        console.print(f"  {cause}: {count}")


if __name__ == "__main__":
    main()
