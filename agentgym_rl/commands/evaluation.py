"""`openmanus-rl eval`, `select`, `view`: play a policy on tasks, keep its best, and show how it did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agentgym_rl.commands.options import ISOLATION_HELP, POLICY_HELP
from agentgym_rl.commands.store import progress_bar
from agentgym_rl.data import select as selecting
from agentgym_rl.data.sft_parquet import write_sft
from agentgym_rl.data.trajectory_json import read_trajectories
from agentgym_rl.data.user_tasks import load_tasks
from agentgym_rl.data.versions import policy_version
from agentgym_rl.environments import registry
from agentgym_rl.episode import Limits
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.evaluation import run
from agentgym_rl.evaluation.policies import Sampling, policies
from agentgym_rl.evaluation.result import EpisodeRow, Evaluation
from agentgym_rl.evaluation.trajectories_file import TrajectoriesFile
from agentgym_rl.trajectory import Trajectory
from agentgym_rl.viewer import terminal
from agentgym_rl.viewer.report import write_report
from agentgym_rl.viewer.selection_table import selection_table


def add_to(app: typer.Typer) -> None:
    app.command("eval")(evaluate)
    app.command()(select)
    app.command()(view)


def evaluate(
    tasks: Annotated[Path, typer.Option(help="A .jsonl or .parquet file of tasks.")],
    policy: Annotated[str, typer.Option(help=POLICY_HELP)],
    temperature: Annotated[float, typer.Option(help="Of a policy that samples; 0 is greedy.")] = 1.0,
    greedy: Annotated[bool, typer.Option("--greedy", help="The same as --temperature 0.")] = False,
    max_tokens: Annotated[int, typer.Option(help="Of one reply.")] = 256,
    max_turns: Annotated[int, typer.Option(help="Turns of one episode.")] = 64,
    concurrency: Annotated[int, typer.Option(help="Episodes under way at once.")] = 8,
    episodes: Annotated[int, typer.Option(help="Episodes of each task.")] = 1,
    limit: Annotated[int | None, typer.Option(help="Only the first N tasks.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Of the policy.")] = 0,
    isolation: Annotated[registry.Isolation, typer.Option(help=ISOLATION_HELP)] = "thread",
    out: Annotated[Path | None, typer.Option(help="Result as JSON; an interrupted evaluation goes on there.")] = None,
    save_trajectories: Annotated[Path | None, typer.Option(help="Whole episodes as JSON Lines.")] = None,
) -> None:
    """Evaluate a policy on tasks: success rate with its 95% interval, return, turns, failures."""
    chosen = load_tasks(tasks)[:limit]
    sampling = Sampling(0.0 if greedy else temperature, max_tokens, seed)
    known = {"policy": policy, "policy_version": policy_version(policy), "tasks": str(tasks)}
    settings = {**known, **asdict(sampling), "max_turns": max_turns}
    rows_file = out.with_name(out.name + ".rows.jsonl") if out else None
    goes_on = rows_file is not None and rows_file.exists()
    trajectories = TrajectoriesFile(save_trajectories, goes_on) if save_trajectories else None
    with policies(policy, sampling) as make_policy, _progress(len(chosen) * episodes) as on_episode:
        evaluation = asyncio.run(
            run.evaluate(
                make_policy,
                chosen,
                Limits(max_turns),
                concurrency,
                episodes_per_task=episodes,
                on_episode=on_episode,
                rows_file=rows_file,
                settings=settings,
                isolation=isolation,
                trajectories=trajectories,
            )
        )
    console = Console()
    console.print(terminal.evaluation_table(evaluation))
    terminal.show_failures(console, evaluation)
    if out and rows_file:
        evaluation.write(out)
        rows_file.unlink()
    if trajectories:
        trajectories.discard()


def select(
    trajectories: Annotated[list[Path], typer.Option(help="A file that `eval --save-trajectories` wrote; any number.")],
    out: Annotated[Path, typer.Option(help="The SFT parquet file to write.")],
    top: Annotated[int | None, typer.Option(help="At most so many of each task, best first.")] = None,
    min_return: Annotated[float | None, typer.Option(help="Lowest sum of the environment's rewards.")] = None,
    only_success: Annotated[bool, typer.Option("--only-success", help="Only solved ones.")] = False,
    distinct: Annotated[bool, typer.Option("--distinct", help="Same actions in the same task: one.")] = False,
) -> None:
    """Keep the best of sampled trajectories, as parquet to imitate; failed ones never."""
    given = [trajectory for file in trajectories for trajectory in read_trajectories(file)]
    selection = selecting.select(given, selecting.Rules(top, min_return, only_success, distinct))
    Console().print(selection_table(selection))
    write_sft(selection.kept, out)


def view(
    out: Annotated[Path, typer.Option(help="The HTML file to write.")],
    evaluation: Annotated[list[str] | None, typer.Option(help="LABEL=FILE of `eval --out`; any number.")] = None,
    trajectories: Annotated[Path | None, typer.Option(help="A file that `eval --save-trajectories` wrote.")] = None,
    show: Annotated[int, typer.Option(help="How many trajectories to show.", min=0)] = 20,
    title: Annotated[str, typer.Option(help="The report's heading.")] = "Evaluation",
) -> None:
    """Write evaluations and trajectories as one HTML file to read."""
    evaluations = [_labelled_evaluation(text) for text in evaluation or []]
    shown = read_trajectories(trajectories)[:show] if trajectories else []
    settings = evaluations[0][1].settings if len(evaluations) == 1 else {}
    write_report(out, title, settings, evaluations=evaluations, trajectories=shown)
    Console().print(f"wrote {out}", markup=False, highlight=False)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[EpisodeRow, Trajectory | None], None]]:
    """A progress bar, and the function that moves it as episodes finish."""
    solved = 0
    with progress_bar("solved 0", total) as (progress, bar):

        def on_episode(row: EpisodeRow, trajectory: Trajectory | None) -> None:
            nonlocal solved
            solved += row.success is True
            progress.update(bar, advance=1, description=f"solved {solved}")

        yield on_episode


def _labelled_evaluation(text: str) -> tuple[str, Evaluation]:
    label, _, file = text.rpartition("=")
    if not label:
        raise ConfigurationError(f"--evaluation reads LABEL=FILE; given: {text!r}")
    return label, Evaluation.read(file)
