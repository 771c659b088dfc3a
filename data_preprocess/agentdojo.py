"""AgentDojo's user tasks -> train, validation and test tasks, in parquet; with an attack, each with some injections.

The user tasks are dealt to the splits, so none is in two of them; the worlds are the suites', and the same in all.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym_rl.environments.agentdojo import AgentDojo
from agentgym_rl.environments.agentdojo_suites import SUITES, attacks, suite
from agentgym_rl.errors import ConfigurationError, did_you_mean
from agentgym_rl.task import Task


def build(
    suites: Sequence[str], sizes: Mapping[str, int], attack: str, injections: int, shared: Mapping[str, Any], seed: int
) -> dict[str, list[Task]]:
    """Deal the user tasks.

    Args:
        suites: names; of each, all user tasks are dealt.
        sizes: user tasks per split, e.g. {"train": 57, "validation": 10, "test": 30}; 0: no such split.
        attack: name; empty: none.
        injections: with an attack, how many of the suite's injection tasks each user task is combined with, at random.
        shared: arguments of every task.
        seed: of the deal.

    Raises:
        ConfigurationError: no suite, an unknown suite or attack, a size below 0 or more user tasks in all than there
            are, or more injections than a suite has.
    """
    user_tasks = [(name, user_task) for name in suites for user_task in suite(name).user_tasks]
    if not user_tasks or min(sizes.values()) < 0 or sum(sizes.values()) > len(user_tasks):
        raise ConfigurationError(
            f"the AgentDojo suites {', '.join(suites) or '(none)'} have {len(user_tasks)} user tasks to deal; asked"
            f" for: {dict(sizes)}"
        )
    if attack and attack not in attacks():
        raise ConfigurationError(f"no AgentDojo attack {attack!r}; {did_you_mean(attack, attacks())}")
    chance = random.Random(seed)
    chance.shuffle(user_tasks)
    built: dict[str, list[Task]] = {}
    for split, size in sizes.items():
        dealt, user_tasks = user_tasks[:size], user_tasks[size:]
        rows = [_task(pair, split, shared) for pair in dealt]
        if attack:
            rows = [attacked for row in rows for attacked in _attacked(row, attack, injections, chance)]
        built[split] = rows
    return built


def _task(pair: tuple[str, str], split: str, shared: Mapping[str, Any]) -> Task:
    suite_name, user_task = pair
    arguments = {"suite": suite_name, "user_task": user_task, **shared}
    return Task(f"{suite_name}-{user_task}", "agentdojo", arguments, split=split)


def _attacked(task: Task, attack: str, injections: int, chance: random.Random) -> list[Task]:
    known = list(suite(task.arguments["suite"]).injection_tasks)
    if not 1 <= injections <= len(known):
        raise ConfigurationError(
            f"the AgentDojo suite {task.arguments['suite']!r} has {len(known)} injection tasks; asked for: {injections}"
        )
    return [
        Task(
            f"{task.id}-{injection}-{attack}",
            "agentdojo",
            {**task.arguments, "injection_task": injection, "attack": attack},
            split=task.split,
        )
        for injection in chance.sample(known, injections)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    from agentgym_rl.data.parquet import write_tasks

    parser = argparse.ArgumentParser(prog="python -m data_preprocess.agentdojo", description=__doc__)
    parser.add_argument("--suites", nargs="+", default=list(SUITES), help=f"of: {', '.join(SUITES)}")
    parser.add_argument("--attack", default="", help="its name; none if it is not given")
    parser.add_argument("--injections", type=int, default=1, help="with an attack: injection tasks per user task")
    parser.add_argument("--tool-format", default="hermes", help="of the calls")
    parser.add_argument("--max-turns", type=int, default=AgentDojo.facts.max_turns, help="limit of turns of every task")
    parser.add_argument("--train", type=int, default=57, help="user tasks to train on")
    parser.add_argument("--validation", type=int, default=10, help="user tasks to validate on")
    parser.add_argument("--test", type=int, default=30, help="user tasks to test on")
    parser.add_argument("--seed", type=int, default=0, help="seed of the deal")
    parser.add_argument("--out", type=Path, required=True, help="folder for <split>.parquet")
    given = parser.parse_args(arguments)
    sizes = {"train": given.train, "validation": given.validation, "test": given.test}
    shared = {"tool_format": given.tool_format, "max_turns": given.max_turns}
    for split, tasks in build(given.suites, sizes, given.attack, given.injections, shared, given.seed).items():
        if tasks:
            path = given.out / f"{split}.parquet"
            write_tasks(tasks, path)
            print(f"{path}: {len(tasks)} tasks")


if __name__ == "__main__":
    main()
