"""Training after a prefix: it is prompt, told as it would have been sampled, and no token of it is trained."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from doubles import Guess, task_for
from doubles_chat import FAITHFUL, TEMPLATES, runs_of_ones, text_of
from doubles_loop import ScriptedClient, expert_lines
from doubles_tools import shop_task
from doubles_training import TASKS, Training
from doubles_verl_tools import verl_tools
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap

from agentgym_rl.beginning import Beginning
from agentgym_rl.data.parquet import write_tasks
from agentgym_rl.data.prefix_tasks import begins_at
from agentgym_rl.data.sft_parquet import write_sft
from agentgym_rl.environment import fingerprint
from agentgym_rl.environments import registry
from agentgym_rl.environments.babyai import BabyAI
from agentgym_rl.episode import play
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.messages import Message, ToolCall, assistant, system, user
from agentgym_rl.policy import ExpertPolicy, SampledTokens, ScriptedPolicy
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Trajectory
from verl_ext import failures
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.agent_loop.environment_loop import EnvironmentAgentLoop
from verl_ext.agent_loop.history import History
from verl_ext.agent_loop.token_policy import TokenBudget, TokenPolicy
from verl_ext.agent_loop.tool_loop import EnvironmentToolsLoop
from verl_ext.sft_dataset import SftDataset

ROLLOUT = {"prompt_length": 3000, "response_length": 2000, "calculate_log_probs": True, "multi_turn": {}}
HEAD = [system("be brief"), user("a wall")]
REASONED = assistant("<think>a door is left</think>left")
text = st.text(max_size=12)


@pytest.fixture(scope="module")
def tokenizer(policy_folder):
    return AutoTokenizer.from_pretrained(policy_folder)


@pytest.fixture(scope="module")
def chat(tokenizer) -> ChatTokens:
    return ChatTokens(tokenizer)


@pytest.fixture(autouse=True)
def nobody_counts(monkeypatch):
    monkeypatch.setattr(failures, "report", lambda failure: False)
    monkeypatch.setattr(failures, "report_pool", lambda periods: None)


@pytest.fixture
def run(tokenizer, tmp_path):
    """Plays one session, by calls of tools where a form of them is given."""

    async def session(client: Any, task: Task, calls: str = "", **agentgym: Any) -> Any:
        rollout = {**ROLLOUT, "multi_turn": {"format": calls}}
        config = DictConfigWrap(
            OmegaConf.create(
                {
                    "actor_rollout_ref": {"rollout": rollout},
                    "critic": {"enable": False},
                    "data": {},
                    "agentgym": agentgym,
                }
            )
        )
        given = config, client, tokenizer, None, None
        data = DictConfigWrap(config.config.data)
        if calls:
            tools = ToolListWrap(verl_tools(tmp_path, task.environment))
            loop = EnvironmentToolsLoop(*given, data_config=data, tools=tools)
        else:
            loop = EnvironmentAgentLoop(*given, data_config=data)
        row = {"task": task.to_json(), "session_id": 0, "index": 0, "validation": False, "uid": "g"}
        (output,) = await asyncio.wait_for(loop.run({"temperature": 1.0}, **row), 60)
        return output

    return session


def after(task: Task, *lines: str) -> Task:
    return replace(task, prefix=[assistant(line).to_chat() for line in lines])


def says(*replies: list[int]) -> Any:
    left = iter(replies)

    async def generate(ids: list[int], most: int) -> SampledTokens:
        said = tuple(next(left))
        return SampledTokens(said, (-0.5,) * len(said))

    return generate


# The prompt


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=40)
@given(st.lists(st.tuples(text, text), min_size=1, max_size=3), text)
def test_prompt_and_reply_are_what_fine_tuning_sees_with_no_token_of_the_prefix_trained(chats, name, turns, reply):
    chat = chats[name]
    told = [*HEAD, *(message for said, seen in turns for message in (assistant(said), user(seen)))]
    policy = TokenPolicy(says(chat.encode_reply(reply)), chat, TokenBudget(1000, 1000, 100))
    asyncio.run(policy.reply(told))
    (segment,) = policy.segments
    trained = [False] * len(told) + [True]
    assert (segment.ids, [0] * len(segment.prompt_ids) + segment.mask) == chat.render(
        [*told, assistant(reply)], trained
    )
    assert runs_of_ones(segment.mask) == [len(chat.encode_reply(reply))]


@pytest.mark.parametrize("name", FAITHFUL)
def test_a_template_that_keeps_what_was_said_gives_the_same_prompt(chats, name):
    told = [*HEAD, REASONED, user("a door"), assistant("open"), user("a hall")]
    assert chats[name].going_on(told) == chats[name].opening(told)


def test_a_template_does_not_take_the_reasoning_out_of_a_prefix_unless_all_is_rendered_anew(chats):
    chat, told = chats["thinking"], [*HEAD, REASONED, user("a door")]
    for history, is_told in [(History(), True), (History(rerender=True), False)]:
        policy = TokenPolicy(says([70]), chat, TokenBudget(1000, 10, 10), history)
        asyncio.run(policy.reply(told))
        assert ("a door is left" in text_of(chat, policy.segments[0].prompt_ids)) is is_told


def test_calls_beside_the_text_are_told_as_the_template_has_them(chats):
    chat = chats["chatml"]
    told = [*HEAD, assistant("", (ToolCall("go"),)), Message("tool", "gone", (), "c")]
    assert chat.going_on(told) == chat.opening(told)


def test_a_prefix_that_the_prompt_has_no_room_for_is_refused_or_loses_its_oldest_turns(chats):
    chat, told = chats["chatml"], [*HEAD, assistant("left"), user("a door"), assistant("open"), user("a hall")]
    kept = [*HEAD, *told[4:]]
    budget = TokenBudget(len(chat.opening(kept)), 100, 10)
    with pytest.raises(DataError, match=r"the opening takes .* tokens; allowed are .* \(data.max_prompt_length\)"):
        asyncio.run(TokenPolicy(says([70]), chat, budget).reply(told))
    policy = TokenPolicy(says([70], [71]), chat, budget, History(keep_turns=1))
    reply = asyncio.run(policy.reply(told))
    asyncio.run(policy.reply([*told, reply.message, user("on")]))
    (segment,) = policy.segments
    assert segment.prompt_ids == chat.opening(kept)
    assert runs_of_ones(segment.mask) == [1, 1]


# The agent loop. The secret of seed 0 is 7


async def test_a_row_after_a_prefix_by_hand(run, chat):
    client = ScriptedClient(chat, ["6", "7"])
    output = await run(client, after(task_for(Guess), "4"), rewards={"environment": 1.0})
    told = [system("Find the number."), user("Guess a number from 1 to 8."), assistant("4"), user("higher")]
    assert output.prompt_ids == chat.going_on(told)
    between = chat.continuation([user("higher")], client.said[0])
    assert output.response_ids == [*client.said[0], *between, *client.said[1]]
    assert runs_of_ones(output.response_mask) == [len(ids) for ids in client.said]
    assert output.as_dict()["rm_scores"][output.turn_ends_T].tolist() == [0.0, 1.0]
    episode = output.extra_fields["episode"]
    assert (episode["turns"], episode["success"]) == (2, True)
    assert episode["state_keys"] == [fingerprint([user("higher")])] * 2


async def test_the_sessions_of_a_group_are_held_to_one_prefix(run, chat):
    await run(ScriptedClient(chat, ["7"]), after(task_for(Guess), "4"))
    await run(ScriptedClient(chat, ["7"]), after(task_for(Guess), "4"))
    with pytest.raises(ConfigurationError, match="the sessions of one group did not start alike"):
        await run(ScriptedClient(chat, ["7"]), after(task_for(Guess), "8"))


async def test_a_prefix_that_does_not_fit_is_fatal_and_no_reward_of_0(run, chat, monkeypatch):
    seen = []
    monkeypatch.setattr(failures, "report", lambda failure: bool(seen.append(failure)))
    with pytest.raises(ConfigurationError, match="the prefix of task 't' can't be played: turn 0 of 1"):
        await run(ScriptedClient(chat, ["7"]), after(task_for(Guess), "what?"))
    assert [(failure.fatal, failure.episode.task) for failure in seen] == [(True, "t")]


async def test_babyai_goes_on_behind_its_one_tool(run, chat):
    task = Task("b", "babyai", {"level": "GoToObj", "max_turns": 16}, seed=3)
    lines = expert_lines(BabyAI(), task)
    act = [f'<tool_call>\n{{"name": "act", "arguments": {{"action": "{line}"}}}}\n</tool_call>' for line in lines]
    output = await run(ScriptedClient(chat, act[-2:]), after(task, *lines[:-2]), calls="hermes")
    episode = output.extra_fields["episode"]
    assert (episode["success"], episode["turns"], episode["invalid_turns"]) == (True, 2, 0)
    assert all(line in text_of(chat, output.prompt_ids) for line in act[:-2])


async def test_a_toolbox_goes_on_after_calls_that_are_told_in_the_form_of_the_run(run, chat):
    call = assistant("", (ToolCall("buy", {"item": {"name": "tea"}, "count": 2}, "c1"),))
    task = replace(shop_task(), prefix=[call.to_chat()])
    output = await run(ScriptedClient(chat, ["2"]), task, calls="hermes")
    assert output.extra_fields["episode"]["success"]
    assert '<tool_call>\n{"name": "buy"' in text_of(chat, output.prompt_ids)
    assert "bought 2" in text_of(chat, output.prompt_ids)


# Fine-tuning on what was played after a prefix


async def test_fine_tuning_trains_no_token_of_a_prefix(tmp_path, tokenizer, chat):
    task = after(task_for(Guess), "4")
    async with registry.opened(task.environment) as environment:
        trajectory = await play(ScriptedPolicy(["6", "7"]), environment, task)
    write_sft([trajectory], tmp_path / "a.parquet")
    config = OmegaConf.create({"pad_mode": "no_padding", "truncation": "error", "max_length": 1024})
    files = str(tmp_path / "a.parquet")
    item = SftDataset(parquet_files=files, tokenizer=tokenizer, config=config, processor=None, max_samples=-1)[0]
    trained = item["input_ids"][item["loss_mask"] == 1].tolist()
    assert trained == chat.encode_reply("6") + chat.encode_reply("7")
    assert item["input_ids"].tolist()[: len(chat.going_on(trajectory.opening))] == chat.going_on(trajectory.opening)


# verl


@pytest.mark.slow
def test_a_grpo_step_trains_on_what_was_sampled_after_prefixes(tmp_path, untrained_policy):
    async def solved(task: Task) -> Trajectory:
        async with registry.opened(task.environment) as environment:
            return await play(ExpertPolicy(environment), environment, task)

    whole = [replace(task, arguments={"level": "GoToObj", "max_turns": 64}) for task in TASKS]
    given = [one for one in (asyncio.run(solved(task)) for task in whole) if len(one.turns) > 2]
    write_tasks([begins_at(one, len(one.turns) - 2) for one in given], tmp_path / "tasks.parquet")
    limits = ["data.max_prompt_length=2048", "agentgym.limits.max_turns=3"]
    values = Training(tmp_path).run(untrained_policy, 1, *limits)[1]
    assert values["rollout_corr/log_ppl_abs_diff"] < 1e-3
    assert values["training/rollout_probs_diff_max"] < 1e-3
    assert (values["episode/babyai/count"], values["episode/failed"]) == (8, 0)
    assert 1 <= values["episode/babyai/turns/mean"] <= 3
    chat = ChatTokens(AutoTokenizer.from_pretrained(untrained_policy))
    told = {len(chat.going_on(Beginning.of(one, len(one.turns) - 2).conversation())) for one in given}
    assert {values["prompt_length/min"], values["prompt_length/max"]} <= told
