"""Instances of SWE-bench and sets of its form (SWE-Gym, SWE-rebench, ...), from a file that you have -> tasks.

No environment here plays them: one needs a container an instance. The instances are checked, and their fields kept for
an adapter of yours (`--environment`, a name or module:Class): the patch is the reference answer, everything else an
argument, the two lists of tests read from their JSON text. Each split has files of its own; an instance that is in two
of them is refused.

Source: Jimenez et al., SWE-bench, 2024, https://arxiv.org/abs/2310.06770; fields:
https://huggingface.co/datasets/princeton-nlp/SWE-bench
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym_rl.data.rows import rows_of
from agentgym_rl.errors import DataError
from agentgym_rl.task import Task
from data_preprocess.splits import write_splits

TEXTS = ("instance_id", "repo", "base_commit", "problem_statement", "patch", "test_patch")
TESTS = ("FAIL_TO_PASS", "PASS_TO_PASS")
COMMIT = re.compile(r"[0-9a-f]{7,40}")


def build(files: Mapping[str, Sequence[Path]], environment: str) -> dict[str, list[Task]]:
    """The tasks of every split, in the order of its files.

    Args:
        files: name of each split -> its files.
        environment: that plays the tasks.

    Raises:
        DataError: instances that are incomplete, malformed, or there twice: all of them, each with its reason.
    """
    problems: list[str] = []
    place_of: dict[str, str] = {}
    built: dict[str, list[Task]] = {split: [] for split, paths in files.items() if paths}
    for split, path in ((split, path) for split, paths in files.items() for path in paths):
        for place, row in rows_of(path):
            where = f"{path}: {place}"
            try:
                task = _task(row, environment, split)
                if task.id in place_of:
                    raise DataError(f"instance {task.id!r} is that of {place_of[task.id]}")
            except DataError as error:
                problems.append(f"{where}: {error}")
                continue
            place_of[task.id] = where
            built[split].append(task)
    if problems:
        raise DataError("\n  ".join([f"bad instances: {len(problems)}", *problems]))
    return built


def _task(row: dict[str, Any] | DataError, environment: str, split: str) -> Task:
    if isinstance(row, DataError):
        raise row
    for name in TEXTS:
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise DataError(f"`{name}` must be a text; given: {row.get(name)!r:.80}")
    if not COMMIT.fullmatch(row["base_commit"]):
        raise DataError(f"`base_commit` must be a commit's hash; given: {row['base_commit']!r:.80}")
    for name in ("patch", "test_patch"):
        if not re.search(r"^(diff --git|---) ", row[name], re.MULTILINE):
            raise DataError(f"`{name}` must be a diff; given: {row[name]!r:.80}")
    tests = {name: _tests(row.get(name), name) for name in TESTS}
    if not tests["FAIL_TO_PASS"]:
        raise DataError("`FAIL_TO_PASS` names no test, so that nothing could be solved")
    kept = {name: value for name, value in row.items() if name not in ("instance_id", "patch") and value is not None}
    return Task(row["instance_id"], environment, {**kept, **tests}, reference_answer=row["patch"], split=split)


def _tests(given: Any, name: str) -> list[str]:
    """A list, or its JSON text."""
    try:
        tests = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        tests = None
    if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
        raise DataError(f"`{name}` must be a list of tests, or its JSON text; given: {given!r:.80}")
    return tests


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m data_preprocess.swe_bench", description=__doc__)
    for split in ("train", "validation", "test"):
        parser.add_argument(f"--{split}", type=Path, nargs="*", default=[], help=f"files of the {split} split")
    parser.add_argument("--environment", required=True, help="that plays the tasks: a name, or module:Class")
    parser.add_argument("--out", type=Path, required=True, help="folder for <split>.parquet")
    given = parser.parse_args(arguments)
    files = {split: getattr(given, split) for split in ("train", "validation", "test")}
    if not any(files.values()):
        parser.error("give the files of at least one of --train, --validation and --test")
    write_splits(build(files, given.environment), given.out)


if __name__ == "__main__":
    main()
