"""Mazes -> train, validation and test tasks, in parquet.

No two tasks of any split are the same maze with the same start and goal, and every goal can be reached within
`max_turns`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentgym_rl.environments.maze import plan_of, shortest_way
from agentgym_rl.task import Task
from data_preprocess.splits import draw_distinct, parser_of, sizes_of, write_splits


def build(size: int, sizes: Mapping[str, int], max_turns: int, seed: int) -> dict[str, list[Task]]:
    """Draw the tasks of every split.

    Args:
        size: cells a side.
        sizes: tasks per split, e.g. {"train": 512, "validation": 64, "test": 256}.
        max_turns: limit of turns of every task.
        seed: of the draw.

    Raises:
        ConfigurationError: a size that can't work.
        DataError: there are too few different mazes.
    """

    def make(name: str, split: str, own_seed: int) -> Task | None:
        task = Task(name, "maze", {"size": size, "max_turns": max_turns}, seed=own_seed, split=split)
        plan = plan_of(task)
        return task if len(shortest_way(plan, plan.start)) <= max_turns else None

    return draw_distinct("maze", sizes, seed, make, plan_of)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("maze", __doc__, train=512, validation=64, test=256)
    parser.add_argument("--size", type=int, default=5, help="cells a side")
    parser.add_argument("--max-turns", type=int, default=32, help="limit of turns of every task")
    given = parser.parse_args(arguments)
    write_splits(build(given.size, sizes_of(given), given.max_turns, given.seed), given.out)


if __name__ == "__main__":
    main()
