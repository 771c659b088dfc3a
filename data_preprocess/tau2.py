"""tau2-bench's tasks of one domain -> train, validation and test tasks, in parquet.

The package's own splits hold: test tasks come from its test tasks, training and validation tasks from its train tasks.
Only the package's list of them is read, wherever the environment's interpreter has it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym_rl.environments.interpreter import interpreter_of
from agentgym_rl.environments.tau2 import SCRIPTED, Tau2
from agentgym_rl.environments.tau2_world import DOMAINS, INSTALL
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.task import Task
from data_preprocess.splits import parser_of, require_sizes, sizes_of, write_splits

_FIND = "import importlib.util; spec = importlib.util.find_spec('tau2'); print(*spec.submodule_search_locations)"


def build(domain: str, sizes: Mapping[str, int], shared: Mapping[str, Any], seed: int) -> dict[str, list[Task]]:
    """Deal the tasks.

    Args:
        domain: of `DOMAINS`.
        sizes: tasks of "train", "validation" and "test"; 0: no such split.
        shared: arguments of every task; with `user`, there is a customer to talk to.
        seed: of the deal.

    Raises:
        ConfigurationError: a size below 0, none above it or more tasks than the package's split has, or no package.
    """
    require_sizes(sizes)
    known = package_splits(domain)
    train, test = list(known["train"]), list(known["test"])
    random.Random(seed).shuffle(train)
    random.Random(seed).shuffle(test)
    in_training = sizes["train"] + sizes["validation"]
    if in_training > len(train) or sizes["test"] > len(test):
        raise ConfigurationError(
            f"tau2's {domain} has {len(train)} tasks for train and validation and {len(test)} for test; asked for:"
            f" {dict(sizes)}"
        )
    dealt = {
        "train": train[: sizes["train"]],
        "validation": train[sizes["train"] : in_training],
        "test": test[: sizes["test"]],
    }
    return {split: [_task(domain, name, split, shared) for name in names] for split, names in dealt.items() if names}


def package_splits(domain: str) -> dict[str, list[str]]:
    """The package's splits: name -> tasks."""
    path = package_folder() / "data/tau2/domains" / domain / "split_tasks.json"
    return json.loads(path.read_text(encoding="utf-8"))


def package_folder() -> Path:
    """Where the package's code and data are.

    Raises:
        ConfigurationError: the package is not installed for the environment's interpreter.
    """
    interpreter = interpreter_of("tau2") or sys.executable
    found = subprocess.run([interpreter, "-c", _FIND], capture_output=True, text=True)
    if found.returncode:
        raise ConfigurationError(f"{interpreter} does not find 'tau2': {INSTALL}")
    return Path(found.stdout.strip())


def _task(domain: str, name: str, split: str, shared: Mapping[str, Any]) -> Task:
    return Task(f"tau2-{domain}-{name}", "tau2", {"domain": domain, "task": name, **shared}, split=split)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("tau2", __doc__, train=0, validation=10, test=0)
    parser.set_defaults(train=None, test=None)  # all that the package's splits have
    parser.add_argument("--domain", default="telecom", choices=DOMAINS)
    parser.add_argument("--user", help=f"who plays the customer: {SCRIPTED!r}, or MODEL@URL; default: nobody (telecom)")
    parser.add_argument("--tool-format", default="hermes", help="of the calls")
    parser.add_argument("--max-turns", type=int, default=Tau2.facts.max_turns, help="limit of turns of every task")
    given = parser.parse_args(arguments)
    known = package_splits(given.domain)
    given.train = len(known["train"]) - given.validation if given.train is None else given.train
    given.test = len(known["test"]) if given.test is None else given.test
    shared = {**_user(given.user, given.domain), "tool_format": given.tool_format, "max_turns": given.max_turns}
    write_splits(build(given.domain, sizes_of(given), shared, given.seed), given.out)


def _user(given: str | None, domain: str) -> dict[str, Any]:
    if given is None and domain == "telecom":
        return {}
    model, _, url = (given or "").rpartition("@")
    if given != SCRIPTED and not model:
        raise ConfigurationError(f"--user is {SCRIPTED!r} or MODEL@URL for {domain}; given: {given!r}")
    return {"user": SCRIPTED if given == SCRIPTED else {"url": url, "model": model}}


if __name__ == "__main__":
    main()
