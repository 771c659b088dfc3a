"""What a judge made of a set of trajectories, and how far it agrees with the environments' own outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from agentgym_rl.judge.agreement import agreement
from agentgym_rl.judge.judgements import Judgement, missing
from agentgym_rl.judge.server import Spent

_NUMBERS = ("judged", "mean score", "with outcome", "solved", "accuracy", "kappa", "AUC", "AUC within tasks")


def agreement_table(judgements: Sequence[Judgement]) -> Table:
    """One line an environment, and one over all where there are several."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("environment")
    for name in _NUMBERS:
        table.add_column(name, justify="right")
    environments = list(dict.fromkeys(row.environment for row in judgements))
    for environment in environments:
        rows = [row for row in judgements if row.environment == environment]
        table.add_row(Text(environment), *_cells(rows))
    if len(environments) > 1:
        table.add_row("all", *_cells(judgements))
    return table


def judge_notes(judgements: Sequence[Judgement], spent: Spent) -> list[str]:
    """Lines about what was not judged and why, and about the cost of this run."""
    causes = Counter(row.failure for row in judgements if row.failure is not None)
    for_good = {row.failure for row in judgements if row.has_no_verdict} - {row.failure for row in missing(judgements)}
    notes = [
        f"not judged: {count} of {len(judgements)} ({cause})" + (", and not asked again" if cause in for_good else "")
        for cause, count in causes.most_common()
    ]
    cost = (
        f"this run: {spent.requests} requests, {spent.cached} verdicts from the cache, "
        f"{spent.prompt_tokens} prompt and {spent.completion_tokens} completion tokens"
    )
    return [*notes, cost]


def _cells(rows: Sequence[Judgement]) -> list[str]:
    scores = [row.score for row in rows if row.score is not None]
    compared = [(row.score, row.success, row.task) for row in rows if row.score is not None and row.success is not None]
    outcomes = [success for _, success, _ in compared]
    found = agreement([score for score, _, _ in compared], outcomes, [task for _, _, task in compared])
    mean = sum(scores) / len(scores) if scores else None
    solved = sum(outcomes) / len(outcomes) if outcomes else None
    shares = [found.accuracy, found.kappa, found.auc, found.auc_within_tasks]
    return [f"{len(scores)} of {len(rows)}", _number(mean), str(found.size), _number(solved), *map(_number, shares)]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
