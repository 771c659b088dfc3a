"""Any Gymnasium environment -> train, validation and test tasks, in parquet.

Tasks differ in their seeds; no two of any split open with the same observation, unless that is asked for (`--alike`:
environments that always start the same, and differ in what chance does later).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_rl.commands.options import json_object
from agentgym_rl.environments.gymnasium_adapter import Gymnasium, GymnasiumText
from agentgym_rl.task import Task
from data_preprocess.splits import draw_distinct, parser_of, sizes_of, write_splits


def build(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], seed: int, text: bool = False, alike: bool = False
) -> dict[str, list[Task]]:
    """Draw the tasks of every split.

    Args:
        arguments: of every task; see `agentgym_rl.environments.gymnasium_adapter`.
        sizes: tasks per split.
        seed: of the draw.
        text: the action space is a text space.
        alike: tasks may open alike, if their seeds differ.

    Raises:
        ConfigurationError: arguments or sizes that can't work.
        DataError: there are too few different openings.
    """
    name = "gymnasium-text" if text else "gymnasium"
    world = GymnasiumText() if text else Gymnasium()

    def make(identity: str, split: str, own_seed: int) -> Task:
        return Task(identity, name, arguments, seed=own_seed, split=split)

    def opening(task: Task) -> object:
        return task.seed if alike else world.reset(task)[0].content

    try:
        return draw_distinct(f"{name}-{arguments.get('id')}", sizes, seed, make, opening)
    finally:
        world.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("gymnasium_adapter", __doc__, train=128, validation=32, test=64)
    parser.add_argument("--arguments", required=True, help='JSON, e.g. \'{"id": "Blackjack-v1"}\'')
    parser.add_argument("--text", action="store_true", help="the action space is a text space")
    parser.add_argument("--alike", action="store_true", help="tasks may open alike, if their seeds differ")
    given = parser.parse_args(arguments)
    task_arguments = json_object(given.arguments, "--arguments")
    write_splits(build(task_arguments, sizes_of(given), given.seed, given.text, given.alike), given.out)


if __name__ == "__main__":
    main()
