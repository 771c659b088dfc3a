"""Success of policies on held-out tasks: a column a seed, the mean over the seeds, and the gain over one of them.

Recipes share it, so that their tables read alike. The intervals are Student's over the seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.table import Table

from agentgym_rl.evaluation.result import Evaluation
from agentgym_rl.evaluation.success import mean_over_seeds
from agentgym_rl.viewer.terminal import rate_text
from recipes.quickstart.select_sft import judged_rate


def held_out_rates(files: Iterable[Path]) -> list[float]:
    """Share of the held-out tasks that were solved, a number for each result file of `eval`.

    Raises:
        DataError: in one of them nothing was judged.
    """
    return [judged_rate(Evaluation.read(file).overall()) for file in files]


def seed_table(seeds: Sequence[int], rates: Mapping[str, Sequence[float]], before: str) -> Table:
    """A table of the policies.

    Args:
        seeds: what the columns are called.
        rates: policy -> one success rate a seed.
        before: the policy that gains are told over, seed by seed.
    """
    table = Table("policy", *[f"seed {seed}" for seed in seeds], "mean (95%)", "gain (95%)")
    for policy, by_seed in rates.items():
        gains = [rate - start for rate, start in zip(by_seed, rates[before], strict=True)]
        gain = "" if policy == before else rate_text(mean_over_seeds(gains))
        table.add_row(policy, *[f"{rate:.1%}" for rate in by_seed], rate_text(mean_over_seeds(by_seed)), gain)
    return table
