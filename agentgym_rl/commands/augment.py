"""The command that changes the trajectories of a store, and keeps what the environment still solves."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agentgym_rl.commands.options import ISOLATION_HELP
from agentgym_rl.commands.store import OUT_HELP, STORE_HELP, progress_bar
from agentgym_rl.data.augment import augment_store
from agentgym_rl.data.augment_family import Augmentation
from agentgym_rl.data.augment_rules import RULES, rule_counts
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.versions import policy_version
from agentgym_rl.environments import registry
from agentgym_rl.episode import Limits
from agentgym_rl.evaluation.policies import Sampling, forms, policies
from agentgym_rl.viewer.augment_table import augment_table

RULE_HELP = "RULE or RULE=TRIES of each trajectory; any number of: " + ", ".join(
    f"{name} ({rule.says})" for name, rule in RULES.items()
)


def add_to(app: typer.Typer) -> None:
    """Add the command to an app."""
    app.command()(augment)


def augment(
    store: Annotated[Path, typer.Option(help=STORE_HELP)],
    out: Annotated[Path, typer.Option(help=OUT_HELP)],
    rule: Annotated[list[str], typer.Option(help=f"{RULE_HELP}.")],
    continue_with: Annotated[str, typer.Option(help=f"Who goes on after a change; one of: {forms()}.")] = "expert",
    keep_originals: Annotated[bool, typer.Option(help="The new store has the given trajectories too.")] = True,
    temperature: Annotated[float, typer.Option(help="Of a policy that samples; 0 is greedy.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(help="Of one reply.")] = 256,
    max_turns: Annotated[int, typer.Option(help="Turns of one episode.")] = 64,
    concurrency: Annotated[int, typer.Option(help="Tries under way at once.")] = 8,
    seed: Annotated[int, typer.Option(help="Of every choice, and of the policy.")] = 0,
    isolation: Annotated[registry.Isolation, typer.Option(help=ISOLATION_HELP)] = "thread",
    finish: Annotated[bool, typer.Option("--finish", help="Make the store without what the policy failed.")] = False,
) -> None:
    """Change trajectories, play each change in its environment, and keep what is solved; stopped, and run again, it
    goes on.

    A mistake that was put in, and a beginning that is only context, are not trained on. Where the policy itself failed,
    as when its server is down, there is no new store yet, and the exit code is 1: the same command plays that again.
    """
    sampling, given = Sampling(temperature, max_tokens, seed), TrajectoryStore.existing(store)
    wanted = Augmentation(
        rule_counts(rule), policy_version(continue_with), asdict(sampling), seed, keep_originals, Limits(max_turns)
    )
    with policies(continue_with, sampling) as make_policy, progress_bar("new 0", len(given)) as (progress, shown):

        def on_parent(parents: int, kept: int) -> None:
            progress.update(shown, completed=parents, description=f"new {kept}")

        done = augment_store(given, out, wanted, make_policy, concurrency, isolation, on_parent, finish)
    Console().print(augment_table(done.report, done.is_whole))
    if failures := done.report.policy_failures:
        said = f"the policy failed {failures} tries; {_what_to_do(out, done.is_whole)}"
        Console(stderr=True, soft_wrap=True).print(said, markup=False, highlight=False)
        if not finish:
            raise typer.Exit(1)


def _what_to_do(out: Path, is_whole: bool) -> str:
    if is_whole:
        return f"{out} was made without them; to play them again, remove it and give the same command"
    return f"the same command plays them again, or, with --finish, makes {out} without them"
