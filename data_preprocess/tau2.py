"""tau2's telecom tickets -> train, validation and test tasks, in parquet.

The package's own splits hold: test tasks come from its test tickets, training and validation tasks from its train
tickets. Only the package's list of them is read, wherever the environment's interpreter has it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym_rl.environments.interpreter import interpreter_of
from agentgym_rl.environments.tau2 import INSTALL, Tau2
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.task import Task

_SPLITS = "data/tau2/domains/telecom/split_tasks.json"
_FIND = "import importlib.util; spec = importlib.util.find_spec('tau2'); print(*spec.submodule_search_locations)"


def build(sizes: Mapping[str, int], shared: Mapping[str, Any], seed: int) -> dict[str, list[Task]]:
    """Deal the tickets.

    Args:
        sizes: tickets of "train", "validation" and "test"; 0: no such split.
        shared: arguments of every task.
        seed: of the deal.

    Raises:
        ConfigurationError: a size below 0 or more tickets than the package's split has, or no package.
    """
    known = package_splits()
    train, test = list(known["train"]), list(known["test"])
    random.Random(seed).shuffle(train)
    random.Random(seed).shuffle(test)
    in_training = sizes["train"] + sizes["validation"]
    if min(sizes.values()) < 0 or in_training > len(train) or sizes["test"] > len(test):
        raise ConfigurationError(
            f"tau2 has {len(train)} tickets for train and validation and {len(test)} for test; asked for: {dict(sizes)}"
        )
    dealt = {
        "train": train[: sizes["train"]],
        "validation": train[sizes["train"] : in_training],
        "test": test[: sizes["test"]],
    }
    return {split: [_task(ticket, split, shared) for ticket in tickets] for split, tickets in dealt.items()}


def package_splits() -> dict[str, list[str]]:
    """The package's splits: name -> tickets.

    Raises:
        ConfigurationError: the package is not installed for the environment's interpreter.
    """
    interpreter = interpreter_of("tau2") or sys.executable
    found = subprocess.run([interpreter, "-c", _FIND], capture_output=True, text=True)
    if found.returncode:
        raise ConfigurationError(f"{interpreter} does not find 'tau2': {INSTALL}")
    return json.loads(Path(found.stdout.strip(), _SPLITS).read_text(encoding="utf-8"))


def _task(ticket: str, split: str, shared: Mapping[str, Any]) -> Task:
    return Task(f"tau2-{ticket}", "tau2", {"ticket": ticket, **shared}, split=split)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    from agentgym_rl.data.parquet import write_tasks

    parser = argparse.ArgumentParser(prog="python -m data_preprocess.tau2", description=__doc__)
    parser.add_argument("--tool-format", default="hermes", help="of the calls")
    parser.add_argument("--max-turns", type=int, default=Tau2.facts.max_turns, help="limit of turns of every task")
    parser.add_argument("--train", type=int, default=64, help="tickets to train on")
    parser.add_argument("--validation", type=int, default=10, help="tickets to validate on")
    parser.add_argument("--test", type=int, default=40, help="tickets to test on")
    parser.add_argument("--seed", type=int, default=0, help="seed of the deal")
    parser.add_argument("--out", type=Path, required=True, help="folder for <split>.parquet")
    given = parser.parse_args(arguments)
    sizes = {"train": given.train, "validation": given.validation, "test": given.test}
    shared = {"tool_format": given.tool_format, "max_turns": given.max_turns}
    for split, tasks in build(sizes, shared, given.seed).items():
        if tasks:
            path = given.out / f"{split}.parquet"
            write_tasks(tasks, path)
            print(f"{path}: {len(tasks)} tasks")


if __name__ == "__main__":
    main()
