"""BFCL multi-turn entries -> train, validation and test tasks, in parquet.

Number i of every category is the same conversation, with a function or a value missing or with more text around it. So
the numbers are dealt to the splits, and all of a conversation's variants are in one split.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from agentgym_rl.environments.bfcl.entries import CATEGORIES, identifiers
from agentgym_rl.environments.bfcl.environment import DEFAULT_MAX_TURNS
from agentgym_rl.environments.bfcl.speech import FORMATS, require_format
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.task import Task
from data_preprocess.splits import parser_of, sizes_of, write_splits


def build(
    categories: Sequence[str], sizes: Mapping[str, int], format: str, max_turns: int, seed: int, prompt: str = ""
) -> dict[str, list[Task]]:
    """Deal the entries.

    Args:
        categories: of `CATEGORIES`; each gives a variant of every conversation.
        sizes: conversations per split, e.g. {"train": 120, "validation": 20, "test": 60}; 0: no such split.
        format: of the calls.
        max_turns: limit of turns of every task.
        seed: of the deal.
        prompt: system prompt of every task; empty: the environment's own, which tells of the functions.

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
        built[split] = [Task(one, "bfcl", {"entry": one, **arguments}, prompt, split=split) for one in ids]
    return {split: tasks for split, tasks in built.items() if tasks}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("bfcl", __doc__, train=120, validation=20, test=60)
    parser.add_argument("--categories", nargs="+", default=["base"], help=f"of: {', '.join(CATEGORIES)}")
    parser.add_argument("--tool-format", default="python", help=f"of the calls; one of: {', '.join(FORMATS)}")
    parser.add_argument("--max-turns", type=int, default=DEFAULT_MAX_TURNS, help="limit of turns of every task")
    parser.add_argument(
        "--prompt", default="", help="system prompt of every task; default: BFCL's, which tells of the functions"
    )
    given = parser.parse_args(arguments)
    built = build(given.categories, sizes_of(given), given.tool_format, given.max_turns, given.seed, given.prompt)
    write_splits(built, given.out)


if __name__ == "__main__":
    main()
