"""An OpenEnv server's environment -> train, validation and test tasks, in parquet.

No two tasks of any split have the same seed, which the server's reset is given. Nothing is asked of the server here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_rl.commands.options import json_object
from agentgym_rl.environments.openenv_adapter import DEFAULT_MAX_TURNS
from agentgym_rl.task import Task
from data_preprocess.splits import draw_distinct, parser_of, sizes_of, write_splits


def build(arguments: Mapping[str, Any], sizes: Mapping[str, int], seed: int) -> dict[str, list[Task]]:
    """Draw the tasks of every split.

    Args:
        arguments: of every task; see `agentgym_rl.environments.openenv_adapter`.
        sizes: tasks per split, e.g. {"train": 512, "validation": 64, "test": 256}.
        seed: of the draw.

    Raises:
        ConfigurationError: sizes that can't work.
    """

    def make(name: str, split: str, own_seed: int) -> Task:
        return Task(name, "openenv", arguments, seed=own_seed, split=split)

    return draw_distinct("openenv", sizes, seed, make, lambda task: task.seed)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("openenv", __doc__, train=512, validation=64, test=128)
    parser.add_argument("--base-url", required=True, help="http://host:port, as the machines that play reach it")
    parser.add_argument("--reset", default="{}", help="further arguments of the server's reset; a JSON object")
    parser.add_argument("--success-reward", type=float, help="least sum of rewards of a solved episode")
    parser.add_argument("--max-turns", type=int, default=DEFAULT_MAX_TURNS, help="limit of turns of every task")
    given = parser.parse_args(arguments)
    task_arguments = {"base_url": given.base_url, "max_turns": given.max_turns}
    if given.success_reward is not None:
        task_arguments["success_reward"] = given.success_reward
    if reset := json_object(given.reset, "--reset"):
        task_arguments["reset"] = reset
    write_splits(build(task_arguments, sizes_of(given), given.seed), given.out)


if __name__ == "__main__":
    main()
