"""`openmanus-rl`: look at environments, check and play them, evaluate policies, and write a report.

An error of ours is one clear line and exit code 2. Every command starts at once: what is heavy (scipy, pyarrow, torch)
is imported where it is used, never by importing this package.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from typer.core import TyperGroup

from agentgym_rl import follow as following
from agentgym_rl.data import select as selecting
from agentgym_rl.data.sft_parquet import write_sft
from agentgym_rl.data.trajectory_json import read_trajectories
from agentgym_rl.data.user_tasks import load_tasks
from agentgym_rl.environments import registry
from agentgym_rl.environments.agentgym import service
from agentgym_rl.environments.agentgym.connection import TOKEN_VARIABLE
from agentgym_rl.environments.chaos import Faults
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.episode import Limits
from agentgym_rl.episode import play as play_episode
from agentgym_rl.errors import AgentGymError, ConfigurationError
from agentgym_rl.evaluation import run
from agentgym_rl.evaluation.chaos import play_in_chaos
from agentgym_rl.evaluation.policies import Sampling, forms, policies
from agentgym_rl.evaluation.result import EpisodeRow, Evaluation
from agentgym_rl.evaluation.trajectories_file import TrajectoriesFile
from agentgym_rl.exported_tools import exported_tools, exported_tools_of, write_tool_file
from agentgym_rl.task import Task
from agentgym_rl.training import driver
from agentgym_rl.training.plan import read_plan
from agentgym_rl.training.stages import RESULT
from agentgym_rl.trajectory import Trajectory
from agentgym_rl.viewer import terminal
from agentgym_rl.viewer.chaos_table import chaos_table, chaos_total
from agentgym_rl.viewer.report import write_report
from agentgym_rl.viewer.selection_table import selection_table

ARGUMENTS_HELP = "The task's arguments: a JSON object."
ISOLATION_HELP = "Where the environment runs; a worker process may crash or hang."
RATES_HELP = "NAME=RATE,...; of crash, error, hang, slow, garbage, nan_reward, connection_reset."
POLICY_HELP = f"One of: {forms()}."


class _Commands(TyperGroup):
    """Turns an error of ours into one line on stderr and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except AgentGymError as error:
            Console(stderr=True, soft_wrap=True).print(f"error: {error}", markup=False, highlight=False)
            raise typer.Exit(2) from error


app = typer.Typer(cls=_Commands, no_args_is_help=True, add_completion=False, help="Train language agents on tasks.")


@app.command()
def envs(name: Annotated[str | None, typer.Argument(help="Show this environment's fact sheet.")] = None) -> None:
    """List the environments, or show the fact sheet of one."""
    Console().print(terminal.fact_sheet(name) if name else terminal.environments_table(registry.names()))


@app.command("check-env")
def check_env(
    name: Annotated[str, typer.Argument(help="The environment.")],
    task_file: Annotated[Path | None, typer.Option(help="Check on these tasks (.jsonl or .parquet).")] = None,
    arguments: Annotated[str, typer.Option(help=ARGUMENTS_HELP)] = "{}",
    seeds: Annotated[int, typer.Option(help="Without a task file: check on the seeds 0 to N - 1.", min=1)] = 3,
    isolation: Annotated[registry.Isolation, typer.Option(help=ISOLATION_HELP)] = "thread",
) -> None:
    """Hold an environment to its contract; exit code 1 where a rule is broken."""
    if task_file:
        tasks = load_tasks(task_file)
    else:
        shared = _json_object(arguments, "--arguments")
        tasks = [Task(f"seed-{seed}", name, shared, seed=seed) for seed in range(seeds)]
    report = asyncio.run(check_environment(name, tasks, isolation=isolation))
    Console().print(terminal.contract_table(report))
    if report.broken:
        raise typer.Exit(1)


@app.command()
def play(
    name: Annotated[str, typer.Argument(help="The environment.")],
    arguments: Annotated[str, typer.Option(help=ARGUMENTS_HELP)] = "{}",
    seed: Annotated[int, typer.Option(help="The task's seed.")] = 0,
    policy: Annotated[str, typer.Option(help=POLICY_HELP)] = "human",
    max_turns: Annotated[int, typer.Option(help="Turns of one episode.")] = 64,
    temperature: Annotated[float, typer.Option(help="Of a policy that samples; 0 is greedy.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(help="Of one reply.")] = 256,
) -> None:
    """Play one task, step by step, by hand or with a policy."""
    task = Task("play", name, _json_object(arguments, "--arguments"), seed=seed)
    a_day = 86_400.0  # a person may think for long
    limits = Limits(max_turns, reply_seconds=a_day, episode_seconds=a_day)
    console = Console()
    trajectory = asyncio.run(_play_shown(console, task, policy, Sampling(temperature, max_tokens, seed), limits))
    terminal.show_end(console, trajectory)
    if trajectory.failed:
        raise typer.Exit(1)


@app.command("eval")
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
    settings = {"policy": policy, "tasks": str(tasks), **asdict(sampling), "max_turns": max_turns}
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


@app.command()
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


@app.command()
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


@app.command("export-tools")
def export_tools(
    name: Annotated[str, typer.Argument(help="The environment.")],
    out: Annotated[Path, typer.Option(help="The YAML file to write, for verl's multi_turn.tool_config_path.")],
    arguments: Annotated[str | None, typer.Option(help="Of a task, where tools depend on it (JSON).")] = None,
) -> None:
    """Write an environment's actions as tools for verl's agent loop `tool_agent` and ours, `environment_tools`."""
    if arguments is None:
        tools = exported_tools(name)
    else:
        tools = asyncio.run(exported_tools_of(Task("export", name, _json_object(arguments, "--arguments"))))
    write_tool_file(tools, out)
    Console().print(f"wrote {out}: {', '.join(tool.schema.name for tool in tools)}", markup=False, highlight=False)


@app.command()
def serve(
    name: Annotated[str, typer.Argument(help="The environment.")],
    host: Annotated[str, typer.Option(help="Where it listens; 0.0.0.0 is everywhere.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: a free one.")] = service.DEFAULT_PORT,
    token: Annotated[str | None, typer.Option(envvar=TOKEN_VARIABLE, help="Bearer token to ask for.")] = None,
    arguments: Annotated[str, typer.Option(help="Of tasks asked for by number: a JSON object.")] = "{}",
    lease_seconds: Annotated[float, typer.Option(help="Close an instance unused for so long.")] = 600.0,
    max_instances: Annotated[int, typer.Option(help="Instances at once.")] = 64,
    isolation: Annotated[registry.Isolation, typer.Option(help=ISOLATION_HELP)] = "thread",
    errors: Annotated[service.Errors, typer.Option(help="`agentgym`: errors have status 200.")] = "status",
) -> None:
    """Serve an environment by AgentGym's HTTP protocol, so that other machines can play it."""
    shared = _json_object(arguments, "--arguments")
    served = service.Service(name, shared, token, lease_seconds, max_instances, isolation=isolation, errors=errors)
    service.serve(served, host, port, lambda line: Console().print(line, markup=False, highlight=False))


@app.command()
def chaos(
    name: Annotated[str, typer.Argument(help="The environment.")],
    rates: Annotated[str, typer.Option(help=RATES_HELP)],
    arguments: Annotated[str, typer.Option(help=ARGUMENTS_HELP)] = "{}",
    policy: Annotated[str, typer.Option(help=POLICY_HELP)] = "expert",
    episodes: Annotated[int, typer.Option(help="Each plays the task with the next seed, from 0.", min=1)] = 50,
    seed: Annotated[int, typer.Option(help="Of the faults and the policy.")] = 0,
    step_seconds: Annotated[float, typer.Option(help="Deadline of a step, which ends a hang.")] = 1.0,
    concurrency: Annotated[int, typer.Option(help="Episodes under way at once.")] = 8,
    isolation: Annotated[registry.Isolation, typer.Option(help=ISOLATION_HELP)] = "thread",
) -> None:
    """Play an environment that fails on purpose, and show what became of each fault; exit code 1 where one was lost."""
    shared = _json_object(arguments, "--arguments")
    tasks = [Task(f"chaos-{number}", name, shared, seed=number) for number in range(episodes)]
    limits = Limits(reset_seconds=10.0, step_seconds=step_seconds, reply_seconds=10.0, episode_seconds=120.0)
    faults = Faults.parse(rates, seed)
    with policies(policy, Sampling(seed=seed)) as make_policy:
        books = asyncio.run(play_in_chaos(make_policy, tasks, faults, limits, concurrency, isolation))
    console = Console()
    console.print(chaos_table(books))
    console.print(chaos_total(books))
    if not books.balance:
        raise typer.Exit(1)


@app.command()
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


@app.command(context_settings={"ignore_unknown_options": True})
def follow(
    command: Annotated[list[str], typer.Argument(help="A verl command, after `--`.")],
    metrics: Annotated[Path, typer.Option(help="Folder for its metrics, one JSON Lines file a run.")],
    log: Annotated[Path, typer.Option(help="File that gets everything it prints.")],
    steps: Annotated[int, typer.Option(help="Training steps in all.", min=1)],
) -> None:
    """Run a verl command with a progress bar and a line for each step."""
    following.follow(command, metrics, log, steps, Console(stderr=True))


@contextmanager
def _progress(total: int) -> Iterator[Callable[[EpisodeRow, Trajectory | None], None]]:
    """A progress bar, and the function that moves it as episodes finish."""
    solved = 0
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("solved 0", total=total)

        def on_episode(row: EpisodeRow, trajectory: Trajectory | None) -> None:
            nonlocal solved
            solved += row.success is True
            progress.update(bar, advance=1, description=f"solved {solved}")

        yield on_episode


async def _play_shown(console: Console, task: Task, spec: str, sampling: Sampling, limits: Limits) -> Trajectory:
    """Play one task and show each message as it comes."""
    numbers = itertools.count(1)
    with policies(spec, sampling) as make_policy:
        async with registry.opened(task.environment) as environment:
            return await play_episode(
                make_policy(environment, task, 0),
                environment,
                task,
                limits,
                on_turn=lambda turn: terminal.show_turn(console, turn, next(numbers)),
                on_opening=lambda opening: terminal.show_messages(console, opening.messages),
            )


def _setting(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise ConfigurationError(f"--set reads VARIABLE=VALUE; given: {text!r}")
    return name, value


def _labelled_evaluation(text: str) -> tuple[str, Evaluation]:
    label, _, file = text.rpartition("=")
    if not label:
        raise ConfigurationError(f"--evaluation reads LABEL=FILE; given: {text!r}")
    return label, Evaluation.read(file)


def _json_object(text: str, option: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{option} must be a JSON object; {text!r} is no JSON ({error.msg})") from error
    if not isinstance(value, dict):
        raise ConfigurationError(f"{option} must be a JSON object; given: {text}")
    return value
