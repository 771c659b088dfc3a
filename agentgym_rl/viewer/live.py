"""A training as it goes on: in a terminal one view that is drawn anew, elsewhere (a log file) a line for each step.

The view has a bar with the time that is left, the last step's environments, what failed, and curves over all steps.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agentgym_rl.viewer.curves import WIDTH, Steps, curves_table
from agentgym_rl.viewer.step import counts_failures, environments_of, failures_text, step_line, step_table

REFRESHES_PER_SECOND = 2.0
PACE_STEPS = 20
"""The time that is left is told from the pace of so many steps."""


@contextmanager
def shown(console: Console, total_steps: int, earlier: Steps) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """The function that shows metrics of a step; they may come in several parts.

    Args:
        total_steps: length of the bar.
        earlier: steps of the runs that this one resumes.
    """
    if console.is_terminal and not console.is_dumb_terminal:
        view = LiveView(total_steps, earlier)
        with Live(view, console=console, refresh_per_second=REFRESHES_PER_SECOND):
            yield view.add
    else:
        yield lambda step, values: console.print(step_line(step, values), highlight=False)


class LiveView:
    """What is drawn; it changes as steps are added, and is read from another thread meanwhile.

    Args:
        total_steps, earlier: see `shown`.
        clock: seconds.
    """

    def __init__(self, total_steps: int, earlier: Steps, clock: Callable[[], float] = time.monotonic):
        self._total_steps = total_steps
        self._earlier = earlier
        self._steps: dict[int, dict[str, float]] = {}
        self._clock = clock
        self._began = clock()
        self._ends: deque[tuple[int, float]] = deque(maxlen=PACE_STEPS + 1)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Take metrics of a step. What earlier runs said of the steps that are now run again does not count."""
        if not self._steps:
            self._earlier = {before: known for before, known in self._earlier.items() if before < step}
        if step not in self._steps:
            self._ends.append((step, self._clock()))
        self._steps = {**self._steps, step: {**self._steps.get(step, {}), **values}}

    def __rich__(self) -> RenderableType:
        steps = self._steps
        if not steps:
            return Group(self._bar(0), Text("waiting for the first step", style="dim"), curves_table(self._earlier))
        return Group(
            self._bar(max(steps)), Text(), *_last_step(steps), Text(), curves_table({**self._earlier, **steps})
        )

    def seconds_left(self) -> float | None:
        """At the pace of the last steps; None until there is one."""
        (first, began), (last, ended) = (self._ends[0], self._ends[-1]) if self._ends else ((0, 0.0), (0, 0.0))
        if last == first:
            return None
        at_last_step = (self._total_steps - last) * (ended - began) / (last - first)
        return max(0.0, at_last_step - (self._clock() - ended))

    def _bar(self, step: int) -> Table:
        left = self.seconds_left()
        bar = Table.grid(padding=(0, 2))
        bar.add_row(
            f"step {step}/{self._total_steps}",
            ProgressBar(self._total_steps, step, width=WIDTH),
            f"{_duration(self._clock() - self._began)} passed",
            f"{'?' if left is None else _duration(left)} left",
        )
        return bar


def _last_step(steps: Steps) -> list[RenderableType]:
    """What is known of the last step that was played; of a training without episodes, a line."""
    played = [step for step, values in steps.items() if environments_of(values)]
    counted = [values for values in steps.values() if counts_failures(values)]
    if not played:
        return [Text(step_line(max(steps), steps[max(steps)]))]
    return [step_table(played[-1], steps[played[-1]]), *(failures_text(values) for values in counted[-1:])]


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
