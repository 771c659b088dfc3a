"""`openmanus-rl judge`: have a model score trajectories, and see how far it agrees with the environments' outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agentgym_rl.commands.store import progress_bar
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.store_held import HeldStore
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.judge.annotate import annotate_judged
from agentgym_rl.judge.given import FileGiven, StoreGiven
from agentgym_rl.judge.judgements import Judgement, missing, only_judge
from agentgym_rl.judge.run import judge_all
from agentgym_rl.judge.settings import AnswerFormat, JudgeSettings
from agentgym_rl.viewer.judge_table import agreement_table, judge_notes

RELATIVE_HELP = (
    "All trajectories of a task side by side; a store whose parts each have some of every task is read many times over."
)


def add_to(app: typer.Typer) -> None:
    app.command()(judge)


def judge(
    trajectories: Annotated[Path, typer.Option(help="A file of `eval --save-trajectories`, or a store's folder.")],
    server: Annotated[str, typer.Option(help="An OpenAI-compatible server's URL, which ends in /v1 on most.")],
    model: Annotated[str, typer.Option(help="The judge's name on that server.")],
    out: Annotated[
        Path, typer.Option(help="JSON Lines, a row a trajectory; a run that was stopped goes on there.", dir_okay=False)
    ],
    annotated: Annotated[
        Path | None, typer.Option(help="Folder for the store with the scores as annotations, once none is missing.")
    ] = None,
    relative: Annotated[bool, typer.Option("--relative", help=RELATIVE_HELP)] = False,
    rubric: Annotated[Path | None, typer.Option(help="A text file; else the rubric of the package.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Folder of answers: no question is paid for twice.")] = None,
    answer_format: Annotated[AnswerFormat, typer.Option(help="What the server can hold answers to.")] = "json_schema",
    temperature: Annotated[float, typer.Option(help="Of the judge.", min=0.0)] = 0.0,
    max_tokens: Annotated[int, typer.Option(help="Of one answer, thoughts included.", min=1)] = 1024,
    seed: Annotated[int, typer.Option(help="Of the sampling, and of the order with --relative.")] = 0,
    concurrency: Annotated[int, typer.Option(help="Verdicts under way at once.", min=1)] = 8,
    tries: Annotated[int, typer.Option(help="For one verdict.", min=1)] = 5,
    deadline_seconds: Annotated[float, typer.Option(help="For one verdict, with all its tries.")] = 180.0,
) -> None:
    """Have a model score trajectories from 0 to 1; exit code 1 where a verdict is missing that may still come.

    None will come where the server refuses the very question (status 400, 413, 422), for its length say, or no answer
    of all tries can be read. Then there is no score, the exit code stays 0, and the same command doesn't ask again;
    more --tries do where there were answers, and another --out does. A judge that gave no verdict at all may be set up
    wrongly: then every one is missing.
    """
    settings = JudgeSettings(
        url=server,
        model=model,
        rubric=str(rubric) if rubric else None,
        answer_format=answer_format,
        parameters={"temperature": temperature, "max_tokens": max_tokens, "seed": seed},
        cache=str(cache) if cache else None,
        concurrency=concurrency,
        tries=tries,
        request_seconds=min(max(60.0, deadline_seconds / tries), deadline_seconds),  # a CPU may need minutes
        deadline_seconds=deadline_seconds,
    )
    store = HeldStore(TrajectoryStore.existing(trajectories)) if trajectories.is_dir() else None
    if annotated and store is None:
        raise ConfigurationError(f"--annotated is for a store's trajectories; {trajectories} is no folder")
    given = StoreGiven(store) if store else FileGiven(trajectories)
    if out.exists() and out.samefile(trajectories):
        raise ConfigurationError(f"--out must be another file than --trajectories; given for both: {out}")
    with only_judge(out):
        with _progress(len(given)) as on_judged:
            run = asyncio.run(judge_all(settings, given, out, relative, seed, on_judged))
        is_missing = bool(missing(run.judgements))
        if annotated and store and not is_missing:
            annotate_judged(store, annotated, run.judgements)
    console = Console()
    console.print(agreement_table(run.judgements))
    for note in judge_notes(run.judgements, run.spent):
        console.print(note, markup=False, highlight=False)
    if is_missing:
        if annotated:
            said = f"{annotated} is not written: a verdict is missing; the same command asks again"
            console.print(said, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Sequence[Judgement]], None]]:
    """A progress bar, and the function that moves it as verdicts come."""
    failed = 0
    with progress_bar("failed 0", total) as (progress, bar):

        def on_judged(rows: Sequence[Judgement]) -> None:
            nonlocal failed
            failed += sum(row.failure is not None for row in rows)
            progress.update(bar, advance=len(rows), description=f"failed {failed}")

        yield on_judged
