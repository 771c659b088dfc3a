"""TextWorldExpress games -> train, validation and test tasks, in parquet.

Training tasks come from the package's fold `train`, validation tasks from `dev`, test tasks from `test`, each with that
fold's own seeds. No two tasks of any split look the same on the same walk, and the expert solves every task within
`max_turns`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import closing

from agentgym_rl.environments.textworld_express import FOLDS, GAMES, TextWorldExpress
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from data_preprocess.splits import draw_distinct, parser_of, sizes_of, write_splits

FOLD_OF = {"train": "train", "validation": "dev", "test": "test"}
WALK_TURNS = 30
"""Length of the walk by which games are told apart: the opening alone does not show the whole of a game."""


def build(
    games: Sequence[str], parameters: Mapping[str, int], sizes: Mapping[str, int], max_turns: int, seed: int
) -> dict[str, list[Task]]:
    """Draw the tasks of every split.

    Args:
        games: of `GAMES`, dealt in turn.
        parameters: the games' own, such as {"numLocations": 3}; each game has to know them all.
        sizes: tasks per split, e.g. {"train": 512, "validation": 64, "test": 256}.
        max_turns: limit of turns of every task.
        seed: of the draw.

    Raises:
        ConfigurationError: no game, an unknown one, or parameters or sizes that can't work.
        DataError: there are too few different games that the expert solves within `max_turns`.
    """
    if not games:
        raise ConfigurationError(f"TextWorldExpress tasks need at least one game of {', '.join(GAMES)}")
    with closing(TextWorldExpress()) as player:

        def make(name: str, split: str, own_seed: int) -> Task | None:
            game = games[int(name.rpartition("-")[2]) % len(games)]
            seeds = FOLDS[FOLD_OF[split]]
            arguments = {"game": game, "fold": FOLD_OF[split], "parameters": dict(parameters), "max_turns": max_turns}
            task = Task(name, "textworld-express", arguments, seed=seeds[own_seed % len(seeds)], split=split)
            return task if expert_solves(player, task) else None

        return draw_distinct("textworld-express", sizes, seed, make, lambda task: walk(player, task))


def expert_solves(player: TextWorldExpress, task: Task) -> bool:
    player.reset(task)
    try:
        while True:
            result = player.step(assistant(player.expert_action()))
            if result.terminated or result.truncated:
                return bool(result.success)
    except EnvironmentFailed:  # its solution solves nothing
        return False


def walk(player: TextWorldExpress, task: Task) -> tuple[str, ...]:
    """What is seen on a random walk that is the same for equal games, whatever their seeds."""
    chance = random.Random(0)
    seen = [player.reset(task)[0].content]
    while player.turns_left and len(seen) <= WALK_TURNS:
        result = player.step(assistant(chance.choice(player.actions())))
        seen.append(" ".join(message.content for message in result.observation))
    return tuple(seen)


def parameter(text: str) -> tuple[str, int]:
    """Read "name=3"."""
    name, _, value = text.partition("=")
    return name, int(value)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("textworld_express", __doc__, train=512, validation=64, test=256)
    parser.add_argument("--games", nargs="+", default=["coin"], help=f"dealt in turn; of {', '.join(GAMES)}")
    parser.add_argument(
        "--parameters", nargs="*", type=parameter, default=[], metavar="NAME=NUMBER", help="of the games themselves"
    )
    parser.add_argument("--max-turns", type=int, default=50, help="limit of turns of every task")
    given = parser.parse_args(arguments)
    tasks = build(given.games, dict(given.parameters), sizes_of(given), given.max_turns, given.seed)
    write_splits(tasks, given.out)


if __name__ == "__main__":
    main()
