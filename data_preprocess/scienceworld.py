"""ScienceWorld tasks -> train, validation and test tasks, in parquet.

The package splits the variations of each task into train, dev and test; training tasks come from the first, validation
tasks from the second, test tasks from the third. The simulator's own solution of every task fits into `max_turns`;
making it takes from under a second to half a minute a task.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from agentgym_rl.environments.scienceworld import TASKS, ScienceWorld
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.task import Task
from data_preprocess.splits import parser_of, require_sizes, sizes_of, write_splits

SPLIT_OF = {"train": "train", "validation": "dev", "test": "test"}


def build(tasks: Sequence[str], sizes: Mapping[str, int], max_turns: int, seed: int) -> dict[str, list[Task]]:
    """Draw the tasks of every split.

    Args:
        tasks: of `TASKS`, dealt in turn for as long as each has variations left.
        sizes: tasks per split, e.g. {"train": 128, "validation": 32, "test": 64}.
        max_turns: limit of turns of every task.
        seed: of the draw.

    Raises:
        ConfigurationError: no task, or sizes that can't work.
        DataError: there are too few variations that can be solved within `max_turns`.
    """
    require_sizes(sizes)
    if not tasks:
        raise ConfigurationError(f"ScienceWorld needs at least one task of {', '.join(TASKS)}")
    with closing(ScienceWorld()) as simulator:
        return {
            split: list(_drawn(simulator, tasks, split, size, max_turns, random.Random(f"{seed} {split}")))
            for split, size in sizes.items()
            if size
        }


def _drawn(
    simulator: ScienceWorld, names: Sequence[str], split: str, size: int, max_turns: int, chance: random.Random
) -> Iterator[Task]:
    waiting = {name: list(simulator.variations(name, SPLIT_OF[split])) for name in names}
    for variations in waiting.values():
        chance.shuffle(variations)
    made = 0
    while made < size:
        if not any(waiting.values()):
            raise DataError(
                f"split {split!r} has {made} tasks with solutions of at most {max_turns} turns; {size} were asked for"
            )
        for name in [name for name, left in waiting.items() if left][: size - made]:
            arguments = {"task": name, "variation": waiting[name].pop(), "max_turns": max_turns}
            task = Task(f"scienceworld-{split}-{made}", "scienceworld", arguments, split=split)
            if len(simulator.solution_of(task)) <= max_turns:
                yield task
                made += 1


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("scienceworld", __doc__, train=64, validation=16, test=32)
    parser.add_argument(
        "--tasks", nargs="+", default=["find-living-thing", "find-plant"], help="dealt in turn; `all` for every task"
    )
    parser.add_argument("--max-turns", type=int, default=100, help="limit of turns of every task")
    given = parser.parse_args(arguments)
    names = TASKS if given.tasks == ["all"] else given.tasks
    write_splits(build(names, sizes_of(given), given.max_turns, given.seed), given.out)


if __name__ == "__main__":
    main()
