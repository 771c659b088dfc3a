"""A data set of SkyRL (rows with `prompt`, `env_class`, `reward_spec`, ...) -> tasks with splits, in parquet.

Rows that ask the same are one task: those that differ in nothing but `extra_info`, such as their index.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym_rl.commands.options import json_object
from agentgym_rl.data.rows import SUFFIXES, rows_of
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.task import Task
from data_preprocess.splits import deal, parser_of, sizes_of, write_splits


def build(
    rows: Iterable[tuple[str, Mapping[str, Any] | DataError]],
    shared: Mapping[str, Any],
    sizes: Mapping[str, int],
    seed: int,
) -> dict[str, list[Task]]:
    """Deal the rows to the splits.

    Args:
        rows: each with its place in its file.
        shared: arguments of every task; `env` only where a row names none.
        sizes: tasks per split.
        seed: of the deal.

    Raises:
        ConfigurationError: a size that can't work.
        DataError: a row that can't be read, or there are fewer different ones than tasks.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for place, row in rows:
        if isinstance(row, DataError):
            raise DataError(f"{place}: {row}")
        arguments = _arguments(place, row, shared)
        extras = {name: value for name, value in arguments["extras"].items() if name != "extra_info"}
        found.setdefault(json.dumps([arguments["env"], arguments["prompt"], extras], sort_keys=True), arguments)
    return {
        split: [Task(identity, "skyrl-gym", found[key], split=split) for identity, key in dealt]
        for split, dealt in deal("skyrl-gym", list(found), sizes, seed).items()
    }


def _arguments(place: str, row: Mapping[str, Any], shared: Mapping[str, Any]) -> Mapping[str, Any]:
    extras = {name: value for name, value in row.items() if name not in ("prompt", "env_class") and value is not None}
    arguments = {**shared, "prompt": row.get("prompt"), "extras": extras}
    arguments["env"] = row.get("env_class") or shared.get("env")
    if not arguments["prompt"] or not arguments["env"]:
        raise DataError(
            f"{place}: a row needs 'prompt' and 'env_class' (or --env); given: {', '.join(row) or 'nothing'}"
        )
    return arguments


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("skyrl_gym", __doc__, train=1024, validation=128, test=256)
    parser.add_argument("--rows", type=Path, required=True, help=f"the data set; a file in {', '.join(SUFFIXES)}")
    parser.add_argument("--env", help="the environment of rows that name none in `env_class`")
    parser.add_argument("--config", default="{}", help='JSON, e.g. \'{"db_path": "/data"}\'')
    parser.add_argument("--max-turns", type=int, help="limit of turns of every task; default: the environment's own")
    given = parser.parse_args(arguments)
    if given.rows.suffix not in SUFFIXES:
        raise ConfigurationError(f"--rows names a file that ends in {', '.join(SUFFIXES)}; given: {given.rows}")
    shared = {"env": given.env, "config": json_object(given.config, "--config"), "max_turns": given.max_turns}
    shared = {name: value for name, value in shared.items() if value not in (None, {})}
    write_splits(build(rows_of(given.rows), shared, sizes_of(given), given.seed), given.out)


if __name__ == "__main__":
    main()
