"""`follow`: progress from a metrics file, output to a log, resumed runs merged, failures said."""

from __future__ import annotations

import io
import json
import sys
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


def test_a_folder_without_metrics_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no metrics"):
        read_metrics(tmp_path)
