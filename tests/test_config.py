"""The recipe composes on both kinds of hardware, and verl's own validation accepts it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

import verl_ext
from agentgym_rl.environments.chaos import Faults
from agentgym_rl.episode import Limits
from agentgym_rl.failure_policy import FailurePolicy
from verl_ext.agent_loop.settings import Settings

RECIPES = Path(__file__).parent.parent / "recipes"
MORE_THAN_A_BATCH = (
    "actor_rollout_ref.actor.ppo_mini_batch_size=64",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1",
)
MADE_UP_DATA = ("data.train_files=train.parquet", "data.val_files=val.parquet", "actor_rollout_ref.model.path=model")


def composed(recipe: str, name: str, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(RECIPES / recipe), version_base=None):
        return compose(name, overrides=[*MADE_UP_DATA, *overrides])


def validated(config: DictConfig) -> DictConfig:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    validate_config(config, need_reference_policy(config), need_critic(config))
    return config


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
def test_the_grpo_recipe_is_valid_on(hardware: str) -> None:
    config = validated(composed("quickstart", "grpo", f"hardware={hardware}"))
    assert config.actor_rollout_ref.rollout.name == {"cpu": "transformers", "gpu": "vllm"}[hardware]
    assert config.trainer.v1.trainer_mode == "agentgym"
    assert config.actor_rollout_ref.rollout.n == 8


def test_the_gpu_recipe_keeps_nothing_of_the_cpu(tmp_path: Path) -> None:
    text = OmegaConf.to_yaml(composed("quickstart", "grpo", "hardware=gpu"))
    assert "transformers" not in text
    assert "device: cpu" not in text


def test_tokens_are_weighted_where_rollout_and_trainer_differ() -> None:
    weighted = {
        hardware: composed("quickstart", "grpo", f"hardware={hardware}").algorithm.rollout_correction.rollout_is
        for hardware in ("cpu", "gpu")
    }
    assert weighted == {"cpu": None, "gpu": "token"}


def test_the_cpu_recipe_computes_in_float32_with_actor_reference_and_critic() -> None:
    config = composed("quickstart", "grpo")
    parts = (config.actor_rollout_ref.actor.fsdp_config, config.actor_rollout_ref.ref.fsdp_config, config.critic.fsdp)
    for part in parts:
        assert part.mixed_precision == {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
        assert part.strategy == "fsdp2"
    assert config.actor_rollout_ref.ref.fsdp_config.forward_only
    assert not config.actor_rollout_ref.actor.fsdp_config.forward_only


def test_the_section_agentgym_states_the_defaults_of_its_settings() -> None:
    section = OmegaConf.load(Path(verl_ext.__path__[0]) / "config" / "agentgym.yaml").agentgym
    assert Settings.of(OmegaConf.create({"agentgym": section})) == Settings()
    assert set(section) == {field.name for field in fields(Settings)}
    assert set(section.limits) == {field.name for field in fields(Limits)}
    assert set(section.chaos) == {field.name for field in fields(Faults)}
    assert set(section.failures) == {field.name for field in fields(FailurePolicy)}


def test_verl_refuses_a_recipe_that_can_not_work() -> None:
    with pytest.raises((ValueError, AssertionError), match="mini_batch_size"):
        validated(composed("quickstart", "grpo", "actor_rollout_ref.actor.use_dynamic_bsz=False", *MORE_THAN_A_BATCH))
