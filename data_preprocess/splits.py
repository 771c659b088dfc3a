"""What the scripts of this folder share: sizes of splits on the command line, tasks that all differ, files.

Invariant: no two tasks of any split are the same world, by the key that the data set tells worlds apart with.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path

from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.task import Task

SEEDS_PER_TASK = 200
"""Seeds that are tried for one task before its world counts as used up."""

Make = Callable[[str, str, int], "Task | None"]
"""Id, split and seed -> a task; None: this seed gives none that is wanted."""


def draw_distinct(
    name: str, sizes: Mapping[str, int], seed: int, make: Make, key: Callable[[Task], Hashable]
) -> dict[str, list[Task]]:
    """Tasks of every split, no two with the same key.

    Args:
        name: of the data set; a task's id is `name-split-index`.
        sizes: tasks per split, e.g. {"train": 512, "validation": 64, "test": 256}.
        seed: of the draw.
        make: a task of a seed.
        key: equal for equal worlds, whatever their seeds.

    Raises:
        ConfigurationError: a size below 0, or nothing is asked for.
        DataError: there are too few different worlds.
    """
    require_sizes(sizes)
    chance = random.Random(seed)
    seen: set[Hashable] = set()

    def draw(split: str, index: int) -> Task:
        for _ in range(SEEDS_PER_TASK):
            task = make(f"{name}-{split}-{index}", split, chance.getrandbits(31))
            if task is not None and key(task) not in seen:
                seen.add(key(task))
                return task
        raise DataError(
            f"{name} has no further world among {SEEDS_PER_TASK} seeds, after {len(seen)} tasks; ask for fewer tasks "
            "or larger worlds"
        )

    return {split: [draw(split, index) for index in range(size)] for split, size in sizes.items() if size}


def deal(name: str, items: Sequence[str], sizes: Mapping[str, int], seed: int) -> dict[str, list[tuple[str, str]]]:
    """(task id, item) of every split: each item goes to one split, drawn by the seed.

    Raises:
        ConfigurationError: a size below 0, or nothing is asked for.
        DataError: there are fewer items than tasks.
    """
    require_sizes(sizes)
    if sum(sizes.values()) > len(items):
        raise DataError(f"{name} has {len(items)} different tasks; {sum(sizes.values())} were asked for")
    left = iter(random.Random(seed).sample(list(items), len(items)))
    return {split: [(f"{name}-{split}-{i}", next(left)) for i in range(size)] for split, size in sizes.items() if size}


def require_sizes(sizes: Mapping[str, int]) -> None:
    """Raise a ConfigurationError unless at least one task is asked for."""
    for split, size in sizes.items():
        if size < 0:
            raise ConfigurationError(f"a split has at least 0 tasks; given for {split!r}: {size}")
    if not any(sizes.values()):
        raise ConfigurationError(f"at least one split must have a task; given: {dict(sizes)}")


def parser_of(script: str, description: str | None, train: int, validation: int, test: int) -> argparse.ArgumentParser:
    """A command line with the sizes of the splits, a seed and a folder to write to."""
    parser = argparse.ArgumentParser(prog=f"python -m data_preprocess.{script}", description=description)
    parser.add_argument("--train", type=int, default=train, help="training tasks")
    parser.add_argument("--validation", type=int, default=validation, help="validation tasks")
    parser.add_argument("--test", type=int, default=test, help="test tasks")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument("--out", type=Path, required=True, help="folder for <split>.parquet")
    return parser


def sizes_of(given: argparse.Namespace) -> dict[str, int]:
    """Tasks per split, as the command line says."""
    return {"train": given.train, "validation": given.validation, "test": given.test}


def write_splits(splits: Mapping[str, Sequence[Task]], folder: Path) -> None:
    """One parquet file a split."""
    from agentgym_rl.data.parquet import write_tasks

    for split, tasks in splits.items():
        path = folder / f"{split}.parquet"
        write_tasks(tasks, path)
        print(f"{path}: {len(tasks)} tasks")
