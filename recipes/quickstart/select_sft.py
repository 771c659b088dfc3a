"""Early stopping of the warm start: the first SFT checkpoint that solves enough validation tasks, by sampling.

    python -m recipes.quickstart.select_sft --out outputs/quickstart/seed-0

The checkpoint's Hugging Face folder is copied to <out>/sft. If none is good enough, the best one is taken and said so;
of several that are equally good, the last. `--by return` asks for the mean return instead, where tasks earn in parts.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.episode import Limits
from agentgym_rl.errors import DataError
from agentgym_rl.evaluation.policies import Sampling, policies
from agentgym_rl.evaluation.result import Summary
from agentgym_rl.evaluation.run import evaluate
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.task import Task

ENOUGH = 0.35
"""Of the validation tasks, by sampling: where imitation ends and reinforcement begins, unless told otherwise."""

SKIPPED = 4
"""The first checkpoints are far from good enough; playing them takes longest, since they say nothing sensible."""


def checkpoints(folder: Path) -> list[Path]:
    """Hugging Face folders of verl's SFT checkpoints, in the order of their steps."""
    found = sorted(folder.glob("global_step_*/huggingface"), key=lambda path: int(path.parent.name.rpartition("_")[2]))
    if not found:
        raise DataError(f"{folder} holds no checkpoint global_step_*/huggingface")
    return found


async def sampled_score(
    checkpoint: Path, tasks: Sequence[Task], pool: EnvironmentPool, given: argparse.Namespace
) -> float:
    """Success rate or mean return on the tasks."""
    with policies(f"checkpoint:{checkpoint}", Sampling(1.0, given.max_tokens, given.seed)) as make_policy:
        found = await evaluate(make_policy, tasks, Limits(), given.concurrency, pool=pool)
    return judged_rate(found.overall()) if given.by == "success" else judged_return(found.overall())


async def scored(given: argparse.Namespace) -> dict[Path, float]:
    """The score of each checkpoint in turn, up to the first that is good enough."""
    tasks = read_tasks(given.out / "data" / "validation.parquet")
    found = checkpoints(given.out / "sft_checkpoints")
    if given.skip >= len(found):
        raise DataError(f"there are {len(found)} checkpoints, and --skip {given.skip} leaves none to choose from")
    scores: dict[Path, float] = {}
    async with EnvironmentPool(given.concurrency) as pool:
        for checkpoint in found[given.skip :]:
            scores[checkpoint] = await sampled_score(checkpoint, tasks, pool, given)
            print(f"{checkpoint.parent.name}: {given.by} {scores[checkpoint]:.1%} on the validation tasks", flush=True)
            if scores[checkpoint] >= given.enough:
                break
    return scores


def judged_rate(summary: Summary) -> float:
    """The success rate.

    Raises:
        DataError: not one episode was judged; that is no success rate of 0.
    """
    if summary.success.value is None:
        raise DataError(f"not one of {summary.episodes} episodes was judged; failures: {dict(summary.failures)}")
    return summary.success.value


def judged_return(summary: Summary) -> float:
    """The mean return.

    Raises:
        DataError: every episode failed.
    """
    if summary.mean_return is None:
        raise DataError(f"every one of {summary.episodes} episodes failed: {dict(summary.failures)}")
    return summary.mean_return


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.quickstart.select_sft", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the run's folder")
    parser.add_argument("--max-tokens", type=int, default=6, help="of one reply")
    parser.add_argument("--seed", type=int, default=0, help="of the sampler")
    parser.add_argument("--by", choices=("success", "return"), default="success", help="what must be good enough")
    parser.add_argument("--enough", type=float, default=ENOUGH, help="how good that must be")
    parser.add_argument("--concurrency", type=int, default=64, help="episodes under way at once")
    parser.add_argument("--skip", type=int, default=SKIPPED, help="checkpoints that are not played")
    given = parser.parse_args()
    scores = asyncio.run(scored(given))
    chosen = max(reversed(scores), key=lambda path: scores[path])
    if scores[chosen] < given.enough:
        print(f"no checkpoint reached {given.enough:.0%}; going on with the best one")
    shutil.copytree(chosen, given.out / "sft", dirs_exist_ok=True)
    print(f"{chosen.parent.name} becomes the start of GRPO")


if __name__ == "__main__":
    main()
