"""Frozen lakes and taxi rides -> train, validation and test tasks, in parquet.

No two tasks of any split open the same way. There is only one cliff to walk along, so that game has no splits; one task
of it can be asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentgym_rl.environments.toy_text import GAMES, ToyText
from agentgym_rl.task import Task
from data_preprocess.splits import draw_distinct, parser_of, sizes_of, write_splits


def build(
    game: str, sizes: Mapping[str, int], max_turns: int, seed: int, size: int | None = None
) -> dict[str, list[Task]]:
    """Draw the tasks of every split.

    Args:
        game: "frozen-lake", "taxi" or "cliff-walking".
        sizes: tasks per split; there are 300 taxi rides.
        max_turns: limit of turns of every task.
        seed: of the draw.
        size: cells a side, of frozen lakes only; None: 4.

    Raises:
        ConfigurationError: an unknown game, or a size that can't work.
        DataError: there are too few different worlds.
    """
    arguments = {"game": game, "max_turns": max_turns} | ({} if size is None else {"size": size})

    def make(name: str, split: str, own_seed: int) -> Task:
        return Task(name, "toy-text", arguments, seed=own_seed, split=split)

    world = ToyText()
    return draw_distinct(f"toy-text-{game}", sizes, seed, make, lambda task: world.reset(task)[0].content)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("toy_text", __doc__, train=128, validation=32, test=64)
    parser.add_argument("--game", choices=sorted(GAMES), default="frozen-lake")
    parser.add_argument("--size", type=int, help="cells a side of a frozen lake; default: 4")
    parser.add_argument("--max-turns", type=int, default=24, help="limit of turns of every task")
    given = parser.parse_args(arguments)
    write_splits(build(given.game, sizes_of(given), given.max_turns, given.seed, given.size), given.out)


if __name__ == "__main__":
    main()
