"""The iterate recipe: its plan consists of commands that verl and our command line take. The whole takes too long."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentgym_rl.cli import app
from agentgym_rl.training.plan import Plan, Stage, read_plan

ROOT = Path(__file__).parent.parent
RUN = ROOT / "recipes" / "iterate" / "run.sh"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(ROOT)
    return read_plan("recipes/iterate/plan.yaml", tmp_path, {"rounds": "2", "seed": "3"})


def run_sh(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", str(RUN), *options], capture_output=True, text=True, timeout=60)


def composed(stage: Stage):
    """The configuration that the stage's verl command would run with."""
    from hydra import compose, initialize_config_dir

    words = list(stage.command)
    folder, name = words[words.index("--config-dir") + 1], words[words.index("--config-name") + 1]
    overrides = words[words.index("--config-name") + 2 :]
    with initialize_config_dir(folder, version_base=None):
        return compose(name, overrides)


def test_help_lists_the_options_and_a_wrong_one_is_said_before_anything_is_installed() -> None:
    shown = run_sh("--help")
    assert shown.returncode == 0
    assert all(
        option in shown.stdout for option in ("--out", "--seed", "--steps", "--rounds", "--samples", "--dry-run")
    )
    refused = run_sh("--sede", "1")
    assert refused.returncode == 2
    assert "unknown option --sede" in refused.stderr


def test_the_rounds_go_from_best_trajectories_through_sft_to_grpo(plan: Plan) -> None:
    block = ["play", "best", "imitate", "after-sft", "learn", "after-grpo"]
    rounds = [f"round-{number}/{name}" for number in (1, 2) for name in block]
    start = ["data", "imitate", "start", "after-sft", "learn", "after-grpo"]
    assert [stage.name for stage in plan.stages] == [*start, *rounds]


def test_each_grpo_starts_from_the_newest_policy_which_is_its_reference_policy(plan: Plan) -> None:
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    configs = {stage.name: composed(stage) for stage in plan.stages if stage.kind == "grpo"}
    paths = {name: config.actor_rollout_ref.model.path for name, config in configs.items()}
    assert {name: str(Path(path).relative_to(plan.folder)) for name, path in paths.items()} == {
        "learn": "start/sft",
        "round-1/learn": "round-1/imitate/policy",
        "round-2/learn": "round-2/imitate/policy",
    }
    config = configs["round-1/learn"]
    validate_config(config, need_reference_policy(config), need_critic(config))
    assert need_reference_policy(config)
    assert config.actor_rollout_ref.actor.use_kl_loss
    assert OmegaConf.select(config, "actor_rollout_ref.ref.model") is None  # verl takes the actor's
    assert config.trainer.resume_mode == "auto"
    assert list(config.trainer.logger) == ["console", "file"]
    assert "hf_model" in config.actor_rollout_ref.actor.checkpoint.save_contents
    assert config.trainer.total_training_steps == 30
    assert (config.data.seed, configs["round-2/learn"].data.seed) == (13, 23)


def test_each_sft_goes_on_from_the_policy_that_played(plan: Plan) -> None:
    first, second, third = (composed(stage) for stage in plan.stages if stage.kind == "sft")
    paths = [str(Path(config.model.path).relative_to(plan.folder)) for config in (first, second, third)]
    assert paths == ["data/policy", "learn/policy", "round-1/learn/policy"]
    assert second.data.train_files == str(plan.folder / "round-1/best/sft.parquet")
    assert second.data.custom_cls.name == "SftDataset"
    assert "hf_model" in second.checkpoint.save_contents
    assert (first.optim.lr, second.optim.lr) == (1e-3, 2e-4)


def test_our_own_commands_are_ones_that_we_have(plan: Plan) -> None:
    ours = [stage for stage in plan.stages if stage.command[0] == "openmanus-rl"]
    assert {stage.kind for stage in ours} == {"sample", "select", "evaluate"}
    for stage in ours:
        result = CliRunner().invoke(app, list(stage.command[1:]))
        assert "error: there is no file" in result.stderr, result.output
