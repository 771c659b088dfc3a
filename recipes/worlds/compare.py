"""Success and mean return on held-out tasks before and after GRPO, a column a seed, with t-intervals over the seeds.

python -m recipes.worlds.compare --out outputs/worlds/textcraft --seeds 0 1 2
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from agentgym_rl.evaluation.result import Evaluation
from recipes.quickstart.select_sft import judged_return
from recipes.seed_table import held_out_rates, seed_table

STAGES = {"before": "after SFT", "after": "after GRPO"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.worlds.compare", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the runs, a folder seed-N each")
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    given = parser.parse_args()
    rates, returns = {}, {}
    for stage, label in STAGES.items():
        files = [given.out / f"seed-{seed}" / stage / "result.json" for seed in given.seeds]
        rates[f"{label}, solved"] = held_out_rates(files)
        returns[f"{label}, return"] = [judged_return(Evaluation.read(file).overall()) for file in files]
    console = Console(width=120)
    for numbers in (rates, returns):
        console.print(seed_table(given.seeds, numbers, next(iter(numbers))))


if __name__ == "__main__":
    main()
