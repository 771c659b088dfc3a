"""ALFWorld tasks -> train, validation and test tasks, in parquet: of the published games, or of rooms drawn here.

`--published` takes the games below the folder that ALFWORLD_DATA names, split as published (train, valid_seen,
valid_unseen). Without it, rooms are drawn: training and validation tasks in the 96 rooms that the package trains in,
test tasks in the 24 others; no two tasks are the same type, room and seed. Drawing needs the package `alfworld`, and
so has to be run by a Python that has it (with pyarrow).
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentgym_rl.environments.alfworld_rooms import TASK_TYPES, draw_room
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.task import Task
from data_preprocess.splits import deal, draw_distinct, parser_of, require_sizes, sizes_of, write_splits

FOLDER_OF = {"train": "train", "validation": "valid_seen", "test": "valid_unseen"}
"""Split -> folder of the published games."""
FIRST_ROOMS = (0, 200, 300, 400)
"""One below the first kitchen, living room, bedroom and bathroom; there are 30 of each."""
TEST_ROOMS = tuple(first + i for first in FIRST_ROOMS for i in range(1, 7))
TRAIN_ROOMS = tuple(first + i for first in FIRST_ROOMS for i in range(7, 31))


def build(task_types: Sequence[str], sizes: Mapping[str, int], max_turns: int, seed: int) -> dict[str, list[Task]]:
    """Draw rooms for the tasks of every split.

    Args:
        task_types: of `TASK_TYPES`, dealt in turn.
        sizes: tasks per split, e.g. {"train": 512, "validation": 64, "test": 256}.
        max_turns: limit of turns of every task.
        seed: of the draw.

    Raises:
        ConfigurationError: no type, an unknown one, or sizes that can't work.
        DataError: no room has anything for a type.
    """
    unknown = sorted(set(task_types) - set(TASK_TYPES))
    if unknown or not task_types:
        raise ConfigurationError(f"ALFWorld's types of tasks are {', '.join(TASK_TYPES)}; given: {list(task_types)}")

    def make(name: str, split: str, own_seed: int) -> Task | None:
        rooms = TEST_ROOMS if split == "test" else TRAIN_ROOMS
        task_type = task_types[int(name.rpartition("-")[2]) % len(task_types)]
        room = random.Random(own_seed).choice(rooms)
        try:
            draw_room(task_type, room, own_seed)
        except ConfigurationError:  # this room has nothing for it
            return None
        arguments = {"task_type": task_type, "room": room, "max_turns": max_turns}
        return Task(name, "alfworld", arguments, seed=own_seed, split=split)

    return draw_distinct("alfworld", sizes, seed, make, lambda task: (*task.arguments.values(), task.seed))


def published(folder: Path, sizes: Mapping[str, int], max_turns: int, seed: int) -> dict[str, list[Task]]:
    """Tasks of the published games below a folder, each game at most once.

    Raises:
        ConfigurationError: sizes that can't work.
        DataError: a split has fewer games than tasks are asked for.
    """
    require_sizes(sizes)
    tasks: dict[str, list[Task]] = {}
    for split, size in sizes.items():
        games = sorted(str(path.relative_to(folder)) for path in folder.glob(f"**/{FOLDER_OF[split]}/**/game.tw-pddl"))
        dealt = deal("alfworld", games, {split: size}, seed)[split] if size else []
        tasks[split] = [
            Task(name, "alfworld", {"file": game, "max_turns": max_turns}, split=split) for name, game in dealt
        ]
    return {split: rows for split, rows in tasks.items() if rows}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("alfworld", __doc__, train=64, validation=16, test=32)
    parser.add_argument("--published", action="store_true", help="take the published games instead of drawing rooms")
    parser.add_argument("--task-types", nargs="+", default=list(TASK_TYPES), help="of drawn rooms, dealt in turn")
    parser.add_argument("--max-turns", type=int, default=50, help="limit of turns of every task")
    given = parser.parse_args(arguments)
    if given.published:
        folder = Path(os.environ.get("ALFWORLD_DATA", "~/.cache/alfworld")).expanduser()
        tasks = published(folder, sizes_of(given), given.max_turns, given.seed)
    else:
        tasks = build(given.task_types, sizes_of(given), given.max_turns, given.seed)
    write_splits(tasks, given.out)
    print("from the published games" if given.published else "in rooms drawn by this project")


if __name__ == "__main__":
    main()
