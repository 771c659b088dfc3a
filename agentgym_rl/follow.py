"""Run a verl command and show what matters of it: a live view in a terminal, a line for each step elsewhere.

verl prints some hundred lines a step. They go to a log file; what is shown comes from the JSON Lines that its `file`
logger writes. Each run gets a metrics file of its own, since that logger empties the file it is given: a resumed
training has several, and `read_metrics` merges them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.viewer.live import shown

POLL_SECONDS = 0.5
LOG_TAIL_LINES = 30


def follow(command: Sequence[str], metrics_folder: Path, log: Path, total_steps: int, console: Console) -> None:
    """Run the command to its end; it is ended with whatever ends this call, SIGTERM too (in the main thread).

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
    earlier = _merged(metrics_folder)
    metrics = metrics_folder / f"{len(list(metrics_folder.glob('*.jsonl'))):03}.jsonl"
    environment = {**os.environ, "VERL_FILE_LOGGER_PATH": str(metrics.absolute())}
    with _sigterm_raises(), log.open("a") as output, shown(console, total_steps, earlier) as show:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        reader = _Reader(metrics)
        try:
            while True:
                ended = process.poll() is not None
                for step, values in reader.new_rows():
                    show(step, values)
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
    if not any(metrics_folder.glob("*.jsonl")):
        raise DataError(f"{metrics_folder} holds no metrics; a run that `follow` started writes them there")
    return _merged(metrics_folder)


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """SIGTERM is a SystemExit, as SIGINT is a KeyboardInterrupt; only the main thread may set that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _merged(metrics_folder: Path) -> dict[int, dict[str, float]]:
    steps: dict[int, dict[str, float]] = {}
    for file in sorted(metrics_folder.glob("*.jsonl")):
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
