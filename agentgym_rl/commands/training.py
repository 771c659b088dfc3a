"""`openmanus-rl train`, `follow`: run trainings, which are ordinary commands of verl."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agentgym_rl import follow as following
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.evaluation.result import Evaluation
from agentgym_rl.training import driver
from agentgym_rl.training.plan import read_plan
from agentgym_rl.training.stages import RESULT
from agentgym_rl.viewer import terminal


def add_to(app: typer.Typer) -> None:
    app.command()(train)
    app.command(context_settings={"ignore_unknown_options": True})(follow)


def train(
    plan: Annotated[Path, typer.Option(help="A YAML file; agentgym_rl/training/plan.py says what it may hold.")],
    out: Annotated[Path | None, typer.Option(help="Its folder; default: outputs/ and the plan's name.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="VARIABLE=VALUE of the plan; any number.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print every command, and run nothing.")] = False,
) -> None:
    """Run a training plan: rounds of ordinary commands, each printed. Run again, it goes on where it was stopped."""
    values = dict(_setting(text) for text in settings or [])
    read = read_plan(plan, out or Path("outputs") / plan.stem, values)
    if dry_run:
        driver.show(read, Console())
        return
    driver.train(read, Console())
    evaluations = [
        (stage.name, Evaluation.read(stage.folder / RESULT)) for stage in read.stages if stage.kind == "evaluate"
    ]
    if evaluations:
        Console().print(terminal.policies_table(evaluations))


def follow(
    command: Annotated[list[str], typer.Argument(help="A verl command, after `--`.")],
    metrics: Annotated[Path, typer.Option(help="Folder for its metrics, one JSON Lines file a run.")],
    log: Annotated[Path, typer.Option(help="File that gets everything it prints.")],
    steps: Annotated[int, typer.Option(help="Training steps in all.", min=1)],
) -> None:
    """Run a verl command and show its progress: a live view in a terminal, a line for each step elsewhere."""
    following.follow(command, metrics, log, steps, Console(stderr=True))


def _setting(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise ConfigurationError(f"--set reads VARIABLE=VALUE; given: {text!r}")
    return name, value
