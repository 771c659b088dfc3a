"""`sample_tasks()`: some tasks of an environment, drawn by the script that writes its data sets.

That is the class's `task_command`, or else `data_preprocess.NAME` (`_` for `-`). It runs in a process of its own, since
this package imports no script, and a script may start a simulator. Without a script each seed is a task by itself.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from agentgym_rl.environments import registry
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.task import Task

SECONDS = 600.0
"""Deadline of a script."""


def sample_tasks(name: str, count: int, seed: int = 0) -> list[Task]:
    """Test tasks of an environment, the same for the same seed.

    Args:
        name: of the environment.
        count: at least 1.
        seed: of the draw.

    Raises:
        ConfigurationError: the environment or its script can't be run here; the message says why.
    """
    command = task_command(name)
    if not command:
        return [Task(f"{name}-seed-{seed + number}", name, seed=seed + number) for number in range(count)]
    from agentgym_rl.data.parquet import read_tasks

    sizes = {"--train": 1, "--validation": 1, "--test": count, "--seed": seed}
    options = [str(word) for option in sizes.items() for word in option]
    with tempfile.TemporaryDirectory(prefix="openmanus-tasks-") as folder:
        _run([*command, *options, "--out", folder])
        return read_tasks(Path(folder, "test.parquet"))[:count]


def task_command(name: str) -> Sequence[str]:
    """The module and options that write an environment's tasks; empty: there is no script."""
    command = registry.environment_class(name).task_command
    if command or ":" in name:
        return command
    script = "data_preprocess." + name.replace("-", "_")
    try:
        return (script,) if importlib.util.find_spec(script) else ()
    except ModuleNotFoundError:  # no script is installed at all
        return ()


def _run(command: Sequence[str]) -> None:
    """
    Raises:
        ConfigurationError: the script failed, with the last line that it said, or took too long.
    """
    called = f"python -m {command[0]}"
    try:
        done = subprocess.run(
            [sys.executable, "-m", *command], capture_output=True, text=True, errors="replace", timeout=SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigurationError(f"`{called}` had not written its tasks after {SECONDS:g} seconds") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        why = said[-1].removeprefix("agentgym_rl.errors.").removeprefix(f"{called}: error: ")
        raise ConfigurationError(f"`{called}`: {why}")
