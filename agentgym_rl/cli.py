"""`openmanus-rl`: what can be done without writing code; `commands/` has the commands, by topic.

An error of ours is one clear line and exit code 2. Every command starts at once: what is heavy (scipy, pyarrow, torch)
is imported where it is used, never by importing this package.
"""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from agentgym_rl.commands import augment, environments, evaluation, judge, store, tasks, training
from agentgym_rl.errors import AgentGymError


class _Commands(TyperGroup):
    """Turns an error of ours into one line on stderr and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except AgentGymError as error:
            Console(stderr=True, soft_wrap=True).print(f"error: {error}", markup=False, highlight=False)
            raise typer.Exit(2) from error


app = typer.Typer(cls=_Commands, no_args_is_help=True, add_completion=False, help="Train language agents on tasks.")


for topic in (environments, evaluation, judge, store, augment, tasks, training):
    topic.add_to(app)
