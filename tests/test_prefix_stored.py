"""A task's prefix wherever tasks are kept, sent and compared; and a task without one is there what it always was."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from doubles import Guess, name_of, task_for
from doubles_agentgym import content, played, remote, served
from doubles_augment import augmented, made, record_of, said
from doubles_cli import stairs
from doubles_tools import Shop, shop_task
from doubles_tools import name_of as shop_name

from agentgym_rl.data.chat_files import to_line
from agentgym_rl.data.collect import Collected, collect
from agentgym_rl.data.prefix_tasks import begins_at
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.tool_rows import write_tool_rows
from agentgym_rl.data.trajectory_json import from_dict, to_dict
from agentgym_rl.environments import registry
from agentgym_rl.environments.chaos import Chaos, Fault, Faults
from agentgym_rl.episode import play
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.exported_tools import exported_tools
from agentgym_rl.policy import ExpertPolicy, ScriptedPolicy

HIGH = stairs("high", height=4)
BEGUN = begins_at(record_of(HIGH).trajectory, 2)


def expert(environment, task, episode):
    return ExpertPolicy(environment)


async def test_an_episode_of_a_task_without_a_prefix_has_the_id_that_it_always_had(tmp_path):
    store = TrajectoryStore(tmp_path)
    await collect(expert, [stairs("a", height=3)], store, "expert")
    assert store.ids() == {"06245fb1881749a3"}


async def test_an_episode_after_a_prefix_is_another_one_and_is_read_as_it_was_kept(tmp_path):
    store = TrajectoryStore(tmp_path)
    assert await collect(expert, [BEGUN], store, "expert") == Collected(0, 1, 1, 0)
    assert await collect(expert, [BEGUN], store, "expert") == Collected(1, 0, 0, 0)
    changed = replace(BEGUN, prefix=BEGUN.prefix[:1])
    assert await collect(expert, [changed], store, "expert") == Collected(0, 1, 1, 0)
    assert sorted(len(one.trajectory.task.prefix) for one in store.records()) == [1, 2]
    assert {one.trajectory.environment_return for one in store.records()} == {1.0}


@pytest.mark.parametrize("task", [HIGH, BEGUN])
def test_a_trajectory_survives_json(task):
    trajectory = record_of(task).trajectory
    row = json.loads(json.dumps(to_dict(trajectory)))
    assert from_dict(row) == trajectory
    assert ("prefix" in row["task"]) == bool(task.prefix)


def test_other_files_train_no_reply_of_a_prefix():
    trajectory = record_of(BEGUN).trajectory
    openai = [one for one in to_line(trajectory, "openai")["messages"] if one["role"] == "assistant"]
    assert [one["weight"] for one in openai] == [0, 0, 1, 1]
    sharegpt = [one for one in to_line(trajectory, "sharegpt")["conversations"] if one["from"] == "gpt"]
    assert [one["loss"] for one in sharegpt] == [False, False, True, True]


async def test_a_prefix_is_played_through_a_server_of_ours():
    prefix = [{"role": "assistant", "content": "4"}]
    direct = await played(replace(task_for(Guess), prefix=prefix), ["6", "7"])
    with served(name_of(Guess)) as address:
        assert content(await played(replace(remote(address), prefix=prefix), ["6", "7"])) == content(direct)
    assert direct.success


async def test_verls_own_loop_which_knows_no_prefix_gets_no_rows_of_one(tmp_path):
    call = {"function": {"name": "buy", "arguments": {"item": {"name": "tea"}}}}
    task = replace(shop_task(), prefix=[{"role": "assistant", "content": "", "tool_calls": [call]}])
    tools = exported_tools(shop_name(Shop))
    with pytest.raises(ConfigurationError, match="task 't' has a prefix, and verl's loop 'tool_agent' begins every"):
        await write_tool_rows([task], tools, tmp_path / "rows.parquet")
    await write_tool_rows([task], tools, tmp_path / "rows.parquet", "environment_tools")


def test_chaos_spares_a_prefix_what_would_part_its_group():
    async def episode(task, nonce):
        async with registry.opened(task.environment) as environment:
            chaos = Chaos(environment, Faults(garbage=1.0), task.id, nonce)
            return await play(ScriptedPolicy(["up"]), chaos, task), chaos.injected

    (one, injected), (other, _) = (asyncio.run(episode(BEGUN, nonce)) for nonce in (0, 1))
    assert one.opening == other.opening == record_of(BEGUN).trajectory.opening
    assert [(fault.fault, fault.turn) for fault in injected] == [(Fault.GARBAGE, 2)]


@pytest.mark.parametrize("rule", ["recovery", "prefix", "tool_error"])
def test_what_began_after_a_prefix_is_augmented_after_it(tmp_path, rule):
    parent = record_of(BEGUN, "down", "down", *["up"] * 4)
    done = augmented(tmp_path, parent, rules={rule: 5}, keep_originals=False)
    assert made(done)
    for record in made(done):
        assert record.trajectory.opening == parent.trajectory.opening
        assert record.trajectory.task == BEGUN
        assert said(record)[0] in ("down", "up")
