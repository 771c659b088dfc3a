"""Report cards as tables: in a terminal what was measured, in Markdown also what is only promised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentgym_rl.evaluation.report_card import Played, ReportCard

MEASURED = ("environment", "contract", "expert (95%)", "random (95%)", "turns", "reset ms", "step ms")
COLUMNS = (*MEASURED, "tasks", "domain", "reward", "deterministic", "licence")
NOTE = (
    "One episode a task. Turns, and the median milliseconds of a reset and a step, are the expert's, or the random"
    " policy's where there is no expert; reward is the promised range of a step. `-`: there is no expert, or no list"
    " of actions to draw from."
)


def cards_table(cards: Sequence[ReportCard]) -> RenderableType:
    """What was measured; below it what could not be played, with the reason, and the rules that are broken."""
    parts: list[RenderableType] = [_table(MEASURED, (cells(card)[: len(MEASURED)] for card in _played(cards)))]
    if others := _not_played(cards):
        parts += ["", _table((f"not played ({len(others)})", "why"), ((c.environment, c.reason) for c in others))]
    parts += [Text(line, "red") for line in broken_lines(cards)]
    return Group(*parts)


def cards_markdown(cards: Sequence[ReportCard]) -> str:
    """All columns."""
    lines = ["# Report cards", "", *_markdown(COLUMNS, map(cells, _played(cards))), "", NOTE]
    if others := _not_played(cards):
        lines += ["", f"## Not played here ({len(others)})", ""]
        lines += _markdown(("environment", "why"), ((card.environment, card.reason) for card in others))
    if broken := broken_lines(cards):
        lines += ["", "## Broken rules", "", *(f"- {line}" for line in broken)]
    return "\n".join(lines) + "\n"


def broken_lines(cards: Sequence[ReportCard]) -> list[str]:
    return [f"{card.environment} breaks {rule}" for card in cards for rule in card.broken_rules]


def cells(card: ReportCard) -> list[str]:
    """One line of the table, by `COLUMNS`."""
    shown = card.measured
    return [
        card.environment,
        f"{len(card.broken_rules)} broken" if card.broken_rules else "ok",
        _success(card.expert),
        _success(card.random),
        _number(shown.turns if shown else None),
        _number(shown.reset_milliseconds if shown else None),
        _number(shown.step_milliseconds if shown else None),
        str(card.tasks),
        card.domain or "-",
        _range(card),
        "yes" if card.deterministic else "no",
        card.licence or "-",
    ]


def _played(cards: Sequence[ReportCard]) -> list[ReportCard]:
    return [card for card in cards if not card.reason]


def _not_played(cards: Sequence[ReportCard]) -> list[ReportCard]:
    return [card for card in cards if card.reason]


def _success(played: Played | None) -> str:
    if played is None:
        return "-"
    rate, failed = played.success, sum(played.failures.values())
    if rate.value is None or rate.low is None or rate.high is None:
        text = "no verdict"
    else:
        text = f"{rate.value:.0%} [{100 * rate.low:.0f}, {100 * rate.high:.0f}]"
    return text + (f", {failed} failed" if failed else "")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def _range(card: ReportCard) -> str:
    if card.reward_range is None:
        return "-"
    return " to ".join("any" if bound is None else f"{bound:g}" for bound in card.reward_range)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name != "why")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    escaped = ([" ".join(cell.replace("|", "\\|").split()) for cell in row] for row in rows)
    return [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *escaped)]
