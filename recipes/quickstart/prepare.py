"""Expert trajectories on the training tasks, as SFT parquet; and the default policy where no model is given.

python -m recipes.quickstart.prepare --out outputs/quickstart/seed-0 [--model PATH] [--seed 0]
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from rich.progress import track

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.data.sft_parquet import write_sft
from agentgym_rl.environments.registry import opened
from agentgym_rl.episode import play
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.policy import ExpertPolicy
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Trajectory


async def expert_trajectory(task: Task) -> Trajectory:
    async with opened(task.environment) as environment:
        return await play(ExpertPolicy(environment), environment, task)


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
    trajectories = [asyncio.run(expert_trajectory(task)) for task in track(tasks, "expert")]
    random.Random(given.seed).shuffle(trajectories)
    count = write_sft(trajectories, given.out / "data" / "sft.parquet")
    print(f"{count} expert trajectories, {sum(bool(t.success) for t in trajectories)} of them solved")
    if not given.model:
        from verl_ext.default_policy import make_default_policy

        make_default_policy(given.out / "policy", texts_of(trajectories), seed=given.seed)
        print(f"a new policy in {given.out / 'policy'}")


if __name__ == "__main__":
    main()
