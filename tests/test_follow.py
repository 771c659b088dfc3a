"""`follow`: progress from a metrics file, output to a log, resumed runs merged, failures said."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.follow import follow, read_metrics

TRAINER = """
import json, os, sys
print("a hundred lines")
with open(os.environ["VERL_FILE_LOGGER_PATH"], "w") as file:
    for step in range({first}, {last} + 1):
        file.write(json.dumps({{"step": step, "data": {{"episode/babyai/success": step / 10, "x": {x}}}}}) + "\\n")
        file.flush()
sys.exit({code})
"""


def run(folder: Path, first: int, last: int, x: int = 0, code: int = 0) -> str:
    shown = io.StringIO()
    command = [sys.executable, "-c", TRAINER.format(first=first, last=last, x=x, code=code)]
    follow(command, folder / "metrics", folder / "logs" / "log", last, Console(file=shown, width=200))
    return shown.getvalue()


def test_each_step_is_one_line_and_the_output_is_in_the_log(tmp_path: Path) -> None:
    shown = run(tmp_path, 1, 2)
    assert "step    1  success 10.0%" in shown
    assert "step    2  success 20.0%" in shown
    assert "a hundred lines" not in shown
    assert (tmp_path / "logs" / "log").read_text() == "a hundred lines\n"


def test_a_resumed_run_keeps_the_steps_of_the_first_and_replaces_those_run_again(tmp_path: Path) -> None:
    run(tmp_path, 1, 3, x=1)
    run(tmp_path, 3, 4, x=2)
    # step 3 was run twice: the second run counts
    merged = read_metrics(tmp_path / "metrics")
    assert {step: values["x"] for step, values in merged.items()} == {1: 1, 2: 1, 3: 2, 4: 2}


def test_two_lines_of_one_step_are_one_set_of_metrics(tmp_path: Path) -> None:
    lines = [{"step": 0, "data": {"a": 1}}, {"step": 0, "data": {"b": 2}}]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_metrics(tmp_path) == {0: {"a": 1, "b": 2}}


def test_a_line_that_is_still_being_written_waits(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text('{"step": 1, "data": {}}\n{"step": 2, "da')
    assert read_metrics(tmp_path) == {1: {}}


def test_a_failing_command_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)a hundred lines.*exit code 7"):
        run(tmp_path, 1, 1, code=7)


FOLLOWER = """
import sys
from pathlib import Path
from rich.console import Console
from agentgym_rl.follow import follow
folder = Path(sys.argv[1])
follow(["sh", "-c", "echo $$; exec sleep 30"], folder / "metrics", folder / "log", 1, Console())
"""


def test_a_command_ends_with_the_process_that_follows_it(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent
    follower = subprocess.Popen([sys.executable, "-c", FOLLOWER, str(tmp_path)], cwd=root)
    try:
        child = int(_text_of(tmp_path / "log"))
        os.kill(child, 0)
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(10) == 143
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
    finally:
        follower.kill()
        follower.wait()


def _text_of(file: Path) -> str:
    """What is written into the file, once a line is."""
    deadline = time.monotonic() + 20
    while not (file.exists() and file.read_text().endswith("\n")):
        assert time.monotonic() < deadline, f"nothing was written into {file}"
        time.sleep(0.02)
    return file.read_text()


def test_what_sigterm_does_is_left_as_it_was_and_another_thread_follows_too(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run(tmp_path, 1, 1)
    assert signal.getsignal(signal.SIGTERM) is before
    thread = threading.Thread(target=run, args=(tmp_path, 2, 2))
    thread.start()
    thread.join(20)
    assert set(read_metrics(tmp_path / "metrics")) == {1, 2}


def test_a_folder_without_metrics_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no metrics"):
        read_metrics(tmp_path)
