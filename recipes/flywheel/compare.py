"""Held-out success after SFT on each way to make data of the same trajectories, and how much data each way made.

python -m recipes.flywheel.compare --out outputs/flywheel --seeds 0 1 2
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.parquet
from rich.console import Console

from recipes.seed_table import held_out_rates, seed_table

WAYS = {
    "everything": "collect/everything.parquet",
    "solved": "collect/solved.parquet",
    "filtered": "refine/filtered.parquet",
    "augmented": "refine/augmented.parquet",
}
"""Stage of the plan -> what it was trained on."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.flywheel.compare", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the runs, a folder seed-N each")
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    given = parser.parse_args()
    folders = [given.out / f"seed-{seed}" for seed in given.seeds]
    rates = {stage: held_out_rates(folder / stage / "result.json" for folder in folders) for stage in ("before", *WAYS)}
    console = Console(width=120)
    console.print(seed_table(given.seeds, rates, "before"))
    for way, file in WAYS.items():
        rows = [pyarrow.parquet.read_metadata(folder / file).num_rows for folder in folders]
        console.print(f"{way}: {', '.join(map(str, rows))} conversations", highlight=False)


if __name__ == "__main__":
    main()
