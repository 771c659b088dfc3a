"""Run a verl command and show what matters of it: a progress bar, and a line for each step.

verl prints some hundred lines a step. They go to a log file; what is shown comes from the JSON Lines that its `file`
logger writes. Each run gets a metrics file of its own, since that logger empties the file it is given: a resumed
training has several, and `read_metrics` merges them.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agentgym_rl.errors import ConfigurationError, DataError

POLL_SECONDS = 0.5
LOG_TAIL_LINES = 30
_SHOWN = (
    # (end of the metric's name, label, format)
    ("train/loss", "loss", ".3f"),
    ("val/loss", "validation loss", ".3f"),
    ("/acc/mean@1", "validation success", ".1%"),
    ("/success", "success", ".1%"),
    ("critic/score/mean", "reward", ".3f"),
    ("/turns/mean", "turns", ".1f"),
    ("episode/failed", "failed", ".0f"),
    ("timing_s/step", "seconds", ".1f"),
)


def follow(command: Sequence[str], metrics_folder: Path, log: Path, total_steps: int, console: Console) -> None:
    """Run the command to its end.

    Args:
        command: an ordinary verl command whose `trainer.logger` has `file`.
        metrics_folder: gets one JSON Lines file a run.
        log: everything that the command prints is appended to it.
        total_steps: length of the bar.

    Raises:
        ConfigurationError: the command failed; the message ends with the log's last lines.
    """
    metrics_folder.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    metrics = metrics_folder / f"{len(list(metrics_folder.glob('*.jsonl'))):03}.jsonl"
    environment = {**os.environ, "VERL_FILE_LOGGER_PATH": str(metrics.absolute())}
    columns = (TextColumn("step"), MofNCompleteColumn(), BarColumn(), TimeElapsedColumn())
    with log.open("a") as output, Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=total_steps)
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        reader = _Reader(metrics)
        try:
            while True:
                ended = process.poll() is not None
                for step, values in reader.new_rows():
                    progress.update(bar, completed=step)
                    console.print(_line(step, values), highlight=False)
                if ended:
                    break
                time.sleep(POLL_SECONDS)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if process.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
        raise ConfigurationError(f"{tail}\nthe command failed with exit code {process.returncode}; its log is {log}")


def read_metrics(metrics_folder: Path) -> dict[int, dict[str, float]]:
    """Step -> metrics of all runs in the folder; a step that was run again counts as its last run says.

    Raises:
        DataError: there is no metrics file.
    """
    files = sorted(metrics_folder.glob("*.jsonl"))
    if not files:
        raise DataError(f"{metrics_folder} holds no metrics; a run that `follow` started writes them there")
    steps: dict[int, dict[str, float]] = {}
    for file in files:
        run: dict[int, dict[str, float]] = {}
        for step, values in _Reader(file).new_rows():
            run.setdefault(step, {}).update(values)
        steps.update(run)
    return dict(sorted(steps.items()))


class _Reader:
    """Complete lines of a growing file, each once."""

    def __init__(self, path: Path):
        self._path = path
        self._position = 0

    def new_rows(self) -> list[tuple[int, dict[str, float]]]:
        if not self._path.exists():
            return []
        with self._path.open() as file:
            file.seek(self._position)
            text = file.read()
        complete = text[: text.rfind("\n") + 1]
        self._position += len(complete.encode())
        rows = [json.loads(line) for line in complete.splitlines()]
        return [(row["step"], row["data"]) for row in rows]


def _line(step: int, values: Mapping[str, Any]) -> str:
    parts = [f"step {step:>4}"]
    for ending, label, form in _SHOWN:
        for name in values:
            if name.endswith(ending):
                parts.append(f"{label} {values[name]:{form}}")
    return "  ".join(parts)
