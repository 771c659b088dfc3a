"""The plan driver: killed anywhere, it ends in the same files as a run that nobody disturbed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from agentgym_rl.cli import app
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.evaluation.result import EpisodeRow, Evaluation
from agentgym_rl.training import locks
from agentgym_rl.training.checkpoints import link_policy, mend_tracker, newest_step
from agentgym_rl.training.driver import train
from agentgym_rl.training.plan import read_plan

ROOT = Path(__file__).parent.parent

DRIVER = """
import sys
from rich.console import Console
from agentgym_rl.training.driver import train
from agentgym_rl.training.plan import read_plan
train(read_plan(sys.argv[1], sys.argv[2]), Console())
"""

KILLS = """
import os, signal, time
from pathlib import Path

def point(where):
    flag = Path(os.environ["KILLS"]) / where
    if flag.exists():
        flag.unlink()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
"""
"""`point(NAME)` kills the driver, once, where the test asked for it; the command itself is ended by the kernel then."""

STEP = """
import sys
from pathlib import Path
from kills import point

name, out, *inputs = sys.argv[1:]
out = Path(out)
with open(out.parent / f"{name}.runs", "a") as file:
    file.write("run\\n")
point(f"{name}-start")
assert list(out.iterdir()) == [], "a stage begins in an empty folder"
(out / "half").write_text(name)
point(f"{name}-middle")
(out / "whole").write_text(name + "".join((Path(folder) / "whole").read_text() for folder in inputs))
point(f"{name}-end")
"""

MAIN_PPO = """
import json, os, sys
from pathlib import Path
from kills import point

given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
checkpoints, start = Path(given["trainer.default_local_dir"]), Path(given["actor_rollout_ref.model.path"])
tracker = checkpoints / "latest_checkpointed_iteration.txt"
done = int(tracker.read_text()) if tracker.exists() else 0
weights = checkpoints / f"global_step_{done}" / "actor/huggingface/model.safetensors"
learnt = (weights if done else start / "model.safetensors").read_text()
metrics = open(os.environ["VERL_FILE_LOGGER_PATH"], "w")
for step in range(done + 1, int(given["trainer.total_training_steps"]) + 1):
    print("a line for the log")
    learnt += str(step)
    metrics.write(json.dumps({"step": step, "data": {"critic/score/mean": step}}) + "\\n")
    metrics.flush()
    folder = checkpoints / f"global_step_{step}"
    (folder / "actor/huggingface").mkdir(parents=True, exist_ok=True)
    point(f"in-step-{step}")
    (folder / "actor/huggingface/model.safetensors").write_text(learnt)
    (folder / "data.pt").write_text("state")
    point(f"before-tracker-{step}")
    tracker.open("w").close()
    point(f"in-tracker-{step}")
    tracker.write_text(str(step))
point("at-the-end")
"""
"""Stands for verl's: a checkpoint a step, a tracker that is emptied before it is written, and a start from there."""


class Bench:
    """A plan in a folder, its driver as a process, and points at which that is killed."""

    def __init__(self, folder: Path, stages: list[dict]):
        self.folder, self.kills = folder, folder / "kills"
        self.kills.mkdir(parents=True)
        (folder / "kills.py").write_text(KILLS)
        (folder / "step.py").write_text(STEP)
        self.plan = folder / "plan.yaml"
        self.write(stages)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def write(self, stages: list[dict]) -> None:
        content = {"variables": {"step": str(self.folder / "step.py")}, "stages": stages}
        self.plan.write_text(yaml.safe_dump(content))

    def run(self, kill_at: str | None = None) -> subprocess.CompletedProcess[str]:
        if kill_at:
            (self.kills / kill_at).touch()
        environment = {**os.environ, "KILLS": str(self.kills), "PYTHONPATH": f"{self.folder}:{ROOT}"}
        command = [sys.executable, "-c", DRIVER, str(self.plan), str(self.out)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        if kill_at:
            assert done.returncode == -signal.SIGKILL, done.stderr
            assert not (self.kills / kill_at).exists()
        return done

    def runs(self, name: str) -> int:
        return len((self.out / f"{name}.runs").read_text().splitlines())

    def files(self) -> dict[str, str]:
        """Everything in the plan's folder but what says how often it was run."""
        paths = [path for path in sorted(self.out.rglob("*")) if path.is_file()]
        names = [str(path.relative_to(self.out)) for path in paths]
        apart = [name for name in names if not name.endswith((".runs", "log.txt")) and "metrics" not in name]
        return {name: (self.out / name).read_text().replace(str(self.folder), "HERE") for name in apart}


def step(name: str, *inputs: str) -> dict:
    return {"name": name, "kind": "command", "command": ["python", "{step}", name, "{out}", *inputs]}


THREE = [step("a"), step("b", "{a}"), step("c", "{a}", "{b}")]


def three(folder: Path) -> Bench:
    return Bench(folder, THREE)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, str]:
    bench = three(tmp_path_factory.mktemp("undisturbed") / "x")
    assert bench.run().returncode == 0
    return bench.files()


def test_a_run_leaves_what_its_stages_make_and_its_state(undisturbed: dict[str, str]) -> None:
    made = {"a/half": "a", "a/whole": "a", "b/half": "b", "b/whole": "ba", "c/half": "c", "c/whole": "caba"}
    locks = {".lock": "", ".command.lock": ""}
    assert {name: text for name, text in undisturbed.items() if name != "state.json"} == {**made, **locks}
    assert [stage["done"] for stage in json.loads(undisturbed["state.json"])["stages"].values()] == [True] * 3


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_killed_before_in_and_after_a_stage_it_ends_in_the_same_files(
    tmp_path: Path, undisturbed: dict[str, str], name: str
) -> None:
    bench = three(tmp_path / "x")
    for where in ("start", "middle", "end"):
        bench.run(kill_at=f"{name}-{where}")
    shown = bench.run()
    assert shown.returncode == 0, shown.stderr
    assert bench.files() == undisturbed
    assert {each: bench.runs(each) for each in "abc"} == {each: 4 if each == name else 1 for each in "abc"}
    assert shown.stdout.count("done before") == "abc".index(name)


def test_a_finished_plan_run_again_does_nothing_and_says_so(tmp_path: Path) -> None:
    bench = three(tmp_path / "x")
    bench.run()
    before = {path: path.stat().st_mtime_ns for path in bench.out.rglob("*")}
    assert bench.run().stdout == f"nothing to do: all 3 stages are done in {bench.out}\n"
    assert {path: path.stat().st_mtime_ns for path in bench.out.rglob("*")} == before


def test_each_command_is_printed_as_it_can_be_typed_before_it_runs(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "x", [{"name": "say", "kind": "command", "command": ["echo", "it is", "$HOME"]}])
    assert bench.run().stdout == "== 1/1 say\necho 'it is' '$HOME'\nit is $HOME\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_killed_drivers_command_is_ended_with_it_and_waited_for(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(
        locks, "WAIT_SECONDS", 20.0
    )  # the command sleeps for a minute, and holds its lock until it ends
    bench = three(tmp_path / "x")
    bench.run(kill_at="a-middle")
    with locks.driver_lock(bench.out):
        pass


def test_a_command_that_outlives_its_driver_is_not_run_beside(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.1)
    command = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); print('held'); input()"
    )
    words = [sys.executable, "-c", command, str(tmp_path / locks.COMMAND_LOCK)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ConfigurationError, match="a command of an earlier run is still at work in"):
            with locks.driver_lock(tmp_path):
                pass
        process.communicate("\n")


# Training stages


def training(folder: Path) -> Bench:
    """Two rounds of three steps each, through a stand-in for `verl.trainer.main_ppo`."""
    (folder / "verl" / "trainer").mkdir(parents=True)
    (folder / "verl" / "__init__.py").touch()
    (folder / "verl" / "trainer" / "__init__.py").touch()
    (folder / "verl" / "trainer" / "main_ppo.py").write_text(MAIN_PPO)
    (folder / "grpo.yaml").touch()
    (folder / "start").mkdir()
    (folder / "start" / "model.safetensors").write_text("0")
    learn = {"name": "learn", "kind": "grpo", "config": str(folder / "grpo.yaml"), "steps": 3}
    first = {"name": "first", "kind": "command", "command": ["true"], "policy": str(folder / "start")}
    return Bench(folder, [first, {"rounds": 2, "stages": [{**learn, "train": "a", "validation": "b"}]}])


def weights(bench: Bench, number: int) -> str:
    return (bench.out / f"round-{number}" / "learn" / "policy" / "model.safetensors").read_text()


def test_each_round_starts_from_the_policy_of_the_round_before(tmp_path: Path) -> None:
    bench = training(tmp_path / "x")
    shown = bench.run()
    assert shown.returncode == 0, shown.stderr
    assert [weights(bench, 1), weights(bench, 2)] == ["0123", "0123123"]
    assert "step    3  reward 3.000" in shown.stdout
    assert (bench.out / "round-1" / "learn" / "log.txt").read_text() == "a line for the log\n" * 3
    assert os.readlink(bench.out / "round-1/learn/policy") == "checkpoints/global_step_3/actor/huggingface"


@pytest.mark.parametrize("where", ["in-step-2", "before-tracker-2", "in-tracker-2", "in-tracker-1", "at-the-end"])
def test_a_killed_training_goes_on_from_its_newest_complete_checkpoint(tmp_path: Path, where: str) -> None:
    bench = training(tmp_path / "x")
    bench.run(kill_at=where)
    shown = bench.run()
    assert shown.returncode == 0, shown.stderr
    assert [weights(bench, 1), weights(bench, 2)] == ["0123", "0123123"]
    # Steps logged in each run: one counts once its tracker is being written; a whole training is not run again.
    logged = {"in-step-2": [2, 2], "before-tracker-2": [2, 2], "in-tracker-2": [2, 1], "in-tracker-1": [1, 2]}
    files = sorted((bench.out / "round-1" / "learn" / "metrics").iterdir())
    assert [len(file.read_text().splitlines()) for file in files] == logged.get(where, [3])


def test_a_training_without_a_checkpoint_or_without_weights_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"the training left no checkpoint in .*trainer\.save_freq"):
        link_policy(tmp_path / "checkpoints", "huggingface", tmp_path / "policy")
    (tmp_path / "checkpoints" / "global_step_5" / "huggingface").mkdir(parents=True)
    (tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("5")
    with pytest.raises(ConfigurationError, match="global_step_5/huggingface holds no weights; .* must have hf_model"):
        link_policy(tmp_path / "checkpoints", "huggingface", tmp_path / "policy")


def test_what_the_tracker_names_is_the_newest_even_where_more_lies_there(tmp_path: Path) -> None:
    for number in (9, 10, 20):
        (tmp_path / f"global_step_{number}").mkdir()
        (tmp_path / f"global_step_{number}" / "data.pt").touch()
    assert newest_step(tmp_path) is None
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10")
    mend_tracker(tmp_path, "data.pt")
    assert newest_step(tmp_path) == 10


def test_an_empty_tracker_gets_the_newest_whole_checkpoint_or_is_removed(tmp_path: Path) -> None:
    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    tracker.touch()
    for number in (9, 10, 20):
        (tmp_path / f"global_step_{number}").mkdir()
    mend_tracker(tmp_path, "data.pt")
    assert not tracker.exists()
    tracker.touch()
    for number in (9, 10):
        (tmp_path / f"global_step_{number}" / "data.pt").touch()
    mend_tracker(tmp_path, "data.pt")
    assert tracker.read_text() == "10"


# What can't work


def run_here(bench: Bench) -> str:
    shown = StringIO()
    train(read_plan(bench.plan, bench.out), Console(file=shown))
    return shown.getvalue()


def say(word: str, name: str = "say") -> dict:
    return {"name": name, "kind": "command", "command": ["echo", word]}


def test_a_changed_stage_is_refused_with_what_changed(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "x", [say("one"), say("x", "last")])
    run_here(bench)
    bench.write([say("one thing"), say("x", "last")])
    message = "stage 'say' was done with another command: it had one, the plan now says 'one thing'; "
    with pytest.raises(ConfigurationError, match=message + "take the plan as it was, or another folder"):
        run_here(bench)
    bench.write([{**say("one"), "command": ["echo"]}, say("x", "last")])
    with pytest.raises(ConfigurationError, match="it had one, the plan now says nothing more"):
        run_here(bench)
    bench.write([say("x", "last")])
    with pytest.raises(ConfigurationError, match="stage 'say' was done in .*; take the plan as it was"):
        run_here(bench)


def test_a_stage_that_was_begun_is_not_gone_on_with_under_another_command(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "x", [{"name": "say", "kind": "command", "command": ["false"]}])
    with pytest.raises(ConfigurationError, match="stage 'say' failed with exit code 1: false"):
        run_here(bench)
    bench.write([say("one")])
    with pytest.raises(ConfigurationError, match="stage 'say' was begun with another command: it had false"):
        run_here(bench)


def test_new_stages_may_follow_those_that_are_done(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "x", [say("one")])
    run_here(bench)
    bench.write([say("one"), say("two", "more")])
    assert "== 1/2 say: done before\n== 2/2 more\necho two\n" in run_here(bench)


def test_a_failed_stage_is_not_done_and_those_after_it_do_not_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "x", [{"name": "no", "kind": "command", "command": ["no-such-program"]}, say("x")])
    failed = bench.run()
    assert "there is no program 'no-such-program'" in failed.stderr
    assert "stage 'no' failed with exit code 1: no-such-program" in failed.stderr
    assert list(json.loads((bench.out / "state.json").read_text())["stages"]) == ["no"]


def test_a_training_that_fails_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    bench = training(tmp_path / "x")
    (tmp_path / "x" / "verl" / "trainer" / "main_ppo.py").write_text("print('out of memory'); raise SystemExit(3)")
    failed = bench.run()
    assert "stage 'round-1/learn': " in failed.stderr
    assert "out of memory" in failed.stderr
    assert "exit code 3" in failed.stderr


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "x", [say("one")])
    bench.out.mkdir()
    (bench.out / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigurationError, match="holds something that is no run of a plan; give another folder"):
        run_here(bench)
    assert [path.name for path in bench.out.iterdir()] == ["thesis.txt"]


def test_a_state_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "x", [say("one")])
    bench.out.mkdir()
    (bench.out / "state.json").write_text('{"stages": {"say": {}}}')
    with pytest.raises(DataError, match=r"state\.json is no state of a plan: 'command'"):
        run_here(bench)


def test_what_a_kill_while_the_state_was_written_leaves_is_cleared_away(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "x", [say("one")])
    run_here(bench)
    (bench.out / ".state.json.123").write_text("{")
    bench.write([say("one"), say("two", "more")])
    run_here(bench)
    assert not (bench.out / ".state.json.123").exists()


def test_a_second_driver_in_the_same_folder_is_refused_and_disturbs_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "x", [say("one")])
    bench.out.mkdir()
    with locks.driver_lock(bench.out):
        (bench.out / ".state.json.123").touch()  # the first one's, about to become its state
        with pytest.raises(ConfigurationError, match="another run of a plan is at work in"):
            run_here(bench)
        assert (bench.out / ".state.json.123").exists()
    run_here(bench)  # a folder with nothing but the locks of a run that was killed at once


# The command line


def test_the_command_ends_with_a_table_of_what_was_evaluated(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "t", "environment": "maze"}\n')
    plan = {"name": "test", "kind": "evaluate", "tasks": str(tasks), "policy": "expert"}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump({"stages": [plan]}))
    # as if the stage had been done
    command = list(read_plan(tmp_path / "plan.yaml", tmp_path / "out").stages[0].command)
    rows = [EpisodeRow(f"t{i}", 0, "maze", i < 1, float(i < 1), 3 + i, "terminated") for i in range(2)]
    Evaluation(tuple(rows)).write(tmp_path / "out" / "test" / "result.json")
    (tmp_path / "out" / "state.json").write_text(json.dumps({"stages": {"test": {"command": command, "done": True}}}))
    options = ["train", "--plan", str(tmp_path / "plan.yaml"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    assert "nothing to do: all 1 stages are done" in result.stdout
    # 1 of 2, Wilson: 0.5 -+ 0.405
    assert result.stdout.splitlines()[-1].split() == ["test", "2", "50.0%", "[9.5,", "90.5]", "3.5"]
    assert CliRunner().invoke(app, [*options, "--dry-run"]).stdout.startswith("# test (done)\nopenmanus-rl eval ")
