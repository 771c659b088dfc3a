"""TextCraft goals -> train, validation and test tasks, in parquet.

Every goal belongs to one split; or, with `--shared-goals`, all splits have the same few goals, and no two tasks the
same recipes in the same order. Only goals that the expert crafts within `max_turns` are taken, so a success rate of 1
can be reached.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from agentgym_rl.environments.textcraft import goals_of_depth
from agentgym_rl.environments.textcraft_book import recipe_book
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.task import Task
from data_preprocess.splits import deal, draw_distinct, parser_of, sizes_of, write_splits


def build(
    depths: Iterable[int], sizes: Mapping[str, int], max_turns: int, seed: int, shared_goals: int = 0
) -> dict[str, list[Task]]:
    """Deal the goals to the splits.

    Args:
        depths: crafts on the longest branch of a goal; 1 to 4.
        sizes: tasks per split; there are 125 goals of depth 1, 291 of 2, 117 of 3 and 11 of 4.
        max_turns: limit of turns of every task.
        seed: of the draw.
        shared_goals: so many goals, drawn by the seed, are every split's; 0: each goal is one split's.

    Raises:
        ConfigurationError: a depth without goals, or a number that can't work.
        DataError: there are fewer goals, or fewer different openings of the shared ones, than tasks.
    """
    goals = [goal for depth in sorted(set(depths)) for goal in _goals(depth) if _commands(goal) <= max_turns]
    if shared_goals:
        return _build_shared(goals, sizes, max_turns, seed, shared_goals)
    return {
        split: [_task(name, goal, max_turns, split, seed) for name, goal in dealt]
        for split, dealt in deal("textcraft", goals, sizes, seed).items()
    }


def _build_shared(
    goals: Sequence[str], sizes: Mapping[str, int], max_turns: int, seed: int, shared_goals: int
) -> dict[str, list[Task]]:
    if not 1 <= shared_goals <= len(goals):
        raise ConfigurationError(f"shared_goals must be in 1..{len(goals)}; given: {shared_goals}")
    shared = random.Random(seed).sample(goals, shared_goals)

    def make(name: str, split: str, own_seed: int) -> Task:
        return _task(name, random.Random(own_seed).choice(shared), max_turns, split, own_seed)

    return draw_distinct(
        "textcraft", sizes, seed, make, lambda task: recipe_book().opening(task.arguments["goal"], task.seed)
    )


def _goals(depth: int) -> list[str]:
    goals = goals_of_depth(depth)
    if not goals:
        known = sorted(set(recipe_book().depths().values()))
        raise ConfigurationError(f"TextCraft has no goal of depth {depth}; known depths: {', '.join(map(str, known))}")
    return goals


def _commands(goal: str) -> int:
    """That the expert needs, from nothing."""
    return len(recipe_book().plan(goal, {}))


def _task(name: str, goal: str, max_turns: int, split: str, seed: int) -> Task:
    return Task(name, "textcraft", {"goal": goal, "max_turns": max_turns}, seed=seed, split=split)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("textcraft", __doc__, train=200, validation=40, test=50)
    parser.add_argument("--depths", type=int, nargs="+", default=[2], help="crafts on the longest branch: 1 to 4")
    parser.add_argument("--max-turns", type=int, default=20, help="limit of turns of every task")
    parser.add_argument(
        "--shared-goals", type=int, default=0, help="so many goals for all splits; default: no goal in two splits"
    )
    given = parser.parse_args(arguments)
    tasks = build(given.depths, sizes_of(given), given.max_turns, given.seed, given.shared_goals)
    write_splits(tasks, given.out)


if __name__ == "__main__":
    main()
