"""How environments, turns and evaluations look in a terminal, with rich.

Text of an environment or a policy is shown as it is: never read as rich's markup.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import fields

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agentgym_rl.environment import Facts
from agentgym_rl.environments import registry
from agentgym_rl.environments.contract import Report
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.evaluation.result import Evaluation, Summary
from agentgym_rl.evaluation.success import Estimate
from agentgym_rl.messages import Message
from agentgym_rl.trajectory import Trajectory, Turn

_STYLES = {"system": "dim", "user": "cyan", "assistant": "green", "tool": "magenta"}


def environments_table(names: Iterable[str]) -> Table:
    """One line an environment; of one that can't be used, the reason."""
    table = Table("environment", "what it is", "max turns", "expert", "deterministic")
    for name in names:
        try:
            table.add_row(*_environment_cells(name))
        except ConfigurationError as error:
            table.add_row(name, Text(str(error), style="yellow"))
    return table


def _environment_cells(name: str) -> list[str | Text]:
    cls = registry.environment_class(name)
    facts = cls.facts
    if not isinstance(facts, Facts):
        raise ConfigurationError(f"it breaks its contract: `facts` must be a Facts; given: {type(facts).__name__}")
    summary = (inspect.getdoc(cls) or "").partition("\n")[0]
    expert = "none" if facts.expert_success is None else f"{facts.expert_success:.0%}"
    return [name, Text(summary), str(facts.max_turns), expert, "yes" if facts.deterministic else "no"]


def fact_sheet(name: str) -> RenderableType:
    """An environment's docstring with the facts that its contract check holds it to."""
    cls = registry.environment_class(name)
    table = Table("fact", "value", title=f"Facts of {name}", title_justify="left")
    for field in fields(Facts):
        table.add_row(field.name, Text(str(getattr(cls.facts, field.name))))
    return Group(Text(inspect.getdoc(cls) or "", style="default"), "", table)


def contract_table(report: Report) -> Table:
    """One line a rule of the environment contract."""
    marks = {True: Text("ok", "green"), False: Text("FAIL", "bold red"), None: Text("-", "dim")}
    table = Table("rule", "result", "why", title=f"Contract of {report.environment}", title_justify="left")
    for result in report.results:
        table.add_row(Text(result.rule), marks[result.passed], Text(result.message))
    return table


def show_messages(console: Console, messages: Iterable[Message]) -> None:
    for message in messages:
        style = _STYLES[message.role]
        console.print(Panel(Text(message.content), title=message.role, title_align="left", border_style=style))


def show_turn(console: Console, turn: Turn, number: int) -> None:
    """A turn's action, what it earned, and the observation that followed."""
    note = f"turn {number}, reward {turn.reward:g}" + ("" if turn.valid else ", not understood")
    action = Text(turn.reply.message.content)
    console.print(Panel(action, title=note, title_align="left", border_style=_STYLES["assistant"]))
    show_messages(console, turn.observation)


def show_end(console: Console, trajectory: Trajectory) -> None:
    """Why it stopped and what came of it."""
    verdict = {True: "solved", False: "not solved", None: "no verdict"}[trajectory.success]
    turns = f"{len(trajectory.turns)} turn{'' if len(trajectory.turns) == 1 else 's'}"
    console.print(f"{trajectory.stop.value}: {verdict} after {turns}, return {trajectory.environment_return:g}")
    if trajectory.failure:
        console.print(Text(trajectory.failure.message, style="red"))


def evaluation_table(evaluation: Evaluation) -> Table:
    """One line an environment: episodes, success with its interval, means, stop reasons and failures."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for name in ("environment", "episodes", "success (95%)", "return", "turns", "stopped by", "failures"):
        table.add_column(name, overflow="fold", no_wrap=name not in ("environment", "failures"))
    for summary in evaluation.summary():
        table.add_row(*_cells(summary))
    return table


def policies_table(evaluations: Iterable[tuple[str, Evaluation]]) -> Table:
    """One line a labelled evaluation, over all its environments: episodes, success with its interval, turns."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for name in ("evaluation", "episodes", "success (95%)", "turns"):
        table.add_column(name, no_wrap=name != "evaluation")
    for label, evaluation in evaluations:
        whole = evaluation.overall()
        table.add_row(Text(label), str(whole.episodes), rate_text(whole.success), _number(whole.mean_turns))
    return table


def show_failures(console: Console, evaluation: Evaluation) -> None:
    """One example of each cause, with its message."""
    examples = {row.failure: row for row in reversed(evaluation.rows) if row.failure is not None}
    for cause, row in sorted(examples.items()):
        console.print(Text(f"{cause}, e.g. task {row.task}: {row.failure_message}", style="red"))


def rate_text(estimate: Estimate) -> str:
    """E.g. `80.0% [49.0, 94.3]`; `-` where it is undefined."""
    if estimate.value is None:
        return "-"
    text = f"{estimate.value:.1%}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def _cells(summary: Summary) -> list[str | Text]:
    return [
        Text(summary.environment),
        str(summary.episodes),
        Text(rate_text(summary.success)),
        _number(summary.mean_return),
        _number(summary.mean_turns),
        _counts(summary.stops),
        Text(_counts(summary.failures) or "none", style="red" if summary.failures else ""),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _counts(counts: Mapping[str, int]) -> str:
    return "\n".join(f"{name} {count}" for name, count in sorted(counts.items()))
