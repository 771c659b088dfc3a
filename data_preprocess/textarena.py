"""A TextArena game -> train, validation and test tasks, in parquet.

Tasks differ in their seeds; no two of any split open with the same observation, unless that is asked for (`--alike`:
games that always start the same, such as TicTacToe, and differ in what the opponent or chance does later).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_rl.environments.textarena_adapter import TextArena
from agentgym_rl.environments.textarena_opponents import OPPONENTS
from agentgym_rl.task import Task
from data_preprocess.openings import opening_of
from data_preprocess.splits import draw_distinct, parser_of, sizes_of, write_splits


def build(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], seed: int, alike: bool = False
) -> dict[str, list[Task]]:
    """Draw the tasks of every split.

    Args:
        arguments: of every task; see `agentgym_rl.environments.textarena_adapter`.
        sizes: tasks per split.
        seed: of the draw.
        alike: tasks may open alike, if their seeds differ.

    Raises:
        ConfigurationError: arguments or sizes that can't work.
        DataError: there are too few different openings.
    """

    def make(name: str, split: str, own_seed: int) -> Task:
        return Task(name, "textarena", arguments, seed=own_seed, split=split)

    title = f"textarena-{arguments.get('game')}"
    if alike:
        return draw_distinct(title, sizes, seed, make, lambda task: task.seed)
    with opening_of("textarena") as opening:
        return draw_distinct(title, sizes, seed, make, opening)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("textarena", __doc__, train=256, validation=32, test=64)
    parser.add_argument("--game", required=True, help="the package's id, e.g. FrozenLake-v0-random")
    parser.add_argument("--opponent", choices=OPPONENTS, help="of games for two")
    parser.add_argument("--seat", type=int, choices=(0, 1), help="of the policy, in games for two")
    parser.add_argument("--max-turns", type=int, default=TextArena.facts.max_turns, help="limit of turns of every task")
    parser.add_argument("--alike", action="store_true", help="tasks may open alike, if their seeds differ")
    given = parser.parse_args(arguments)
    named = {"game": given.game, "opponent": given.opponent, "seat": given.seat, "max_turns": given.max_turns}
    task_arguments = {name: value for name, value in named.items() if value is not None}
    write_splits(build(task_arguments, sizes_of(given), given.seed, given.alike), given.out)


if __name__ == "__main__":
    main()
