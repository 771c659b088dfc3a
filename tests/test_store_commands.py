"""The data pipeline from the command line: each step prints what it did, and run again does nothing twice."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext

import pytest
import typer
from doubles_cli import Stairs, stairs
from doubles_store import ids, record, store_of
from typer.testing import CliRunner

from agentgym_rl.commands.store import add_to
from agentgym_rl.data.filter import DROPPED_FILE
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.evaluation.policies import KINDS, Kind

app = typer.Typer()
add_to(app)


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    Stairs.played.clear()


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception:
        raise result.exception
    return result


def numbers(table: str) -> dict[str, int]:
    """First column -> last one, of a table whose last one is a number."""
    rows = [line.rsplit(None, 1) for line in table.splitlines()]
    return {row[0].strip(): int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def task_file(tmp_path, *tasks):
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(task.to_json() + "\n" for task in tasks))
    return path


def test_collect_annotate_filter_export_and_import_in_a_row(tmp_path):
    tasks = task_file(tmp_path, stairs("low"), stairs("high", height=9), stairs("broken", breaks=True))
    collected, annotated, kept, back = (tmp_path / name for name in ("collected", "annotated", "kept", "back"))
    collect = ["collect", "--tasks", tasks, "--policy", "expert", "--out", collected, "--episodes", 2, "--max-turns", 4]
    assert numbers(run(*collect).stdout) == {
        "asked for": 6,
        "in the store already": 0,
        "played": 6,
        "solved": 2,
        "failed": 2,
    }
    assert numbers(run(*collect).stdout)["in the store already"] == 6
    assert len(Stairs.played) == 6

    assert "annotated: 6 trajectories" in run("annotate", "--store", collected, "--out", annotated).stdout
    one = next(TrajectoryStore(annotated).records())
    assert one.annotations["turns"] == len(one.trajectory.turns)

    rules = ["--rule", "outcome=played", "--rule", "annotation=success>=1", "--rule", "cap=1"]
    result = run("filter", "--store", annotated, "--out", kept, *rules)
    assert "trajectories" in result.stderr
    assert "6/6" in result.stderr
    shown = result.stdout
    assert numbers(shown) == {
        "in": 6,
        "dropped: outcome=played": 2,
        "dropped: annotation=success>=1": 2,
        "dropped: cap=1": 1,
        "kept": 1,
    }
    assert str(kept / DROPPED_FILE) in shown
    assert len((kept / DROPPED_FILE).read_text().splitlines()) == 5

    file = tmp_path / "chats.jsonl"
    shown = run("export", "--store", kept, "--format", "sharegpt", "--out", file).stdout
    assert f"wrote 1 of 1 trajectories to {file}" in shown
    assert "added 1 trajectories; 0 were there" in run("import", "--file", file, "--out", back).stdout
    assert "added 0 trajectories; 1 were there" in run("import", "--file", file, "--out", back).stdout
    (read,) = TrajectoryStore(back).records()
    assert read.trajectory.task.id == "low"


class Unreachable:
    """A policy whose server is down."""

    async def reply(self, conversation):
        raise ConnectionError("connection refused")


def test_a_collection_that_the_policy_failed_says_so_and_exits_with_1(tmp_path, monkeypatch):
    monkeypatch.setitem(KINDS, "down", Kind("down", lambda *_: nullcontext(lambda *_: Unreachable())))
    tasks, out = task_file(tmp_path, stairs("a"), stairs("b")), tmp_path / "out"
    collect = ["collect", "--tasks", str(tasks), "--policy", "down", "--out", str(out)]
    done = CliRunner().invoke(app, collect)
    assert done.exit_code == 1
    assert numbers(done.stdout)["failed"] == 2
    assert "not kept: 2 episodes that the policy failed" in done.stderr
    assert ids(TrajectoryStore(out)) == []


def test_a_store_is_shown_by_environment_and_source(tmp_path):
    folder = tmp_path / "s"
    given = [record("a", "ab", 1.0), record("b", "abcd", 0.0, success=False), record("c", "a", crashed=True, task="u")]
    store_of(folder, *given, record("d", source="import", environment="maze"))
    rows = [line.split() for line in run("store", "--store", folder).stdout.splitlines()[2:]]
    # stairs: tasks t and u; the mean over a and b alone: return (1 + 0) / 2, turns (2 + 4) / 2
    assert rows == [
        ["maze", "import", "1", "1", "1", "0", "1", "2"],
        ["stairs", "collect", "2", "3", "1", "1", "0.5", "3"],
    ]
    only = run("store", "--store", folder, "--environment", "stairs", "--unsolved").stdout.splitlines()[2:]
    assert [line.split() for line in only] == [["stairs", "collect", "1", "1", "0", "0", "0", "4"]]


def test_export_takes_a_query_and_writes_pairs(tmp_path):
    folder = tmp_path / "s"
    store_of(folder, record("a", "a"), record("b", "b", 0.0, success=False))
    shown = run("export", "--store", folder, "--format", "openai", "--out", tmp_path / "o", "--solved").stdout
    assert "wrote 1 of 1 trajectories" in shown
    shown = run("export", "--store", folder, "--format", "dpo", "--out", tmp_path / "d").stdout
    assert "wrote 1 of 1 pairs" in shown
    assert json.loads((tmp_path / "d").read_text())["chosen"] == [{"role": "assistant", "content": "a"}]


def test_annotate_takes_names(tmp_path):
    store_of(tmp_path / "s", record("a"))
    run("annotate", "--store", tmp_path / "s", "--out", tmp_path / "o", "--name", "turns")
    assert [one.annotations for one in TrajectoryStore(tmp_path / "o").records()] == [{"turns": 2}]


def test_what_can_not_work_raises_an_error_of_ours(tmp_path):
    store_of(tmp_path / "s", record("a"))
    with pytest.raises(DataError, match="there is no trajectory store at"):
        run("filter", "--store", tmp_path / "none", "--out", tmp_path / "o", "--rule", "cap=1")
    with pytest.raises(ConfigurationError, match="no rule 'capp'; did you mean 'cap'?"):
        run("filter", "--store", tmp_path / "s", "--out", tmp_path / "o", "--rule", "capp=1")
    assert ids(TrajectoryStore(tmp_path / "s")) == ["a"]


def test_importing_the_commands_imports_nothing_heavy():
    heavy = "{'torch', 'scipy', 'numpy', 'pyarrow', 'pandas', 'openai', 'datasketch', 'verl', 'ray'}"
    code = f"import sys, agentgym_rl.commands.store; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_rules_are_listed_where_they_are_asked_for():
    shown = run("filter", "--help").stdout
    assert "difficulty=LOW..HIGH" in shown
    assert "contamination=TEST-TASKS" in shown
