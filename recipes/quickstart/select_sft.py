"""Early stopping of the warm start: the first SFT checkpoint that solves enough validation tasks, by sampling.

    python -m recipes.quickstart.select_sft --out outputs/quickstart/seed-0

The checkpoint's Hugging Face folder is copied to <out>/sft. If none is good enough, the best one is taken and said so.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
from pathlib import Path

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.episode import Limits
from agentgym_rl.errors import DataError
from agentgym_rl.evaluation.policies import Sampling, policies
from agentgym_rl.evaluation.result import Summary
from agentgym_rl.evaluation.run import evaluate
from agentgym_rl.task import Task

ENOUGH = 0.35
"""Sampled success on the validation tasks at which imitation ends and reinforcement begins."""

SKIPPED = 4
"""The first checkpoints are far from good enough; playing them takes longest, since they say nothing sensible."""


def checkpoints(folder: Path) -> list[Path]:
    """Hugging Face folders of verl's SFT checkpoints, in the order of their steps."""
    found = sorted(folder.glob("global_step_*/huggingface"), key=lambda path: int(path.parent.name.rpartition("_")[2]))
    if not found:
        raise DataError(f"{folder} holds no checkpoint global_step_*/huggingface")
    return found


def sampled_success(checkpoint: Path, tasks: list[Task], max_tokens: int, seed: int) -> float:
    with policies(f"checkpoint:{checkpoint}", Sampling(1.0, max_tokens, seed)) as make_policy:
        evaluation = asyncio.run(evaluate(make_policy, tasks, Limits(), concurrency=64))
    return judged_rate(evaluation.overall())


def judged_rate(summary: Summary) -> float:
    """The success rate.

    Raises:
        DataError: not one episode was judged; that is no success rate of 0.
    """
    if summary.success.value is None:
        raise DataError(f"not one of {summary.episodes} episodes was judged; failures: {dict(summary.failures)}")
    return summary.success.value


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.quickstart.select_sft", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the run's folder")
    parser.add_argument("--max-tokens", type=int, default=6, help="of one reply")
    parser.add_argument("--seed", type=int, default=0, help="of the sampler")
    given = parser.parse_args()
    tasks = read_tasks(given.out / "data" / "validation.parquet")
    scores: dict[Path, float] = {}
    for checkpoint in checkpoints(given.out / "sft_checkpoints")[SKIPPED:]:
        scores[checkpoint] = sampled_success(checkpoint, tasks, given.max_tokens, given.seed)
        print(f"{checkpoint.parent.name}: {scores[checkpoint]:.1%} of the validation tasks", flush=True)
        if scores[checkpoint] >= ENOUGH:
            break
    chosen = max(scores, key=lambda path: scores[path])
    if scores[chosen] < ENOUGH:
        print(f"no checkpoint reached {ENOUGH:.0%}; going on with the best one")
    shutil.copytree(chosen, given.out / "sft", dirs_exist_ok=True)
    print(f"{chosen.parent.name} becomes the start of GRPO")


if __name__ == "__main__":
    main()
