"""Success of each seed and stage on held-out tasks, and the mean over the seeds with a t-interval.

python -m recipes.quickstart.seeds outputs/seeds/seed-*
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from agentgym_rl.evaluation.result import Evaluation
from agentgym_rl.evaluation.success import mean_over_seeds
from agentgym_rl.viewer.terminal import rate_text
from recipes.quickstart.report import SAMPLERS, STAGES
from recipes.quickstart.select_sft import judged_rate


def rates(folders: list[Path], stage: str, sampler: str) -> list[float]:
    """Success rate of one stage, a number for each seed."""
    found = [Evaluation.read(folder / "evaluation" / f"{stage}-{sampler}.json").overall() for folder in folders]
    return [judged_rate(summary) for summary in found]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.quickstart.seeds", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="one finished run a seed")
    folders = parser.parse_args().folders

    table = Table("policy", *[folder.name for folder in folders], "mean (95%)", title_justify="left")
    for sampler in SAMPLERS:
        for stage, label in STAGES.items():
            by_seed = rates(folders, stage, sampler)
            table.add_row(f"{label}, {sampler}", *[f"{r:.1%}" for r in by_seed], rate_text(mean_over_seeds(by_seed)))
        before, after = rates(folders, "sft", sampler), rates(folders, "grpo", sampler)
        gains = [b - a for a, b in zip(before, after, strict=True)]
        table.add_row(f"gain of GRPO, {sampler}", *[f"{g:+.1%}" for g in gains], rate_text(mean_over_seeds(gains)))
    Console().print(table)


if __name__ == "__main__":
    main()
