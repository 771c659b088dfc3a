"""Several task files -> one, with weights: a training run on a mixture of environments.

A task is a row and a group its samples, so groups are never mixed. A file that is too small for its weight is repeated
as evenly as can be. Ids stay unique: one that is taken is followed by ~2, ~3, and so on; the task's seed stays, so that
a repeated task is the same world.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.task import Task


def mix(parts: Mapping[str, Sequence[Task]], weights: Mapping[str, float], size: int, seed: int) -> list[Task]:
    """Draw tasks of each part, and shuffle them.

    Args:
        parts: name of each part (its file) -> its tasks.
        weights: name of each part -> its weight, above 0, in any unit.
        size: tasks of the mixture.
        seed: of the draw.

    Raises:
        ConfigurationError: a weight that is not above 0, or fewer tasks than parts.
        DataError: a part without tasks, or parts of different splits, whose mixture would train on test tasks.
    """
    counts = counts_of(weights, size)
    splits = {task.split: name for name, tasks in parts.items() for task in tasks}
    if len(splits) > 1:
        where = ", ".join(f"{split!r} in {name}" for split, name in sorted(splits.items()))
        raise DataError(f"a mixture is of one split; given: {where}")
    chance = random.Random(seed)
    drawn = [task for name, tasks in parts.items() for task in _drawn(name, tasks, counts[name], chance)]
    chance.shuffle(drawn)
    return _with_ids_of_their_own(drawn)


def counts_of(weights: Mapping[str, float], size: int) -> dict[str, int]:
    """How many tasks each part gives: size * weight / sum of weights, rounded so that they add up to `size`.

    Raises:
        ConfigurationError: a weight that is not above 0, or a part that would give no task.
    """
    for name, weight in weights.items():
        if not math.isfinite(weight) or weight <= 0:
            raise ConfigurationError(f"the weight of {name} must be above 0; given: {weight}")
    exact = {name: size * weight / sum(weights.values()) for name, weight in weights.items()}
    counts = {name: math.floor(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: counts[name] - exact[name])
    for name in by_remainder[: size - sum(counts.values())]:
        counts[name] += 1
    for name, count in counts.items():
        if not count:
            raise ConfigurationError(
                f"{name} would give no task to a mixture of {size}; ask for more, or weigh it more"
            )
    return counts


def _drawn(name: str, tasks: Sequence[Task], count: int, chance: random.Random) -> list[Task]:
    if not tasks:
        raise DataError(f"{name} has no task")
    whole, rest = divmod(count, len(tasks))
    return [*tasks] * whole + chance.sample(list(tasks), rest)


def _with_ids_of_their_own(tasks: Sequence[Task]) -> list[Task]:
    taken = {task.id for task in tasks}
    times: Counter[str] = Counter()
    named = []
    for task in tasks:
        times[task.id] += 1
        identity = task.id
        if times[task.id] > 1:
            while (identity := f"{task.id}~{times[task.id]}") in taken:
                times[task.id] += 1
            taken.add(identity)
        named.append(replace(task, id=identity))
    return named


def _part(text: str) -> tuple[str, float]:
    path, _, weight = text.rpartition("=")
    try:
        return path or text, float(weight) if path else 1.0
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"a part is written FILE or FILE=WEIGHT; given: {text!r}") from error


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    from agentgym_rl.data.parquet import write_tasks
    from agentgym_rl.data.user_tasks import load_tasks

    parser = argparse.ArgumentParser(prog="python -m data_preprocess.mix", description=__doc__)
    parser.add_argument(
        "parts", nargs="+", type=_part, metavar="FILE=WEIGHT", help="tasks, .parquet or .jsonl; weight 1 if left out"
    )
    parser.add_argument("--size", type=int, help="tasks of the mixture; default: as many as the parts have")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument("--out", type=Path, required=True, help="the parquet file to write")
    given = parser.parse_args(arguments)
    parts = {path: load_tasks(path) for path, _ in given.parts}
    size = given.size if given.size is not None else sum(map(len, parts.values()))
    tasks = mix(parts, dict(given.parts), size, given.seed)
    write_tasks(tasks, given.out)
    counts = Counter(task.environment for task in tasks)
    print(f"{given.out}: {len(tasks)} tasks: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))


if __name__ == "__main__":
    main()
