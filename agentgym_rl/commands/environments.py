"""`openmanus-rl envs`, `check-env`, `play`, `export-tools`, `serve`, `chaos`: environments, without a training."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agentgym_rl.commands.options import ARGUMENTS_HELP, ISOLATION_HELP, POLICY_HELP, json_object
from agentgym_rl.commands.report_cards import report_cards
from agentgym_rl.data.user_tasks import load_tasks
from agentgym_rl.environments import registry
from agentgym_rl.environments.agentgym import service
from agentgym_rl.environments.agentgym.connection import TOKEN_VARIABLE
from agentgym_rl.environments.chaos import Faults
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.episode import Limits
from agentgym_rl.episode import play as play_episode
from agentgym_rl.evaluation.chaos import play_in_chaos
from agentgym_rl.evaluation.policies import Sampling, policies
from agentgym_rl.exported_tools import exported_tools, exported_tools_of, write_tool_file
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Trajectory
from agentgym_rl.viewer import terminal
from agentgym_rl.viewer.chaos_table import chaos_table, chaos_total

RATES_HELP = "NAME=RATE,...; of crash, error, hang, slow, garbage, nan_reward, connection_reset."


def add_to(app: typer.Typer) -> None:
    app.command()(envs)
    app.command("check-env")(check_env)
    app.command("report-cards")(report_cards)
    app.command()(play)
    app.command("export-tools")(export_tools)
    app.command()(serve)
    app.command()(chaos)


def envs(name: Annotated[str | None, typer.Argument(help="Show this environment's fact sheet.")] = None) -> None:
    """List the environments, or show the fact sheet of one."""
    Console().print(terminal.fact_sheet(name) if name else terminal.environments_table(registry.names()))


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
        shared = json_object(arguments, "--arguments")
        tasks = [Task(f"seed-{seed}", name, shared, seed=seed) for seed in range(seeds)]
    report = asyncio.run(check_environment(name, tasks, isolation=isolation))
    Console().print(terminal.contract_table(report))
    if report.broken:
        raise typer.Exit(1)


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
    task = Task("play", name, json_object(arguments, "--arguments"), seed=seed)
    a_day = 86_400.0  # a person may think for long
    limits = Limits(max_turns, reply_seconds=a_day, episode_seconds=a_day)
    console = Console()
    trajectory = asyncio.run(_play_shown(console, task, policy, Sampling(temperature, max_tokens, seed), limits))
    terminal.show_end(console, trajectory)
    if trajectory.failed:
        raise typer.Exit(1)


def export_tools(
    name: Annotated[str, typer.Argument(help="The environment.")],
    out: Annotated[Path, typer.Option(help="The YAML file to write, for verl's multi_turn.tool_config_path.")],
    arguments: Annotated[str | None, typer.Option(help="Of a task, where tools depend on it (JSON).")] = None,
) -> None:
    """Write an environment's actions as tools for verl's agent loop `tool_agent` and ours, `environment_tools`."""
    if arguments is None:
        tools = exported_tools(name)
    else:
        tools = asyncio.run(exported_tools_of(Task("export", name, json_object(arguments, "--arguments"))))
    write_tool_file(tools, out)
    Console().print(f"wrote {out}: {', '.join(tool.schema.name for tool in tools)}", markup=False, highlight=False)


def serve(
    name: Annotated[str, typer.Argument(help="The environment.")],
    host: Annotated[str, typer.Option(help="Where it listens; 0.0.0.0 is everywhere.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: a free one.")] = service.DEFAULT_PORT,
    token: Annotated[str | None, typer.Option(envvar=TOKEN_VARIABLE, help="Bearer token to ask for.")] = None,
    arguments: Annotated[
        str,
        typer.Option(
            help="Of tasks asked for by number, and what no client may set (files, addresses): a JSON object."
        ),
    ] = "{}",
    lease_seconds: Annotated[float, typer.Option(help="Close an instance unused for so long.")] = 600.0,
    max_instances: Annotated[int, typer.Option(help="Instances at once.")] = 64,
    isolation: Annotated[registry.Isolation, typer.Option(help=ISOLATION_HELP)] = "thread",
    errors: Annotated[service.Errors, typer.Option(help="`agentgym`: errors have status 200.")] = "status",
) -> None:
    """Serve an environment by AgentGym's HTTP protocol, so that other machines can play it."""
    shared = json_object(arguments, "--arguments")
    served = service.Service(name, shared, token, lease_seconds, max_instances, isolation=isolation, errors=errors)
    service.serve(served, host, port, lambda line: Console().print(line, markup=False, highlight=False))


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
    shared = json_object(arguments, "--arguments")
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
