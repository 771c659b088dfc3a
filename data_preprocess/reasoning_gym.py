"""Datasets of reasoning-gym -> train, validation and test tasks, in parquet. No question is asked twice."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_rl.commands.options import json_object
from agentgym_rl.environments.reasoning_gym import ReasoningGym, dataset_names
from agentgym_rl.errors import ConfigurationError, require_allowed_keys
from agentgym_rl.task import Task
from data_preprocess.splits import draw_distinct, parser_of, require_sizes, sizes_of, write_splits


def build(
    datasets: Sequence[str],
    configs: Mapping[str, Mapping[str, Any]],
    sizes: Mapping[str, int],
    max_turns: int,
    seed: int,
) -> dict[str, list[Task]]:
    """Draw the tasks of every split, as evenly over the datasets as can be.

    Args:
        datasets: names; empty: all.
        configs: dataset -> fields of its own config; of none of the others.
        sizes: tasks per split.
        max_turns: limit of turns of every task.
        seed: of the draw.

    Raises:
        ConfigurationError: a name, config or size that can't work.
        DataError: a dataset has too few different questions.
    """
    require_sizes(sizes)
    names = list(dict.fromkeys(datasets)) or list(dataset_names())
    require_allowed_keys(configs, names, "the choice of datasets")
    random.Random(seed).shuffle(names)  # which ones get a task more, or one at all
    drawn: dict[str, list[Task]] = {split: [] for split, size in sizes.items() if size}
    for place, name in enumerate(names):
        share = {split: len(range(place, size, len(names))) for split, size in sizes.items()}
        if any(share.values()):
            for split, tasks in _draw(name, configs.get(name, {}), share, max_turns, seed).items():
                drawn[split] += tasks
    return drawn


def _draw(
    name: str, config: Mapping[str, Any], sizes: Mapping[str, int], max_turns: int, seed: int
) -> dict[str, list[Task]]:
    arguments = {"dataset": name, **({"config": config} if config else {}), "max_turns": max_turns}
    world = ReasoningGym()

    def make(identity: str, split: str, own_seed: int) -> Task:
        return Task(identity, "reasoning-gym", arguments, seed=own_seed, split=split)

    def question(task: Task) -> str:
        return world.reset(task)[0].content

    return draw_distinct(f"reasoning-gym-{name}", sizes, seed, make, question)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("reasoning_gym", __doc__, train=1050, validation=105, test=210)
    parser.add_argument("--datasets", nargs="+", default=[], metavar="NAME", help="default: all 105")
    parser.add_argument(
        "--configs", default="{}", help='JSON, e.g. \'{"countdown": {"min_numbers": 3, "max_numbers": 3}}\''
    )
    parser.add_argument("--max-turns", type=int, default=1, help="tries at an answer that can be read")
    given = parser.parse_args(arguments)
    configs = json_object(given.configs, "--configs")
    if wrong := [name for name, config in configs.items() if not isinstance(config, dict)]:
        raise ConfigurationError(f"--configs holds an object for each dataset; given for {wrong[0]!r}: {given.configs}")
    write_splits(build(given.datasets, configs, sizes_of(given), given.max_turns, given.seed), given.out)


if __name__ == "__main__":
    main()
