"""Commands on trajectory stores: collect, annotate, filter, export, import, and a look at what is there.

Each is a step that may be stopped and run again: what is done is not done twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from agentgym_rl.data import annotate as annotating
from agentgym_rl.data import collect as collecting
from agentgym_rl.data import export as exporting
from agentgym_rl.data.filter import DROPPED_FILE, filter_store
from agentgym_rl.data.filter_rules import RULES
from agentgym_rl.data.imports import import_file
from agentgym_rl.data.record import Record
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.store_query import Query
from agentgym_rl.data.user_tasks import load_tasks
from agentgym_rl.data.versions import policy_version
from agentgym_rl.environments import registry
from agentgym_rl.episode import Limits
from agentgym_rl.evaluation.policies import Sampling, forms, policies
from agentgym_rl.viewer.drops_table import drops_table
from agentgym_rl.viewer.store_page import write_store_page
from agentgym_rl.viewer.store_table import collected_table, store_table

STORE_HELP = "Folder of a trajectory store."
OUT_HELP = "Folder of the new store."
RULE_HELP = "In the order in which they apply; any number of: " + ", ".join(kind.form for kind in RULES.values()) + "."
START_HELP = (
    "Of tasks: begin in the middle of each solved trajectory, N turns before its end, or after the prefix that the "
    "augmentation rule of that name kept; default: at the start."
)

StoreFolder = Annotated[Path, typer.Option(help=STORE_HELP)]
TaskOption = Annotated[str | None, typer.Option(help="Only of the task with this id.")]
EnvironmentOption = Annotated[str | None, typer.Option(help="Only of this environment.")]
SourceOption = Annotated[str | None, typer.Option(help="Only what this step made, such as collect or import.")]
MinReturnOption = Annotated[float | None, typer.Option(help="Lowest sum of the environment's rewards.")]
SuccessOption = Annotated[bool | None, typer.Option("--solved/--unsolved", help="Only with this outcome.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to an app."""
    app.command()(collect)
    app.command()(annotate)
    app.command("filter")(filter_)
    app.command()(export)
    app.command("import")(import_)
    app.command()(store)


def collect(
    tasks: Annotated[Path, typer.Option(help="A .jsonl or .parquet file of tasks.")],
    policy: Annotated[str, typer.Option(help=f"One of: {forms()}.")],
    out: Annotated[Path, typer.Option(help="Folder of the store; what it lacks is added.")],
    episodes: Annotated[int, typer.Option(help="Episodes of each task.")] = 1,
    temperature: Annotated[float, typer.Option(help="Of a policy that samples; 0 is greedy.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(help="Of one reply.")] = 256,
    max_turns: Annotated[int, typer.Option(help="Turns of one episode.")] = 64,
    concurrency: Annotated[int, typer.Option(help="Episodes under way at once.")] = 8,
    limit: Annotated[int | None, typer.Option(help="Only the first N tasks.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Of the policy.")] = 0,
    isolation: Annotated[registry.Isolation, typer.Option(help="Where the environments run.")] = "thread",
) -> None:
    """Play tasks with a policy, and keep every episode; run again, it plays what is missing.

    What the policy itself failed, as when its server is down, is not kept; then the exit code is 1.
    """
    chosen, sampling = load_tasks(tasks)[:limit], Sampling(temperature, max_tokens, seed)
    with policies(policy, sampling) as make_policy, _progress(len(chosen) * episodes) as on_episode:
        done = asyncio.run(
            collecting.collect(
                make_policy,
                chosen,
                TrajectoryStore(out),
                policy_version(policy),
                asdict(sampling),
                Limits(max_turns),
                concurrency,
                episodes,
                isolation,
                on_episode,
            )
        )
    Console().print(collected_table(done))
    if done.not_kept:
        said = f"not kept: {done.not_kept} episodes that the policy failed; the same command plays them again"
        Console(stderr=True, soft_wrap=True).print(said, markup=False, highlight=False)
        raise typer.Exit(1)


def annotate(
    store: StoreFolder,
    out: Annotated[Path, typer.Option(help=OUT_HELP)],
    name: Annotated[
        list[str] | None,
        typer.Option(help=f"Any of: {', '.join(annotating.NAMES)}; default: all but the last, which plays the expert."),
    ] = None,
) -> None:
    """Add automatic annotations to the trajectories of a store."""
    with _reading(store) as source:
        done = annotating.annotate_store(source, out, name or list(annotating.AUTOMATIC))
    Console().print(f"annotated: {len(done.store)} trajectories in {out}", markup=False, highlight=False)


def filter_(
    store: StoreFolder,
    out: Annotated[Path, typer.Option(help=OUT_HELP)],
    rule: Annotated[list[str], typer.Option(help=RULE_HELP)],
) -> None:
    """Keep the trajectories that meet every rule, and say of each of the others which rule dropped it, and why."""
    with _reading(store) as source:
        done = filter_store(source, out, rule)
    console = Console()
    console.print(drops_table(done.kept, done.dropped))
    console.print(f"each drop and its reason: {out / DROPPED_FILE}", markup=False, highlight=False, soft_wrap=True)


def export(
    store: StoreFolder,
    format: Annotated[exporting.Format, typer.Option(help="sft and tasks are verl's parquet; the rest is JSON Lines.")],
    out: Annotated[Path, typer.Option(help="The file to write.")],
    task: TaskOption = None,
    environment: EnvironmentOption = None,
    source: SourceOption = None,
    success: SuccessOption = None,
    min_return: MinReturnOption = None,
    pairs_per_task: Annotated[int, typer.Option(help="Of preference pairs (dpo), at most.", min=1)] = 1,
    start: Annotated[str | None, typer.Option(help=START_HELP, metavar="N|prefix")] = None,
) -> None:
    """Write a store as a file that trainers read."""
    query = Query(task, environment, source, success, min_return)
    with _reading(store, query) as given:
        done = exporting.export(given, format, out, query, pairs_per_task, start)
    what = {"dpo": f"of {done.given} pairs", "tasks": f"tasks of {done.given} trajectories"}
    said = what.get(format, f"of {done.given} trajectories")
    Console().print(f"wrote {done.written} {said} to {out}", markup=False, highlight=False)


def import_(
    file: Annotated[Path, typer.Option(help="A .jsonl, .json or .parquet file; or a folder of a Harbor job.")],
    out: Annotated[Path, typer.Option(help="Folder of the store; what it lacks is added.")],
    environment: Annotated[str | None, typer.Option(help="Of all of them, where the file does not say.")] = None,
) -> None:
    """Add the conversations of a ShareGPT, AgentTraj, OpenAI, ATIF or ADP file to a store."""
    done = import_file(file, TrajectoryStore(out), environment)
    Console().print(f"added {done.added} trajectories; {done.found} were there", markup=False, highlight=False)


def store(
    store: StoreFolder,
    task: TaskOption = None,
    environment: EnvironmentOption = None,
    source: SourceOption = None,
    success: SuccessOption = None,
    min_return: MinReturnOption = None,
    html: Annotated[Path | None, typer.Option(help="A page to write: distributions, and trajectories to read.")] = None,
    show: Annotated[int, typer.Option(help="How many trajectories are on that page.", min=0)] = 20,
) -> None:
    """Show what a store holds, by environment and source."""
    query, given = Query(task, environment, source, success, min_return), TrajectoryStore.existing(store)
    console = Console()
    console.print(store_table(given, query))
    if html:
        write_store_page(given, html, query, show)
        console.print(f"wrote {html}", markup=False, highlight=False)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Record | None], None]]:
    """A progress bar, and the function that moves it as episodes finish; None is one that was there."""
    solved = 0
    with progress_bar("solved 0", total) as (progress, bar):

        def on_episode(record: Record | None) -> None:
            nonlocal solved
            solved += record is not None and record.trajectory.success is True
            progress.update(bar, advance=1, description=f"solved {solved}")

        yield on_episode


@contextmanager
def _reading(folder: Path, query: Query | None = None) -> Iterator[TrajectoryStore]:
    """A store, and a progress bar that moves as its records are read."""
    total = sum(1 for _ in TrajectoryStore.existing(folder).columns("id", query=query))
    with progress_bar("trajectories", total) as (progress, bar):
        yield TrajectoryStore.existing(folder, lambda: progress.advance(bar))


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[tuple[Progress, TaskID]]:
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield progress, progress.add_task(description, total=total)
