"""AgentDojo's user tasks -> train, validation and test tasks, in parquet; with an attack, each with some injections.

The user tasks are dealt to the splits, so none is in two of them; the worlds are the suites', and the same in all.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_rl.environments.agentdojo import AgentDojo
from agentgym_rl.environments.agentdojo_suites import SUITES, attacks, suite
from agentgym_rl.errors import ConfigurationError, did_you_mean
from agentgym_rl.task import Task
from data_preprocess.splits import parser_of, sizes_of, write_splits


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
    return {split: tasks for split, tasks in built.items() if tasks}


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
    parser = parser_of("agentdojo", __doc__, train=57, validation=10, test=30)
    parser.add_argument("--suites", nargs="+", default=list(SUITES), help=f"of: {', '.join(SUITES)}")
    parser.add_argument("--attack", default="", help="its name; none if it is not given")
    parser.add_argument("--injections", type=int, default=1, help="with an attack: injection tasks per user task")
    parser.add_argument("--tool-format", default="hermes", help="of the calls")
    parser.add_argument("--max-turns", type=int, default=AgentDojo.facts.max_turns, help="limit of turns of every task")
    given = parser.parse_args(arguments)
    shared = {"tool_format": given.tool_format, "max_turns": given.max_turns}
    built = build(given.suites, sizes_of(given), given.attack, given.injections, shared, given.seed)
    write_splits(built, given.out)


if __name__ == "__main__":
    main()
