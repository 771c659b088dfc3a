"""The command line: what it shows, what it writes, and its one clear line for what can't work."""

import json
import re
import subprocess
import sys
from contextlib import nullcontext

import pytest
from doubles import Guess, name_of
from doubles_cli import STAIRS, Stairs, stairs
from typer.testing import CliRunner

from agentgym_rl.cli import app
from agentgym_rl.data.trajectory_json import read_trajectories
from agentgym_rl.environments import registry
from agentgym_rl.evaluation.policies import KINDS, Kind
from agentgym_rl.evaluation.result import Evaluation
from agentgym_rl.policy import ExpertPolicy


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    Stairs.played.clear()


def run(*arguments, typed=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=typed)


def refused(*arguments):
    """The one line that a refusal consists of."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.output
    return result.stderr.strip()


def task_file(tmp_path, *tasks):
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(task.to_json() + "\n" for task in tasks))
    return path


def test_help_names_every_command():
    result = run("--help")
    assert result.exit_code == 0
    assert all(command in result.stdout for command in ("envs", "check-env", "play", "eval", "view"))


def test_importing_the_command_line_imports_nothing_heavy():
    heavy = "{'torch', 'scipy', 'numpy', 'pyarrow', 'pandas', 'openai', 'jinja2', 'verl', 'ray'}"
    code = f"import sys, agentgym_rl.cli; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_envs_lists_each_environment_with_its_summary():
    lines = [line for line in run("envs").stdout.splitlines() if line.startswith(f"│ {STAIRS} ")]
    assert len(lines) == 1
    assert "Climb the stairs with `up`." in lines[0]
    assert "100%" in lines[0]


def test_an_environment_that_cannot_be_used_is_listed_with_the_reason(monkeypatch):
    monkeypatch.setitem(registry._TARGETS, "needs-a-package", "no_such_package_here:Thing")
    shown = run("envs").stdout
    assert "install 'no_such_package_here'" in shown
    assert "it breaks its contract: `facts` must be a Facts; given: NoneType" in shown


def test_envs_with_a_name_shows_the_fact_sheet():
    shown = run("envs", STAIRS).stdout
    assert "Task: reach the top. Reward: 1 at the top, else 0." in shown
    assert "lists_actions" in shown
    assert "none needed" in shown


def test_an_unknown_environment_is_one_clear_line():
    assert refused("envs", "stiars") == "error: no environment 'stiars'; did you mean 'stairs'?"


def test_check_env_shows_each_rule_and_succeeds_for_a_good_environment():
    result = run("check-env", name_of(Guess), "--seeds", 2)
    assert result.exit_code == 0, result.output
    assert "reproducible" in result.stdout
    assert "FAIL" not in result.stdout


def test_check_env_names_the_broken_rule_and_exits_with_1(tmp_path):
    path = task_file(tmp_path, stairs("t", breaks=True))
    result = run("check-env", STAIRS, "--task-file", path)
    assert result.exit_code == 1
    (line,) = [line for line in result.stdout.splitlines() if "FAIL" in line]
    assert "answers" in line
    assert "a stair broke" in line


def test_play_by_hand_shows_every_step():
    result = run("play", STAIRS, "--arguments", '{"height": 2}', typed="up\nfly\nup\n")
    assert result.exit_code == 0
    order = ["foot of the stairs", "turn 1, reward 0", "on stair 1", "turn 2, reward 0, not understood", "allowed: up"]
    places = [result.stdout.index(text) for text in [*order, "turn 3, reward 1", "terminated: solved after 3 turns"]]
    assert places == sorted(places)
    assert "return 1" in result.stdout


def test_play_ends_when_the_player_gives_up():
    result = run("play", STAIRS, typed="up\n")
    assert result.exit_code == 0
    assert "token_budget: not solved after 1 turn, return 0" in result.stdout


def test_play_shows_markup_in_a_text_as_it_is():
    result = run("play", STAIRS, "--policy", "expert", "--arguments", json.dumps({"note": "[red]a wall[/red] [/x]"}))
    assert "[red]a wall[/red] [/x]" in result.stdout


def test_play_says_what_failed_and_exits_with_1():
    result = run("play", STAIRS, "--policy", "expert", "--arguments", '{"breaks": true}')
    assert result.exit_code == 1
    assert "failed: no verdict after 0 turns" in result.stdout
    assert "step of environment 'stairs' raised RuntimeError: a stair broke" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arguments", "{"], "error: --arguments must be a JSON object; '{' is no JSON"),
        (["--arguments", "[1]"], "error: --arguments must be a JSON object; given: [1]"),
        (["--policy", "exprt"], "error: no policy 'exprt'; did you mean 'expert'?"),
        (["--policy", "expert", "--max-turns", "0"], "error: max_turns must be above 0; given: 0"),
    ],
)
def test_play_refuses_what_cannot_work_in_one_line(arguments, message):
    assert refused("play", STAIRS, *arguments).startswith(message)


def test_a_policy_that_the_environment_cannot_have_is_refused():
    assert "needs an environment that has an expert" in refused("play", "mute_stairs", "--policy", "expert")


def test_eval_shows_success_with_its_interval_and_counts_failures(tmp_path):
    path = task_file(tmp_path, stairs("a"), stairs("b", height=9), stairs("c", breaks=True))
    result = run("eval", "--tasks", path, "--policy", "expert", "--max-turns", 4)
    assert result.exit_code == 0, result.output
    first, *more = result.stdout[result.stdout.index(STAIRS) :].splitlines()
    # One of two verdicts: Wilson's interval is 0.5 -+ 0.405471. Turns: (2 + 4) / 2.
    assert re.split(r"  +", first.strip()) == [
        STAIRS,
        "3",
        "50.0% [9.5, 90.5]",
        "0.5",
        "3",
        "failed 1",
        "environment_raised 1",
    ]
    assert [line.strip() for line in more if line.strip()] == [
        "max_turns 1",
        "terminated 1",
        "environment_raised, e.g. task c: step of environment 'stairs' raised RuntimeError: a stair broke",
    ]


def test_eval_writes_its_result_and_its_trajectories(tmp_path):
    path = task_file(tmp_path, stairs("a"), stairs("b"), stairs("c"))
    out, trajectories = tmp_path / "deep" / "e.json", tmp_path / "deeper" / "t.jsonl"
    options = ["--limit", 2, "--episodes", 2, "--greedy", "--seed", 3, "--out", out]
    result = run("eval", "--tasks", path, "--policy", "expert", *options, "--save-trajectories", trajectories)
    assert result.exit_code == 0, result.output
    evaluation = Evaluation.read(out)
    assert [(row.task, row.episode, row.success) for row in evaluation.rows] == [
        ("a", 0, True),
        ("a", 1, True),
        ("b", 0, True),
        ("b", 1, True),
    ]
    assert evaluation.settings == {
        "policy": "expert",
        "policy_version": "expert",
        "tasks": str(path),
        "temperature": 0.0,
        "max_tokens": 256,
        "seed": 3,
        "max_turns": 64,
    }
    assert sorted(t.task.id for t in read_trajectories(trajectories)) == ["a", "a", "b", "b"]
    assert [file.name for file in out.parent.iterdir()] == ["e.json"]


def test_an_interrupted_eval_goes_on_and_a_finished_one_starts_anew(tmp_path):
    path = task_file(tmp_path, stairs("a"), stairs("b"))
    out, trajectories = tmp_path / "e.json", tmp_path / "t.jsonl"
    command = ["eval", "--tasks", path, "--policy", "expert", "--out", out, "--save-trajectories", trajectories]
    assert run(*command).exit_code == 0
    whole = trajectories.read_text()
    rows = [json.dumps({"settings": Evaluation.read(out).settings}), json.dumps(json.loads(out.read_text())["rows"][0])]
    (tmp_path / "e.json.rows.jsonl").write_text("\n".join(rows) + "\n")
    (tmp_path / "t.jsonl.episodes").write_text("0 " + whole.splitlines()[0] + "\n")
    Stairs.played.clear()
    assert run(*command).exit_code == 0
    assert Stairs.played == ["b"]
    assert [t.task.id for t in read_trajectories(trajectories)] == ["a", "b"]
    Stairs.played.clear()
    assert run(*command).exit_code == 0
    assert sorted(Stairs.played) == ["a", "b"]
    assert len(read_trajectories(trajectories)) == 2
    assert sorted(file.name for file in tmp_path.iterdir()) == ["e.json", "t.jsonl", "tasks.jsonl"]


def test_an_interrupted_eval_does_not_go_on_with_other_weights_in_the_same_folder(tmp_path, monkeypatch):
    experts = Kind("checkpoint:FOLDER", lambda *_: nullcontext(lambda environment, *_: ExpertPolicy(environment)))
    monkeypatch.setitem(KINDS, "checkpoint", experts)
    path, folder, out = task_file(tmp_path, stairs("a")), tmp_path / "best", tmp_path / "e.json"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"1")
    command = ["eval", "--tasks", path, "--policy", f"checkpoint:{folder}", "--out", out]
    assert run(*command).exit_code == 0
    settings = Evaluation.read(out).settings
    assert settings["policy"] == f"checkpoint:{folder}"
    (tmp_path / "e.json.rows.jsonl").write_text(json.dumps({"settings": settings}) + "\n")
    (folder / "model.safetensors").write_bytes(b"2")
    result = run(*command)
    assert result.exit_code == 2
    assert f"unfinished evaluation with policy_version = 'checkpoint:{folder}#" in result.stderr
    (folder / "model.safetensors").write_bytes(b"1")
    assert run(*command).exit_code == 0


def test_eval_in_worker_processes_gives_the_same_rows(tmp_path):
    path = task_file(tmp_path, stairs("a"), stairs("b", height=9))
    for isolation in ("thread", "process"):
        command = ["eval", "--tasks", path, "--policy", "expert", "--max-turns", 4, "--isolation", isolation]
        assert run(*command, "--out", tmp_path / f"{isolation}.json").exit_code == 0
    assert Evaluation.read(tmp_path / "process.json").rows == Evaluation.read(tmp_path / "thread.json").rows


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "nobody"], "error: no policy 'nobody';"),
        (["--policy", "checkpoint:/nowhere"], "error: the folder '/nowhere' does not exist"),
        (["--policy", "expert", "--temperature", "-1"], "error: a temperature is at least 0"),
        (["--policy", "expert", "--concurrency", "0"], "error: concurrency must be at least 1; given: 0"),
    ],
)
def test_eval_refuses_what_cannot_work(tmp_path, options, message):
    path = task_file(tmp_path, stairs("a"))
    result = run("eval", "--tasks", path, *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_bad_lines_of_a_task_file_are_all_shown(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text("{\n[]\n")
    lines = refused("eval", "--tasks", path, "--policy", "expert").splitlines()
    assert [line.strip().partition(":")[0] for line in lines[1:]] == ["line 1", "line 2"]


def test_view_writes_a_report_of_evaluations_and_trajectories(tmp_path):
    path = task_file(tmp_path, stairs("stairs/1"), stairs("stairs/2"))
    out, trajectories = tmp_path / "e.json", tmp_path / "t.jsonl"
    command = ["eval", "--tasks", path, "--policy", "expert", "--out", out, "--save-trajectories", trajectories]
    assert run(*command).exit_code == 0
    options = ["--evaluation", f"the expert={out}", "--trajectories", trajectories, "--show", 1]
    result = run("view", "--out", tmp_path / "r.html", "--title", "Climbing", *options)
    assert result.exit_code == 0, result.output
    html = (tmp_path / "r.html").read_text()
    assert "<h1>Climbing</h1>" in html
    assert "the expert" in html
    assert html.count('<span class="id">') == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--evaluation", "e.json"], "error: --evaluation reads LABEL=FILE; given: 'e.json'"),
        (["--evaluation", "a=none.json"], "error: there is no file none.json"),
        (["--trajectories", "none.jsonl"], "error: there is no file none.jsonl"),
    ],
)
def test_view_refuses_what_it_cannot_read(tmp_path, options, message):
    assert refused("view", "--out", tmp_path / "r.html", *options) == message
