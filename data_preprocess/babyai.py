"""BabyAI levels -> train, validation and test tasks, in parquet.

Each split has its own seeds, and no two tasks of any split are the same world with the same mission (checked). Every
task is one that the expert solves within `max_turns`, so a success rate of 1 can be reached.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentgym_rl.environments.babyai import BabyAI, level_id, make_world
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task

SEEDS_PER_TASK = 200
"""Seeds that are tried for one task before its level counts as too small or too hard."""


def build(levels: Sequence[str], sizes: Mapping[str, int], max_turns: int, seed: int) -> dict[str, list[Task]]:
    """Draw the tasks of every split.

    Args:
        levels: level names (ids or short forms), dealt in turn.
        sizes: tasks per split, e.g. {"train": 512, "validation": 64, "test": 256}.
        max_turns: limit of turns of every task.
        seed: of the draw.

    Raises:
        ConfigurationError: no level, an unknown level, or a size below 1.
        DataError: a level has too few distinct worlds that the expert solves within `max_turns`.
    """
    if not levels:
        raise ConfigurationError("BabyAI tasks need at least one level")
    for split, size in sizes.items():
        if size < 1:
            raise ConfigurationError(f"a split needs at least 1 task; given for {split!r}: {size}")
    draw = _Draw([level_id(level) for level in levels], max_turns, seed)
    built = {split: [draw.task(split, i) for i in range(size)] for split, size in sizes.items()}
    require_disjoint(built)
    return built


def require_disjoint(splits: Mapping[str, Sequence[Task]]) -> None:
    """Check that no level and seed, and no world, is in two places.

    Raises:
        DataError: two tasks are the same; names both.
    """
    owner: dict[object, str] = {}
    for task in (task for tasks in splits.values() for task in tasks):
        for key in ((task.arguments["level"], task.seed), world_of(task)):
            if key in owner:
                raise DataError(f"tasks {owner[key]!r} and {task.id!r} are the same BabyAI world")
            owner[key] = task.id


def world_of(task: Task) -> str:
    """A hash of the task's grid, start and mission: equal for equal worlds, whatever their seeds."""
    world = make_world(task.arguments["level"])
    world.reset(seed=task.seed)
    return f"{world.hash(32)} {world.mission}"


class _Draw:
    """Draws tasks whose worlds are all different and that the expert solves."""

    def __init__(self, levels: Sequence[str], max_turns: int, seed: int):
        self._levels = levels
        self._max_turns = max_turns
        self._random = random.Random(seed)
        self._worlds: set[str] = set()

    def task(self, split: str, index: int) -> Task:
        level = self._levels[index % len(self._levels)]
        arguments = {"level": level, "max_turns": self._max_turns}
        for _ in range(SEEDS_PER_TASK):
            task = Task(f"babyai-{split}-{index}", "babyai", arguments, seed=self._random.getrandbits(31), split=split)
            world = world_of(task)
            if world not in self._worlds and _expert_solves(task):
                self._worlds.add(world)
                return task
        raise DataError(
            f"{level} has no further world among {SEEDS_PER_TASK} seeds that the expert solves within "
            f"{self._max_turns} turns, after {len(self._worlds)} tasks; ask for fewer tasks or more turns"
        )


def _expert_solves(task: Task) -> bool:
    game = BabyAI()
    game.reset(task)
    try:
        while True:
            result = game.step(assistant(game.expert_action()))
            if result.terminated or result.truncated:
                return bool(result.success)
    except EnvironmentFailed:  # the expert has no plan
        return False


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    from agentgym_rl.data.parquet import write_tasks

    parser = argparse.ArgumentParser(prog="python -m data_preprocess.babyai", description=__doc__)
    parser.add_argument("--levels", nargs="+", default=["GoToObj", "OneRoomS8"], help="level names, dealt in turn")
    parser.add_argument("--max-turns", type=int, default=8, help="limit of turns of every task")
    parser.add_argument("--train", type=int, default=512, help="training tasks")
    parser.add_argument("--validation", type=int, default=64, help="validation tasks")
    parser.add_argument("--test", type=int, default=256, help="test tasks")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument("--out", type=Path, required=True, help="folder for <split>.parquet")
    given = parser.parse_args(arguments)
    sizes = {"train": given.train, "validation": given.validation, "test": given.test}
    for split, tasks in build(given.levels, sizes, given.max_turns, given.seed).items():
        path = given.out / f"{split}.parquet"
        write_tasks(tasks, path)
        print(f"{path}: {len(tasks)} tasks")


if __name__ == "__main__":
    main()
