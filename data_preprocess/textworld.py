"""TextWorld games -> train, validation and test tasks, in parquet.

No two tasks of any split have the same seed, from which TextWorld draws rooms, objects, quest and texts. Nothing is
generated here: a game is made, once, when it is first played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_rl.task import Task
from data_preprocess.splits import draw_distinct, parser_of, sizes_of, write_splits


def build(
    challenge: str, parameters: Mapping[str, Any], sizes: Mapping[str, int], max_turns: int, seed: int
) -> dict[str, list[Task]]:
    """Draw the tasks of every split.

    Args:
        challenge: one of TextWorld's generators, such as "tw-coin_collector".
        parameters: of the generator, as `tw-make` takes them.
        sizes: tasks per split, e.g. {"train": 512, "validation": 64, "test": 256}.
        max_turns: limit of turns of every task.
        seed: of the draw.

    Raises:
        ConfigurationError: sizes that can't work.
    """

    def make(name: str, split: str, own_seed: int) -> Task:
        arguments = {"challenge": challenge, "parameters": dict(parameters), "max_turns": max_turns}
        return Task(name, "textworld", arguments, seed=own_seed, split=split)

    return draw_distinct("textworld", sizes, seed, make, lambda task: task.seed)


def parameter(text: str) -> tuple[str, Any]:
    """Read "level=5" or "rewards=dense", and a name alone as a flag."""
    name, given, value = text.partition("=")
    if not given:
        return name, True
    return name, int(value) if value.isdecimal() else value


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("textworld", __doc__, train=64, validation=16, test=32)
    parser.add_argument("--challenge", default="tw-coin_collector", help="one of TextWorld's generators")
    parser.add_argument(
        "--parameters", nargs="*", type=parameter, default=[("level", 5)], metavar="NAME=VALUE", help="of the generator"
    )
    parser.add_argument("--max-turns", type=int, default=50, help="limit of turns of every task")
    given = parser.parse_args(arguments)
    tasks = build(given.challenge, dict(given.parameters), sizes_of(given), given.max_turns, given.seed)
    write_splits(tasks, given.out)


if __name__ == "__main__":
    main()
