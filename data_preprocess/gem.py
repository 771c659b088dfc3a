"""One of GEM's language games -> train, validation and test tasks, in parquet.

Tasks differ in their seeds; no two of any split open with the same observation, unless that is asked for (`--alike`:
games that hide what they draw, such as GuessTheNumber, or always start the same, such as TowerofHanoi).
"""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_rl.environments.gem_adapter import GAMES, GAMES_WITH_WORDS, Gem
from agentgym_rl.task import Task
from data_preprocess.openings import opening_of
from data_preprocess.splits import draw_distinct, parser_of, sizes_of, write_splits


def build(game: str, sizes: dict[str, int], max_turns: int, seed: int, alike: bool = False) -> dict[str, list[Task]]:
    """Draw the tasks of every split.

    Args:
        game: GEM's id.
        sizes: tasks per split.
        max_turns: limit of turns of every task.
        seed: of the draw.
        alike: tasks may open alike, if their seeds differ.

    Raises:
        ConfigurationError: a game or sizes that can't work.
        DataError: there are too few different openings.
    """

    def make(name: str, split: str, own_seed: int) -> Task:
        return Task(name, "gem", {"id": game, "max_turns": max_turns}, seed=own_seed, split=split)

    title = f"gem-{game.removeprefix('game:')}"
    if alike:
        return draw_distinct(title, sizes, seed, make, lambda task: task.seed)
    with opening_of("gem") as opening:
        return draw_distinct(title, sizes, seed, make, opening)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("gem", __doc__, train=256, validation=32, test=64)
    parser.add_argument("--id", required=True, choices=(*GAMES, *GAMES_WITH_WORDS), metavar="ID", help="GEM's id")
    parser.add_argument("--max-turns", type=int, default=Gem.facts.max_turns, help="limit of turns of every task")
    parser.add_argument("--alike", action="store_true", help="tasks may open alike, if their seeds differ")
    given = parser.parse_args(arguments)
    write_splits(build(given.id, sizes_of(given), given.max_turns, given.seed, given.alike), given.out)


if __name__ == "__main__":
    main()
