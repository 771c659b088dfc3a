"""`openmanus-rl report-cards`: what every environment promises and was measured to do, in one table."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agentgym_rl.commands.options import ISOLATION_HELP
from agentgym_rl.data.user_tasks import load_tasks
from agentgym_rl.environments import registry
from agentgym_rl.evaluation.card_files import CardFiles, write_json, write_text
from agentgym_rl.evaluation.report_card import CardSettings, ReportCard, report_card
from agentgym_rl.task import Task
from agentgym_rl.viewer.cards_table import broken_lines, cards_markdown, cards_table


def report_cards(
    names: Annotated[list[str] | None, typer.Argument(help="The environments; none given: all.")] = None,
    tasks: Annotated[int, typer.Option(help="Tasks a card, drawn by the environment's data set.", min=1)] = 16,
    task_file: Annotated[
        Path | None, typer.Option(help="Play these tasks (.jsonl or .parquet) of the environments that they name.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the tasks and the random policy.")] = 0,
    isolation: Annotated[registry.Isolation, typer.Option(help=ISOLATION_HELP)] = "thread",
    out: Annotated[Path, typer.Option(help="Folder for cards.md, cards.json and a file a card.")] = Path(
        "outputs/report-cards"
    ),
    fresh: Annotated[bool, typer.Option(help="Measure again what is known.")] = False,
) -> None:
    """Measure every environment: contract, success of expert and random policy, times; exit code 1 if a rule is broken.

    A card that is in the folder is kept while code, packages and options are the same.
    """
    given: dict[str, list[Task]] = {}
    for task in load_tasks(task_file) if task_file else []:
        given.setdefault(task.environment, []).append(task)
    chosen = names or list(given) or registry.names()
    for name in chosen:
        registry.target(name)
    digest = hashlib.sha256(task_file.read_bytes()).hexdigest()[:16] if task_file else ""
    settings = CardSettings(tasks, seed, isolation)
    cards = _made(chosen, given, settings, CardFiles(out / "cards", settings, digest), fresh)
    write_json(out / "cards.json", [card.to_dict() for card in cards])
    write_text(out / "cards.md", cards_markdown(cards))
    console = Console()
    console.print(cards_table(cards))
    console.print(f"wrote {out / 'cards.md'} and {out / 'cards.json'}", markup=False, highlight=False)
    if broken_lines(cards):
        raise typer.Exit(1)


def _made(
    names: list[str], given: dict[str, list[Task]], settings: CardSettings, files: CardFiles, fresh: bool
) -> list[ReportCard]:
    """The cards, in order; each is kept as it is made."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    cards = []
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("report cards", total=len(names))
        for name in names:
            card = None if fresh else files.kept(name)
            if card is None:
                progress.update(bar, description=name)

                def show(part: str, name: str = name) -> None:
                    progress.update(bar, description=f"{name}: {part}")

                card = asyncio.run(report_card(name, settings, given.get(name, ()), show))
                files.keep(card)
            cards.append(card)
            progress.advance(bar)
    return cards
