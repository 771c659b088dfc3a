"""Settings that would train on something else than they say are refused before anything starts."""

from __future__ import annotations

import math

import pytest
from test_config import composed

from agentgym_rl.errors import ConfigurationError
from verl_ext.agent_loop.settings import Settings
from verl_ext.combinations import require_workable
from verl_ext.episode_metrics import mean_accuracy
from verl_ext.updates import rows_of_micro_batches


@pytest.mark.parametrize(
    ("overrides", "mode", "message"),
    [
        (["agentgym.history.keep_turns=2"], "sync", "verl's estimator 'grpo' does not put them together"),
        (["agentgym.oversampling.spares=8"], "sync", "must be below rollout.n, 8; given: 8"),
        (
            ["actor_rollout_ref.rollout.calculate_log_probs=false"],
            "colocate_async",
            "rollout.calculate_log_probs must be true",
        ),
        (["agentgym.watch.action=rollback"], "colocate_async", "sessions under way, which can't go back"),
        (
            ["agentgym.max_turn_logprob_gap=1", "algorithm.rollout_correction.bypass_mode=true"],
            "sync",
            "it needs rollout.calculate_log_probs=true",
        ),
        (
            ["agentgym.watch.min_entropy=0.1", "algorithm.rollout_correction.bypass_mode=true"],
            "sync",
            "bounds of entropy need",
        ),
    ],
)
def test_what_can_not_work_together_is_said(overrides: list[str], mode: str, message: str) -> None:
    config = composed("quickstart", "grpo", *overrides)
    with pytest.raises(ConfigurationError, match=message):
        require_workable(config, Settings.of(config), mode)


@pytest.mark.parametrize(
    "overrides",
    [[], ["agentgym.history.keep_turns=2", "algorithm.adv_estimator=gigpo"], ["agentgym.oversampling.spares=7"]],
)
@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_what_works_together_is_taken(overrides: list[str], mode: str) -> None:
    config = composed("quickstart", "grpo", *overrides)
    require_workable(config, Settings.of(config), mode)


def test_rows_fill_micro_batches_where_verl_does_not_cut_by_tokens() -> None:
    by_tokens = composed("quickstart", "grpo")
    assert rows_of_micro_batches(by_tokens, with_critic=True) == 1
    fixed = composed(
        "quickstart",
        "grpo",
        "actor_rollout_ref.actor.use_dynamic_bsz=false",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=6",
        "critic.ppo_micro_batch_size_per_gpu=5",
    )
    assert rows_of_micro_batches(fixed, with_critic=False) == 12
    assert rows_of_micro_batches(fixed, with_critic=True) == 60


# Prompt a: 1 and 0, mean 1/2; prompt b lost a session and has one 1, mean 1: 3/4 over the prompts.
def test_a_prompt_that_lost_a_session_counts_like_every_other() -> None:
    infos = {"acc": [1.0, 0.0, 1.0, None, math.nan]}
    metrics = mean_accuracy(["s", "s", "s", "s", "blind"], ["a", "a", "b", "b", "c"], infos)
    assert metrics == {"val-core/s/acc/mean@2": 0.75}
