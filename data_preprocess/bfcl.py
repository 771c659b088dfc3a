"""BFCL multi-turn entries -> train, validation and test tasks, in parquet.

Number i of every category is the same conversation, with a function or a value missing or with more text around it. So
the numbers are dealt to the splits, and all of a conversation's variants are in one split.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentgym_rl.environments.bfcl.entries import CATEGORIES, identifiers
from agentgym_rl.environments.bfcl.environment import DEFAULT_MAX_TURNS
from agentgym_rl.environments.bfcl.speech import FORMATS, require_format
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.task import Task


def build(
    categories: Sequence[str], sizes: Mapping[str, int], format: str, max_turns: int, seed: int
) -> dict[str, list[Task]]:
    """Deal the entries.

    Args:
        categories: of `CATEGORIES`; each gives a variant of every conversation.
        sizes: conversations per split, e.g. {"train": 120, "validation": 20, "test": 60}; 0: no such split.
        format: of the calls.
        max_turns: limit of turns of every task.
        seed: of the deal.

    Raises:
        ConfigurationError: no category, an unknown category or format, a size below 0 or more conversations in all
            than there are.
    """
    if not categories:
        raise ConfigurationError(f"BFCL tasks need at least one category of: {', '.join(CATEGORIES)}")
    require_format(format)
    variants = list(zip(*map(identifiers, categories), strict=True))
    if min(sizes.values()) < 0 or sum(sizes.values()) > len(variants):
        raise ConfigurationError(f"BFCL has {len(variants)} conversations to deal; asked for: {dict(sizes)}")
    random.Random(seed).shuffle(variants)
    arguments = {"tool_format": format, "max_turns": max_turns}
    built: dict[str, list[Task]] = {}
    for split, size in sizes.items():
        dealt, variants = variants[:size], variants[size:]
        ids = [identifier for variant in dealt for identifier in variant]
        built[split] = [Task(one, "bfcl", {"entry": one, **arguments}, split=split) for one in ids]
    return built


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    from agentgym_rl.data.parquet import write_tasks

    parser = argparse.ArgumentParser(prog="python -m data_preprocess.bfcl", description=__doc__)
    parser.add_argument("--categories", nargs="+", default=["base"], help=f"of: {', '.join(CATEGORIES)}")
    parser.add_argument("--tool-format", default="python", help=f"of the calls; one of: {', '.join(FORMATS)}")
    parser.add_argument("--max-turns", type=int, default=DEFAULT_MAX_TURNS, help="limit of turns of every task")
    parser.add_argument("--train", type=int, default=120, help="conversations to train on")
    parser.add_argument("--validation", type=int, default=20, help="conversations to validate on")
    parser.add_argument("--test", type=int, default=60, help="conversations to test on")
    parser.add_argument("--seed", type=int, default=0, help="seed of the deal")
    parser.add_argument("--out", type=Path, required=True, help="folder for <split>.parquet")
    given = parser.parse_args(arguments)
    sizes = {"train": given.train, "validation": given.validation, "test": given.test}
    for split, tasks in build(given.categories, sizes, given.tool_format, given.max_turns, given.seed).items():
        if tasks:
            path = given.out / f"{split}.parquet"
            write_tasks(tasks, path)
            print(f"{path}: {len(tasks)} tasks")


if __name__ == "__main__":
    main()
