"""Trainings through unmodified verl on a CPU in which environments are tools: of verl's own loop, and of ours."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from doubles_tools import Parity, Unavailable
from doubles_tools import name_of as tool_double
from doubles_training import TASKS, Training

from agentgym_rl.data.tool_rows import write_tool_rows
from agentgym_rl.exported_tools import exported_tools, write_tool_file
from agentgym_rl.task import Task

pytestmark = pytest.mark.slow


def training_with_tools(folder: Path, tasks: list[Task], agent_name: str) -> tuple[Training, tuple[str, ...]]:
    """A training on these tasks, and what tells verl of their tools."""
    names = sorted({task.environment for task in tasks})
    tools = [tool for name in names for tool in exported_tools(name)]
    write_tool_file(tools, folder / "tools.yaml")
    asyncio.run(write_tool_rows(tasks, tools, folder / "tasks.parquet", agent_name, format="hermes"))
    return Training(folder), (
        f"actor_rollout_ref.rollout.multi_turn.tool_config_path={folder / 'tools.yaml'}",
        "data.max_prompt_length=2048",
    )


def test_verls_own_tool_loop_plays_environments_and_their_reward_reaches_the_trainer(
    tmp_path: Path,
    untrained_policy: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of 8 trajectories calls three times or more and gets 0 or 1 for each of the first three calls."""
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "doubles_any_call")
    tasks = [Task(f"parity-{seed}", tool_double(Parity), seed=seed) for seed in range(4)]
    training, overrides = training_with_tools(tmp_path, tasks, "tool_agent")
    metrics = training.run(
        untrained_policy,
        1,
        *overrides,
        "trainer.v1.trainer_mode=sync",
        "actor_rollout_ref.rollout.multi_turn.format=any_call",
        "reward.custom_reward_function.path=pkg://verl_ext.tool_reward",
    )
    values = metrics[1]
    assert 0 < values["critic/score/mean"] < 3
    assert values["critic/score/mean"] * 8 == pytest.approx(round(values["critic/score/mean"] * 8))
    assert values["critic/score/max"] <= 3
    assert values["critic/advantages/max"] > 0
    assert values["training/num_turns/mean"] >= 7  # prompt, and three times a call and its answer


def test_our_loop_reports_episodes_played_by_tools_and_takes_out_those_that_failed(
    tmp_path: Path,
    untrained_policy: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The policy knows no form of calls, so each of its turns is answered as not valid."""
    tasks = [TASKS[0], Task("broken", tool_double(Unavailable))]
    training, overrides = training_with_tools(tmp_path, tasks, "environment_tools")
    monkeypatch.setenv("UNAVAILABLE", "1")
    metrics = training.run(
        untrained_policy,
        1,
        *overrides,
        "data.max_response_length=512",
        "agentgym.limits.max_turns=3",
        "+agentgym.rewards.format=1.0",
        "agentgym.failures.step_share=1",
    )
    values = metrics[1]
    assert values["episode/failed/environment_raised"] == 4
    assert values["episode/babyai/count"] == 4
    assert values["episode/babyai/invalid_share"] == 1
    assert values["episode/babyai/turns/mean"] == 3
    assert values["episode/babyai/reward/format"] == pytest.approx(-1)
