"""AgentTraj and OpenManus-RL files that you have -> demonstrations to imitate, and tasks of AgentGym's servers.

Takes their .json, .jsonl or .parquet files: `item_id`, and `conversations` of `from`, `value` and `loss`. Writes
`sft.parquet` with the conversations of the training items, and with `--server` also `<split>.parquet` with a task an
item of the environment `agentgym`. Where a conversation begins with instructions and an "OK.", the instructions are the
system prompt of task and demonstration, and the "OK." is left out: so an episode begins. An item is in one split,
however many conversations it has. For a store: `openmanus-rl import --file FILE --out STORE`.

Sources: Xi et al., AgentGym, 2024, https://arxiv.org/abs/2406.04151; https://github.com/OpenManus/OpenManus-RL
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from agentgym_rl.data.chat_files import from_line
from agentgym_rl.data.rows import rows_of
from agentgym_rl.data.sft_parquet import is_trained, write_sft
from agentgym_rl.environments.agentgym.dialects import DIALECTS
from agentgym_rl.errors import ConfigurationError, DataError, did_you_mean
from agentgym_rl.messages import system
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Trajectory
from data_preprocess.splits import write_splits

DATA_SETS = tuple(name for name, dialect in DIALECTS.items() if not dialect.ours)


class Built(NamedTuple):
    """What the files hold."""

    splits: dict[str, list[Task]]
    demonstrations: list[Trajectory]
    """Of the training items, in the order of the files."""


def build(files: Iterable[Path], validation: int, test: int, server: str, max_turns: int, seed: int) -> Built:
    """Deal the items to the splits; what the others don't get is for training.

    Args:
        files: of conversations.
        validation: items to validate on.
        test: items to test on.
        server: address of the AgentGym server, in every task.
        max_turns: limit of turns of every task.
        seed: of the draw.

    Raises:
        ConfigurationError: a size below 0.
        DataError: a conversation that can't be read, named by its place, or too few items.
    """
    if min(validation, test) < 0:
        raise ConfigurationError(f"a split has at least 0 tasks; given: {validation}, {test}")
    trajectories = [trajectory for path in files for trajectory in _trajectories(path, server, max_turns)]
    tasks = {trajectory.task.id: trajectory.task for trajectory in reversed(trajectories)}
    ids = sorted(tasks)
    if validation + test >= len(ids):
        raise DataError(f"there are {len(ids)} different items, of which some must be left to train on")
    random.Random(seed).shuffle(ids)
    parts = {"validation": ids[:validation], "test": ids[validation : validation + test]}
    parts["train"] = ids[validation + test :]
    splits = {
        split: [replace(tasks[id], split=split) for id in sorted(parts[split])] for split in parts if parts[split]
    }
    trained = set(parts["train"])
    return Built(splits, [trajectory for trajectory in trajectories if trajectory.task.id in trained])


def _trajectories(path: Path, server: str, max_turns: int) -> Iterable[Trajectory]:
    for place, row in rows_of(path):
        try:
            if isinstance(row, DataError):
                raise row
            item = str(row.get("item_id"))
            name, number = _item(item)
            arguments = {"server": server, "dialect": name, "item": number, "max_turns": max_turns}
            trajectory = from_line(row, Task(item, "agentgym", arguments))
        except DataError as error:
            raise DataError(f"{path}: {place}: {error}") from error
        yield _as_played(trajectory)


def _as_played(trajectory: Trajectory) -> Trajectory:
    """As an episode of the task begins: with the system prompt and the first observation, without the "OK." between."""
    first = trajectory.turns[0]
    agreed = first.reply.message.content.lstrip().casefold().startswith("ok")
    if is_trained(first) or not agreed or len(trajectory.opening) != 1:
        return trajectory
    prompt = trajectory.opening[0].content
    opening = (system(prompt), *first.observation)
    return replace(
        trajectory, task=replace(trajectory.task, prompt=prompt), opening=opening, turns=trajectory.turns[1:]
    )


def _item(id: str) -> tuple[str, int]:
    """The server's dialect and its number of an item: "lmrlgym_maze_25" -> ("maze", 25)."""
    before, _, number = id.rpartition("_")
    name = before.removeprefix("lmrlgym_")
    if name not in DATA_SETS or not number.isdigit():
        raise DataError(f"an item_id is written NAME_NUMBER; given: {id!r}; {did_you_mean(name, DATA_SETS)}")
    return name, int(number)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m data_preprocess.agenttraj", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="files of conversations")
    parser.add_argument("--validation", type=int, default=0, help="items to validate on")
    parser.add_argument("--test", type=int, default=0, help="items to test on")
    parser.add_argument("--server", help="http://host:port of the AgentGym server; without it no tasks are written")
    parser.add_argument("--max-turns", type=int, default=30, help="limit of turns of every task")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument("--out", type=Path, required=True, help="folder for sft.parquet and <split>.parquet")
    given = parser.parse_args(arguments)
    server = given.server or ""
    built = build(given.files, given.validation, given.test, server, given.max_turns, given.seed)
    path = given.out / "sft.parquet"
    print(f"{path}: {write_sft(built.demonstrations, path)} conversations")
    if server:
        write_splits(built.splits, given.out)


if __name__ == "__main__":
    main()
