"""Whole trainings through unmodified verl on a CPU: SFT, GRPO, PPO with critic and KL, failures, kill and resume.

Each starts Ray and takes one to two minutes, so one run answers as many questions as it can.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from doubles_training import RECIPE, SECONDS, TASKS, Training, end

from agentgym_rl.data.parquet import write_tasks
from agentgym_rl.data.sft_parquet import write_sft
from agentgym_rl.environments.registry import opened
from agentgym_rl.episode import play
from agentgym_rl.follow import read_metrics
from agentgym_rl.policy import ExpertPolicy
from agentgym_rl.task import Task
from verl_ext.advantages.registry import ESTIMATORS

pytestmark = pytest.mark.slow


@pytest.fixture
def training(tmp_path: Path) -> Training:
    write_tasks(TASKS, tmp_path / "tasks.parquet")
    return Training(tmp_path)


def test_two_grpo_steps_train_on_what_was_sampled_and_report_episodes(
    training: Training, untrained_policy: Path
) -> None:
    metrics = training.run(untrained_policy, 2, "trainer.test_freq=2")
    assert [step for step in metrics if step > 0] == [1, 2]
    for step in (1, 2):
        values = metrics[step]
        # The trainer's log-probs of the sampled tokens are the rollout's (float32).
        assert values["rollout_corr/log_ppl_abs_diff"] < 1e-3
        assert values["training/rollout_probs_diff_max"] < 1e-3
        assert values["episode/babyai/count"] == 8
        assert values["episode/failed"] == 0
        assert 1 <= values["episode/babyai/turns/mean"] <= 3
    assert "val-core/babyai/acc/mean@1" in metrics[2]


def test_the_stock_trainer_takes_our_agent_loop_and_estimators(training: Training, untrained_policy: Path) -> None:
    metrics = training.run(untrained_policy, 1, "trainer.v1.trainer_mode=sync", "algorithm.adv_estimator=turn_grpo")
    assert metrics[1]["training/num_turns/mean"] > 1


def test_every_estimator_takes_two_steps_with_a_critic_that_learns_and_both_kl_terms(
    training: Training, untrained_policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One training of 24 steps, a step an estimator, in environments that are Ray actors, on sessions that are split in
    two, between them a summary by the policy itself."""
    tried = training.folder / "tried.jsonl"
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "doubles_estimators")
    monkeypatch.setenv("ESTIMATORS_TRIED", str(tried))
    metrics = training.run(
        untrained_policy,
        2 * len(ESTIMATORS),
        "algorithm.adv_estimator=each_in_turn",
        "algorithm.use_kl_in_reward=True",
        "actor_rollout_ref.actor.use_kl_loss=True",
        "actor_rollout_ref.actor.optim.lr=1e-5",
        "critic.enable=True",
        f"critic.model.path={untrained_policy}",
        "critic.ppo_mini_batch_size=1",
        "critic.optim.lr=1e-3",
        "+agentgym.history={keep_turns: 1, summary: {tokens: 8}}",
        "data.max_response_length=280",  # two turns, and the 167 tokens of a summary with its request
        "agentgym.truncations.truncated=as_is",  # or the values of these endless episodes would grow for ever
        "data.max_prompt_length=400",
        "+agentgym.rewards.invalid_action=-1.0",  # it knows no action yet: something that a critic can learn
        "+agentgym.pool.babyai={actors: 1, slots_per_actor: 8}",
    )
    lines = [json.loads(line) for line in tried.read_text().splitlines()]
    assert [line["name"] for line in lines] == [*ESTIMATORS, *ESTIMATORS]
    assert all(line["finite"] and line["outside"] == 0 for line in lines)
    assert all(line["rows"] >= 16 for line in lines)  # 8 sessions of up to 3 turns
    assert metrics[1]["training/rollout_probs_diff_max"] < 1e-3  # of the summaries as well
    assert metrics[1]["actor/reward_kl_penalty"] == pytest.approx(0, abs=1e-4)  # the reference is the policy itself
    assert metrics[1]["actor/kl_loss"] == pytest.approx(0, abs=1e-4)
    losses = [metrics[step]["critic/vf_loss"] for step in range(1, len(lines) + 1)]
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])


def test_failed_environments_leave_the_step_and_are_counted_until_the_run_has_lost_too_much(
    training: Training, untrained_policy: Path
) -> None:
    """Three tasks of four raise, hang or crash in every session; a step goes on with the fourth, the run stops."""
    broken = ("doubles:Raises", "doubles:Hangs", "doubles:CrashesAtOnce")
    tasks = [Task(f"broken-{name}", name) for name in broken]
    write_tasks([*tasks, TASKS[0]], training.folder / "tasks.parquet")
    overrides = (
        "data.train_batch_size=4",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "agentgym.isolation=process",
        "agentgym.limits.step_seconds=3",
        "agentgym.failures.step_share=0.8",
        "agentgym.failures.run_count=20",
        "agentgym.failures.retries=1",
        "trainer.val_before_train=True",
    )
    process = training.start(training.command(untrained_policy, 3, *overrides))
    try:
        assert process.wait(SECONDS) != 0
    finally:
        end(process)
    log, metrics = training.log.read_text(), training.metrics
    # Validation plays every task once: the three that fail are no wrong answers, and no part of the step.
    assert metrics[0]["val-aux/failed"] == 3
    assert {name for name in metrics[0] if "/acc/" in name} == {"val-core/babyai/acc/mean@1"}
    assert metrics[1]["episode/failed"] == 12
    assert metrics[1]["episode/retried"] == 4  # crashes, once each
    assert metrics[1]["episode/failed/environment_raised"] == 4
    assert metrics[1]["episode/failed/environment_timed_out"] == 4
    assert metrics[1]["episode/failed/environment_crashed"] == 4
    assert metrics[1]["episode/babyai/count"] == 4
    assert "24 episodes of this run failed; allowed: 20. The worst cause" in log
    assert "in environment 'doubles:" in log
    stored = (training.folder / "checkpoints" / "failures.jsonl").read_text().splitlines()
    assert len(stored) == 36  # 4 + 16 + 16


def test_the_asynchronous_trainer_trains_and_counts_failures(training: Training, untrained_policy: Path) -> None:
    write_tasks([*TASKS[:3], Task("broken", "doubles:Raises")], training.folder / "tasks.parquet")
    metrics = training.run(
        untrained_policy,
        2,
        "trainer.v1.trainer_mode=agentgym_async",
        "agentgym.failures.step_share=1",
        "agentgym.history.rerender=true",  # a row a turn
        "data.max_prompt_length=400",
        "algorithm.adv_estimator=trajectory_grpo",
    )
    assert [step for step in metrics if step > 0] == [1, 2]
    assert sum(metrics[step]["episode/failed"] for step in (1, 2)) >= 4
    assert all(metrics[step]["episode/babyai/count"] >= 4 for step in (1, 2))


def test_a_killed_training_goes_on_from_its_checkpoint_and_a_collapsing_one_goes_back_to_it(
    training: Training, untrained_policy: Path
) -> None:
    shared = ("trainer.save_freq=1", "agentgym.curriculum={}", "agentgym.horizon={0: 1, 2: 2}")
    process = training.start(training.command(untrained_policy, 4, *shared))
    saved = training.folder / "checkpoints" / "latest_checkpointed_iteration.txt"
    deadline = time.monotonic() + SECONDS
    while not (saved.exists() and int(saved.read_text()) >= 2):
        assert process.poll() is None, training.log.read_text()[-5000:]
        assert time.monotonic() < deadline, "no second checkpoint"
        time.sleep(0.2)
    end(process)
    reached = int(saved.read_text())
    before = training.metrics
    # Each group of this policy is flat, as the killed run saw for two steps or more. So the next step is one too many:
    # it goes back, and so does the third after that; then there are two left.
    flat = ("agentgym.watch.action=rollback", "agentgym.watch.max_flat_groups=0", "agentgym.watch.patience=3")
    after = training.run(untrained_policy, reached + 4, *shared, *flat)
    second = read_metrics_of_last_run(training)
    assert min(second) == reached
    assert max(second) == reached + 4
    assert set(before) <= set(after)
    assert training.log.read_text().count("going back to the last checkpoint: flat_groups was above its bound") == 2
    assert before[1]["episode/babyai/turns/max"] == 1
    assert second[reached + 1]["episode/babyai/turns/max"] == 2
    assert second[reached + 1]["curriculum/played_share"] > before[max(before)]["curriculum/played_share"]


def read_metrics_of_last_run(training: Training) -> dict[int, dict[str, float]]:
    last = max((training.folder / "metrics").iterdir())
    alone = training.folder / "last"
    alone.mkdir()
    (alone / "run.jsonl").write_text(last.read_text())
    return {step: values for step, values in read_metrics(alone).items() if "timing_s/step" in values}


def test_sft_learns_from_expert_episodes_and_leaves_a_hugging_face_folder(
    tmp_path: Path, untrained_policy: Path
) -> None:
    import asyncio

    async def expert(task: Task):
        async with opened(task.environment) as environment:
            return await play(ExpertPolicy(environment), environment, task)

    write_sft([asyncio.run(expert(task)) for task in TASKS], tmp_path / "sft.parquet")
    training = Training(tmp_path)
    process = training.start(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=1"),
            *("-m", "verl.trainer.sft_trainer", "--config-dir", str(RECIPE), "--config-name", "sft"),
            f"data.train_files={tmp_path / 'sft.parquet'}",
            "data.train_batch_size=4",
            f"model.path={untrained_policy}",
            f"trainer.default_local_dir={tmp_path / 'checkpoints'}",
            "trainer.total_training_steps=10",
            f"hydra.run.dir={tmp_path / 'hydra'}",
        ]
    )
    assert process.wait(SECONDS) == 0, training.log.read_text()[-5000:]
    losses = [values["train/loss"] for values in training.metrics.values() if "train/loss" in values]
    assert losses[-1] < losses[0] / 2
    assert (tmp_path / "checkpoints" / "global_step_10" / "huggingface" / "model.safetensors").is_file()
