"""The worlds recipe: for each of its environments the plan consists of commands that verl and our command line take,
and its pieces work on tasks of any environment. The whole takes too long."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from doubles_cli import STAIRS, stairs

from agentgym_rl.data.parquet import write_tasks
from agentgym_rl.evaluation.result import EpisodeRow, Evaluation
from agentgym_rl.training.plan import Plan, Stage, read_plan
from recipes.quickstart import prepare
from recipes.worlds import compare

ROOT = Path(__file__).parent.parent
RUN = ROOT / "recipes" / "worlds" / "run.sh"
ENVIRONMENTS = ("textworld-express", "textcraft", "bfcl")


def run_sh(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", str(RUN), *options], capture_output=True, text=True, timeout=60)


def settings_of(environment: str) -> dict[str, str]:
    """The variables that run.sh sets for an environment: its `case` as bash reads it."""
    text = RUN.read_text()
    case = text[text.index("case $environment in") :].partition("esac")[0] + "esac"
    script = f"environment={shlex.quote(environment)}\n{case}\nprintf '%s\\0' \"${{world[@]}}\""
    said = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True).stdout
    return dict(word.split("=", 1) for word in said.split("\0") if word)


@pytest.fixture(params=ENVIRONMENTS)
def plan(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(ROOT)
    return read_plan("recipes/worlds/plan.yaml", tmp_path, {"seed": "3", **settings_of(request.param)})


def composed(stage: Stage):
    """The configuration that the stage's verl command would run with."""
    from hydra import compose, initialize_config_dir

    words = list(stage.command)
    at = words.index("--config-dir")
    with initialize_config_dir(words[at + 1], version_base=None):
        return compose(words[at + 3], words[at + 4 :])


def test_help_lists_the_options_and_what_is_wrong_is_said_before_anything_is_installed() -> None:
    shown = run_sh("--help")
    assert shown.returncode == 0
    assert all(option in shown.stdout for option in ("--environment", "--out", "--seeds", "--set", "--dry-run"))
    for options, message in [
        (["--sede", "1"], "unknown option --sede"),
        (["--environment", "textkraft"], "one of textworld-express, textcraft, bfcl; given: 'textkraft'"),
        ([], "one of textworld-express, textcraft, bfcl; given: ''"),
    ]:
        refused = run_sh(*options)
        assert refused.returncode == 2
        assert message in refused.stderr


def test_grpo_starts_from_the_policy_whose_success_is_measured_before(plan: Plan) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    from verl_ext.agent_loop.settings import Settings

    stages = {stage.name: stage for stage in plan.stages}
    assert list(stages) == ["data", "imitate", "start", "before", "learn", "after"]
    config = composed(stages["learn"])
    validate_config(config, need_reference_policy(config), need_critic(config))
    assert config.actor_rollout_ref.model.path == str(plan.folder / "start" / "sft")
    assert f"checkpoint:{plan.folder / 'start' / 'sft'}" in stages["before"].command
    assert f"checkpoint:{plan.folder / 'learn' / 'policy'}" in stages["after"].command
    assert config.data.seed == 3
    settings = Settings.of(config)
    assert settings.rewards["outcome"] == 1.0
    assert settings.turn_tokens < config.data.max_response_length


def test_imitation_learns_from_what_the_data_stage_writes(plan: Plan) -> None:
    data, imitate, start = plan.stages[:3]
    config = composed(imitate)
    assert config.data.train_files == str(data.folder / "data" / "sft.parquet")
    assert config.model.path == str(data.folder / "policy")
    assert f"--out '{data.folder}/data'" in data.command[-1]
    assert f"ln -s '{imitate.folder}/checkpoints'" in start.command[-1]


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_data_command_takes_the_options_that_it_is_given(environment: str) -> None:
    settings = settings_of(environment)
    plan = read_plan("recipes/worlds/plan.yaml", "unused", settings)
    line = plan.stages[0].command[-1].splitlines()[0]
    asked = subprocess.run(
        ["bash", "-ec", f"{line} --help"], capture_output=True, text=True, timeout=60, cwd=ROOT, env=_own_python_first()
    )
    assert asked.returncode == 0, asked.stderr


def test_the_expert_plays_tasks_of_any_environment_and_what_it_fails_is_not_imitated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = [stairs("a"), stairs("broken", breaks=True), stairs("silent", silent=True), stairs("b")]
    write_tasks(tasks, tmp_path / "data" / "train.parquet")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    monkeypatch.setattr(sys, "argv", ["prepare", "--out", str(tmp_path), "--model", str(tmp_path / "model")])
    prepare.main()
    rows = pyarrow.parquet.read_table(tmp_path / "data" / "sft.parquet").to_pylist()
    assert sorted(row["task_id"] for row in rows) == ["a", "b"]
    assert {row["environment"] for row in rows} == {STAIRS}
    assert "2 expert trajectories; 2 tasks that the expert did not solve" in capsys.readouterr().out


def test_the_table_tells_success_and_return_before_and_after_and_the_mean_gain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Of 10 tasks, solved: 1 -> 4 and 3 -> 8, that is gains of 30% and 50%. Who does not solve a task earns 0.5 of it.
    for seed, solved_by_stage in enumerate([{"before": 1, "after": 4}, {"before": 3, "after": 8}]):
        for stage, solved in solved_by_stage.items():
            evaluated(tmp_path / f"seed-{seed}" / stage / "result.json", solved)
    monkeypatch.setattr(sys, "argv", ["compare", "--out", str(tmp_path), "--seeds", "0", "1"])
    compare.main()
    shown = [line for line in capsys.readouterr().out.splitlines() if "after" in line]
    assert [line.split("│")[1].strip() for line in shown] == [
        "after SFT, solved",
        "after GRPO, solved",
        "after SFT, return",
        "after GRPO, return",
    ]
    # t-interval of two gains 30 and 50: 40 -+ 12.706 * 14.142 / sqrt(2); of the returns, half of that
    assert "40.0% [-87.1, 167.1]" in shown[1]
    assert "20.0% [-43.5, 83.5]" in shown[3]


def evaluated(file: Path, solved: int) -> None:
    returns = [1.0] * solved + [0.5] * (10 - solved)
    rows = [EpisodeRow(f"t{i}", 0, STAIRS, got == 1.0, got, 3, "terminated") for i, got in enumerate(returns)]
    file.parent.mkdir(parents=True)
    Evaluation(tuple(rows)).write(file)


def _own_python_first() -> dict[str, str]:
    """So that `python` is the interpreter that runs the tests."""

    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
