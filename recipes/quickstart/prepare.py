"""Expert trajectories on the training tasks, as SFT parquet; and the default policy where no model is given.

python -m recipes.quickstart.prepare --out outputs/quickstart/seed-0 [--model PATH] [--seed 0]

Whatever environment the tasks name, if it has an expert. What the expert fails to solve is not imitated.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from rich.progress import Progress

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.data.sft_parquet import write_sft
from agentgym_rl.environment import Environment
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.evaluation.run import play_one
from agentgym_rl.policy import ExpertPolicy
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.task import Task
from agentgym_rl.together import all_or_cancel
from agentgym_rl.trajectory import Trajectory

ENVIRONMENTS = 4
"""How many are played at a time; some have a process of their own."""


async def expert_trajectories(tasks: Sequence[Task]) -> list[Trajectory]:
    """One of each task, solved or not."""

    def expert(environment: Environment, task: Task, episode: int) -> ExpertPolicy:
        return ExpertPolicy(environment)

    with Progress() as progress:
        bar = progress.add_task("expert", total=len(tasks))

        async def played(task: Task) -> Trajectory:
            trajectory = await play_one(expert, task, 0, None, pool)
            progress.advance(bar)
            return trajectory

        async with EnvironmentPool(ENVIRONMENTS) as pool:
            return await all_or_cancel([played(task) for task in tasks])


def texts_of(trajectories: Sequence[Trajectory]) -> list[str]:
    """Every message, for the tokenizer to learn from."""
    return [message.content for trajectory in trajectories for message in trajectory.messages]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.quickstart.prepare", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the run's folder; holds data/train.parquet")
    parser.add_argument("--model", type=Path, help="Hugging Face folder to start from; default: a small new one")
    parser.add_argument("--seed", type=int, default=0, help="of the default policy's weights")
    given = parser.parse_args()
    if given.model and not (given.model / "config.json").is_file():
        raise ConfigurationError(f"{given.model} is no Hugging Face folder: it has no config.json")

    tasks = read_tasks(given.out / "data" / "train.parquet")
    solved = [played for played in asyncio.run(expert_trajectories(tasks)) if played.success]
    random.Random(given.seed).shuffle(solved)
    count = write_sft(solved, given.out / "data" / "sft.parquet")
    print(f"{count} expert trajectories; {len(tasks) - count} tasks that the expert did not solve")
    if not given.model:
        from verl_ext.default_policy import make_default_policy

        make_default_policy(given.out / "policy", texts_of(solved), seed=given.seed)
        print(f"a new policy in {given.out / 'policy'}")


if __name__ == "__main__":
    main()
