"""A training through unmodified verl on a CPU in which a judge compares the sessions of each group."""

from __future__ import annotations

from pathlib import Path

import pytest
from doubles_judge import chat_server, records_shown, verdicts
from doubles_training import TASKS, Training

from agentgym_rl.data.parquet import write_tasks

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", ["agentgym", "agentgym_async"])
def test_a_relative_judge_rewards_what_no_outcome_tells_apart(
    tmp_path: Path, untrained_policy: Path, mode: str
) -> None:
    """No episode is solved. The judge gives the records of a group 0, 2, 4 and 6 of 10, at a weight of 0.5."""
    write_tasks(TASKS, tmp_path / "tasks.parquet")
    training = Training(tmp_path)
    with chat_server() as chat, chat(500, otherwise=lambda _: verdicts(0, 2, 4, 6)) as (server, judge):
        settings = f"{{weight: 0.5, url: '{judge.url}', model: m, tries: 2}}"
        metrics = training.run(
            untrained_policy,
            1,
            f"trainer.v1.trainer_mode={mode}",
            f"+agentgym.rewards.relative_judge={settings}",
            "agentgym.limits.max_turns=1",
            "actor_rollout_ref.rollout.agent.num_workers=2",
            "trainer.test_freq=1",
        )
    values = metrics[1]
    # of two groups: 0.5 * (0 + 0.2 + 0.4 + 0.6) / 4
    assert values["episode/babyai/reward/outcome"] == 0
    assert values["episode/babyai/reward/relative_judge"] == pytest.approx(0.15)
    assert values["critic/score/mean"] == pytest.approx(0.15)
    assert (values["critic/score/min"], values["critic/score/max"]) == pytest.approx((0, 0.3))
    assert values["critic/advantages/max"] > 0 > values["critic/advantages/min"]
    assert values["actor/grad_norm"] > 0
    assert values["val-aux/babyai/return/mean@1"] == 0
    assert all(len(records_shown(request)) == 4 for request in server.requests)
    assert len(server.requests) >= 3  # one a group, and the one that failed once more
    log = training.log.read_text()
    assert "agentgym.rewards.relative_judge compares the sessions of a training group; rewards in validation" in log
