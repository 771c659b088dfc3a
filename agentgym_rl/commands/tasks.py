"""`openmanus-rl tasks check` and `tasks convert`: a user's own tasks, before anything is trained on them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from agentgym_rl.commands.store import progress_bar
from agentgym_rl.data.parquet import write_tasks
from agentgym_rl.data.task_check import read_files, repeated, unsolved
from agentgym_rl.data.task_mapping import TaskMapping
from agentgym_rl.data.task_overlap import Listed
from agentgym_rl.data.user_tasks import load_tasks, write_jsonl
from agentgym_rl.environments import registry
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.evaluation.reference import Trial, Way, try_tasks
from agentgym_rl.viewer.findings_table import findings_table

NAMED = 5
"""Tasks without a reference that are named."""

FILES_HELP = "Files (.jsonl, .json, .csv, .parquet); those of several splits together."
Files = Annotated[list[Path], typer.Argument(help=FILES_HELP)]
MappingOption = Annotated[Path | None, typer.Option(help="YAML with `columns` and `constants`.", metavar="YAML")]
MapOption = Annotated[
    list[str] | None,
    typer.Option("--map", help="Where a field comes from, such as id=question_id, arguments.goal=goal, "
                 "reference_answer=meta.answer, arguments.options=options:json (JSON text).", metavar="FIELD=COLUMN"),
]  # fmt: skip
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A field's value in every task, JSON or text, such as environment=my_shop:Prices, "
                 "arguments.max_turns=8.", metavar="FIELD=VALUE"),
]  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Add the commands to an app."""
    tasks = typer.Typer(no_args_is_help=True, help="Check and convert files of tasks.")
    tasks.command()(check)
    tasks.command()(convert)
    app.add_typer(tasks, name="tasks")


def check(
    files: Files,
    mapping: MappingOption = None,
    columns: MapOption = None,
    constants: SetOption = None,
    near: Annotated[float, typer.Option(help="Similarity of texts that are near duplicates.", min=0, max=1)] = 0.9,
    dry_run: Annotated[bool, typer.Option(help="Play each task by its expert or reference answer.")] = True,
    limit: Annotated[int | None, typer.Option(help="Play only the first N tasks of each file.", min=1)] = None,
    isolation: Annotated[registry.Isolation, typer.Option(help="Where the environments run.")] = "thread",
) -> None:
    """Say what is wrong with files of tasks; exit code 1 where anything is.

    Bad lines, unknown environments and arguments, duplicates in a file and leaks between files, exact and near, and
    tasks that neither their expert nor their reference answer solves.

    Example: openmanus-rl tasks check train.jsonl test.csv --map id=nr --map arguments.question=text
    --map reference_answer=answer --set environment=my_shop:Prices
    """
    read = read_files(files, _mapping(mapping, columns, constants))
    findings = [*read.findings, *repeated(read.tasks, near)]
    trials: list[Trial] = []
    if dry_run:
        played = _first_of_each(read.tasks, limit)
        trials = _tried(played, isolation)
        findings += unsolved(played, trials)
    if findings:
        Console().print(findings_table(findings))
    _say_what_was_done(len(files), len(read.tasks), len(findings), trials)
    if findings:
        raise typer.Exit(1)


def convert(
    file: Annotated[Path, typer.Argument(help="A .jsonl, .json, .csv or .parquet file.")],
    out: Annotated[Path, typer.Option(help="The .parquet or .jsonl file to write.")],
    mapping: MappingOption = None,
    columns: MapOption = None,
    constants: SetOption = None,
) -> None:
    """Write a user's table as the tasks that every other command, and a training, takes.

    Example: openmanus-rl tasks convert questions.csv --map id=nr --map arguments.question=text
    --map reference_answer=answer --set environment=my_shop:Prices --set split=train --out train.parquet
    """
    if out.suffix not in (".parquet", ".jsonl"):
        raise ConfigurationError(f"tasks go to a file that ends in .parquet or .jsonl; given: {out}")
    tasks = load_tasks(file, _mapping(mapping, columns, constants))
    write = write_tasks if out.suffix == ".parquet" else write_jsonl
    write(tasks, out)
    Console().print(f"{out}: {len(tasks)} tasks", markup=False, highlight=False)


def _mapping(file: Path | None, columns: Sequence[str] | None, constants: Sequence[str] | None) -> TaskMapping | None:
    if file is not None and (columns or constants):
        raise ConfigurationError("give a mapping by --mapping, or by --map and --set")
    if file is not None:
        return TaskMapping.read(file)
    if not columns and not constants:
        return None
    values = {field: _value(text) for field, text in _pairs(constants or (), "--set").items()}
    return TaskMapping(_pairs(columns or (), "--map"), values)


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        field, sign, value = text.partition("=")
        if not sign or not field or not value:
            raise ConfigurationError(f"{option} is written FIELD=...; given: {text!r}")
        if field in pairs:
            raise ConfigurationError(f"{option} gives {field!r} twice")
        pairs[field] = value
    return pairs


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _first_of_each(tasks: Sequence[Listed], limit: int | None) -> list[Listed]:
    seen: Counter[str] = Counter()
    first = []
    for listed in tasks:
        seen[listed.file] += 1
        if limit is None or seen[listed.file] <= limit:
            first.append(listed)
    return first


def _tried(tasks: Sequence[Listed], isolation: registry.Isolation) -> list[Trial]:
    with progress_bar("dry run", len(tasks)) as (progress, bar):
        played = try_tasks(
            [one.task for one in tasks], isolation=isolation, on_trial=lambda trial: progress.advance(bar)
        )
        return asyncio.run(played)


def _say_what_was_done(files: int, tasks: int, findings: int, trials: Sequence[Trial]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"checked: tasks {tasks}, files {files}, findings {findings}", markup=False)
    solved = Counter(trial.way for trial in trials if not trial.trouble)
    if trials:
        by = ", ".join(f"by their {way.value} {solved[way]}" for way in (Way.EXPERT, Way.ANSWER))
        console.print(f"dry run: tasks {len(trials)}, solved {by}", markup=False)
    unproved = [trial.task.id for trial in trials if trial.way is Way.NONE and not trial.trouble]
    if unproved:
        named = ", ".join(unproved[:NAMED]) + (", ..." if len(unproved) > NAMED else "")
        said = f"without expert or usable reference answer, so only set up: {len(unproved)} ({named})"
        console.print(said, markup=False)
