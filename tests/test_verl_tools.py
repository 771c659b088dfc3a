"""Environments as tools of verl's own, unchanged tool loop: whole schemas, one environment a trajectory, its end."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
from typing import Any

import pytest
from doubles import Guess, task_for
from doubles_loop import expert_lines
from doubles_toolbox import Numbers, question
from doubles_tools import (
    CrashingShop,
    HangingShop,
    OnceShop,
    RaisingShop,
    Shop,
    buy,
    say,
    shop_task,
)
from doubles_tools import name_of as shop_name
from doubles_verl_tools import UnlimitedClient, verl_tools
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
from verl.experimental.agent_loop.tool_agent_loop import AgentData, ToolAgentLoop
from verl.experimental.agent_loop.tool_parser import ToolParser

from agentgym_rl.data.tool_rows import OPENING_KEY, TASK_KEY
from agentgym_rl.environments.babyai import BabyAI
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed
from agentgym_rl.exported_tools import ExportedTool, by_calls, write_tool_file
from agentgym_rl.failure_policy import Action
from agentgym_rl.messages import ToolCall
from agentgym_rl.task import Task
from agentgym_rl.tool_calls import render_calls
from agentgym_rl.tools import ToolSchema
from verl_ext import failures, tool_parsers, tools
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.tool_reward import compute_score

SECRET_4 = next(seed for seed in range(50) if Guess().draw(task_for(Guess, seed=seed)) == 4)
ROLLOUT = {
    "prompt_length": 400,
    "response_length": 1200,
    "full_determinism": False,
    "multi_turn": {
        "max_user_turns": None,
        "max_assistant_turns": None,
        "max_parallel_calls": 2,
        "max_tool_response_length": 1000,
        "tool_response_truncate_side": "middle",
        "format": "hermes",
    },
}


@pytest.fixture(scope="module")
def tokenizer(policy_folder):
    return AutoTokenizer.from_pretrained(policy_folder)


@pytest.fixture(scope="module")
def chat(tokenizer) -> ChatTokens:
    return ChatTokens(tokenizer)


@pytest.fixture(autouse=True)
def reported(monkeypatch) -> list[failures.SessionFailure]:
    """What was reported to the run's counter, of which there is none."""
    seen: list[failures.SessionFailure] = []
    monkeypatch.setattr(failures, "report", lambda failure: bool(seen.append(failure)))
    for double in (Shop, OnceShop):
        monkeypatch.setattr(double, "opened", 0)
        monkeypatch.setattr(double, "closed", 0)
    return seen


@pytest.fixture
def run(tokenizer, tmp_path):
    """Plays one trajectory with verl's loop, and gives its `extra_fields` and what its messages were."""

    async def play(client: Any, task: Task, **config: Any) -> dict[str, Any]:
        loaded = verl_tools(tmp_path, task.environment, **config)
        section = OmegaConf.create({"actor_rollout_ref": {"rollout": ROLLOUT}, "data": {}})
        loop = ToolAgentLoop(
            DictConfigWrap(section),
            client,
            tokenizer,
            None,
            None,
            data_config=DictConfigWrap(section.data),
            hf_model_type="qwen2",
            tools=ToolListWrap(loaded),
        )
        row = {"raw_prompt": [{"role": "user", "content": "Begin."}], "tools_kwargs": {TASK_KEY: task.to_json()}}
        output = await asyncio.wait_for(loop.run({"temperature": 1.0}, **row), 60)
        shown = tokenizer.decode(output.response_ids)
        return {**output.extra_fields, "shown": shown, "turns": output.num_turns}

    return play


async def let_go(double: type, times: int) -> None:
    """Waits until so many environments were closed."""
    for _ in range(1000):
        if double.closed >= times:
            break
        await asyncio.sleep(0.01)
    assert double.closed == times


# Schemas


def test_the_whole_schema_reaches_the_prompt_and_verl_can_read_its_parameters(tmp_path):
    shop, answer = verl_tools(tmp_path, shop_name(Shop))
    dumped = shop.tool_schema.model_dump(exclude_unset=True, exclude_none=True)
    assert dumped == Shop.tools[0].to_chat()
    assert dumped["function"]["parameters"]["properties"]["item"]["properties"]["sizes"]["items"] == {"type": "integer"}
    assert dumped["function"]["parameters"]["properties"]["note"]["default"] is None
    read = shop.tool_schema.function.parameters.properties
    assert {name: of.model_dump()["type"] for name, of in read.items()} == {
        "item": "object",
        "count": "integer",
        "note": ["string", "null"],
    }
    assert answer.name == "final_answer"
    dumped["function"]["parameters"]["properties"].clear()  # what one prompt does to it
    assert shop.tool_schema.model_dump() == Shop.tools[0].to_chat()
    assert copy.deepcopy(shop.tool_schema).model_dump() == Shop.tools[0].to_chat()


@given(st.text(st.sampled_from(r"\${a}: '" + "\n"), max_size=12))
def test_any_description_comes_through_omegaconf_and_back(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("tools") / "tools.yaml"
    tool = ExportedTool("e", ToolSchema("t", text, {"type": "object", "properties": {}}))
    write_tool_file([tool], path)
    (entry,) = OmegaConf.to_container(OmegaConf.load(path), resolve=True)["tools"]
    assert entry["config"]["tool"]["function"]["description"] == text


def test_a_wrong_config_is_refused_when_verl_loads_it(tmp_path):
    with pytest.raises(ConfigurationError, match="the config of a tool has no 'isolatoin'; did you mean 'isolation'"):
        verl_tools(tmp_path, shop_name(Shop), isolatoin="process")
    with pytest.raises(ConfigurationError, match="the limits of a tool has no 'steps'"):
        verl_tools(tmp_path, shop_name(Shop), limits={"steps": 1})


# A trajectory


async def test_all_calls_of_a_trajectory_go_to_one_environment_which_is_closed_behind_it(run, chat):
    client = UnlimitedClient(chat, [buy(2), buy() + buy(3), say("6"), "Done."])
    played = await run(client, shop_task(OnceShop))
    assert [text in played["shown"] for text in ("bought 2", "bought 3", "bought 6")] == [True] * 3
    assert played["tool_rewards"] == [0.25, 0.25, 0.25, 1.0]
    assert played["tool_success"] is True
    assert "The episode is over." in played["shown"]
    assert OnceShop.opened == 1
    await let_go(OnceShop, 1)
    assert compute_score("d", "", "", played) == {"score": 1.75, "acc": 1.0}


async def test_trajectories_at_once_do_not_meet(run, chat):
    clients = [UnlimitedClient(chat, [buy(count), say(str(count)), "Done."]) for count in (1, 2, 3)]
    played = await asyncio.gather(*(run(client, shop_task()) for client in clients))
    assert [fields["tool_success"] for fields in played] == [True] * 3
    assert Shop.opened == 3


async def test_a_trajectory_that_stops_in_the_middle_gives_its_environment_back(run, chat):
    """With one environment in all, the second trajectory waits for the first one's end."""
    for _ in range(3):
        played = await run(
            UnlimitedClient(chat, [buy(2), "I have no wish to go on."]), shop_task(), environment_slots=1
        )
        assert played["tool_rewards"] == [0.25]
        assert "tool_success" not in played
    assert Shop.opened == 3
    assert compute_score("d", "", "", played) == {"score": 0.25, "acc": 0.0}
    assert len(tools.sessions) == 0


async def test_an_environment_that_is_not_lent_again_is_closed_when_its_trajectory_stops(run, chat):
    await run(UnlimitedClient(chat, [buy(), "I have no wish to go on."]), shop_task(OnceShop))
    await let_go(OnceShop, 1)


async def test_a_trajectory_that_raises_gives_its_environment_back(run, chat):
    for _ in range(3):
        client = UnlimitedClient(chat, [buy(), ConnectionError("gone")])
        with pytest.raises(ConnectionError):
            await run(client, shop_task(), environment_slots=1)
        del client  # it holds the error, and that its traceback, and that the trajectory
        await asyncio.sleep(0.01)
        gc.collect()
    assert Shop.opened == 3


async def test_babyai_is_played_by_its_one_tool(run, chat):
    task = Task("b", "babyai", {"level": "GoToObj", "max_turns": 16}, seed=3)
    said = [say(line, "act", "action") for line in expert_lines(BabyAI(), task)]
    played = await run(UnlimitedClient(chat, [*said, "Done."]), task)
    assert played["tool_success"] is True
    assert played["tool_rewards"][:-1] == [0.0] * (len(said) - 1)
    assert 0 < played["tool_rewards"][-1] <= 1


async def test_a_toolbox_is_played_by_its_functions_and_answered_by_a_tool(run, chat):
    add = render_calls([ToolCall("add", {"a": 1, "b": 2})], "hermes")
    played = await run(UnlimitedClient(chat, [add, say("3"), "Done."]), by_calls(question(Numbers)))
    assert (played["tool_rewards"], played["tool_success"]) == ([0.0, 1.0], True)


async def test_a_tool_that_crashes_is_a_failure_of_the_trajectory(run, chat, reported):
    crash = render_calls([ToolCall("crash", {})], "hermes")
    played = await run(UnlimitedClient(chat, [crash, "Done."]), by_calls(question(Numbers)))
    assert played["tool_failure"].startswith("tool_raised: ")
    assert [failure.episode.cause for failure in reported] == ["tool_raised"]


async def test_calls_behind_the_end_are_told_that_it_is_over_and_earn_nothing(run, chat):
    said = [say(word, "act", "action") for word in ("4", "4", "5")]
    played = await run(UnlimitedClient(chat, [*said, "Done."]), task_for(Guess, seed=SECRET_4))
    assert played["tool_rewards"] == [1.0, 0.0, 0.0]
    assert played["shown"].count("The episode is over.") == 3


async def test_arguments_of_a_wrong_type_are_an_observation_and_no_action(run, chat, reported):
    wrong = render_calls([ToolCall("act", {"action": 4})], "hermes")
    no_object = '<tool_call>{"name": "act", "arguments": [4]}</tool_call>'
    client = UnlimitedClient(chat, [wrong, no_object, say("4", "act", "action"), "Done."])
    played = await run(client, task_for(Guess, seed=SECRET_4))
    assert "act takes one argument, 'action', which is text; given: {'action': 4}" in played["shown"]
    assert "act takes a JSON object as its arguments; given: [4]" in played["shown"]
    assert played["tool_rewards"] == [0.0, 0.0, 1.0]
    assert reported == []


async def test_the_episodes_own_deadline_ends_a_session_that_nobody_ends(run, chat):
    class Slow(UnlimitedClient):
        async def generate(self, *args: Any, **kwargs: Any) -> Any:
            if self.requests:
                await asyncio.sleep(0.5)
            return await super().generate(*args, **kwargs)

    played = await run(Slow(chat, [buy(), buy(), "Done."]), shop_task(), limits={"episode_seconds": 0.2})
    assert played["tool_rewards"] == [0.25, 0.0]
    assert "tool_failure" not in played
    assert played["tool_success"] is False


# What fails


@pytest.mark.parametrize(
    ("double", "config", "cause", "message"),
    [
        (RaisingShop, {}, "environment_raised", "ZeroDivisionError: the till is empty"),
        (HangingShop, {"limits": {"step_seconds": 0.2}}, "environment_timed_out", "no answer within 0.2 s"),
        (CrashingShop, {"isolation": "process"}, "environment_crashed", "SIGKILL"),
    ],
)
async def test_a_failed_environment_is_a_failure_of_the_trajectory_and_has_no_reward(
    run, chat, reported, double, config, cause, message
):
    played = await run(UnlimitedClient(chat, [buy(), buy(), "Done."]), shop_task(double), **config)
    assert played["tool_failure"].startswith(f"{cause}: ")
    assert message in played["tool_failure"]
    (failure,) = reported  # once, though there were two calls
    assert (failure.episode.environment, failure.episode.task, failure.episode.cause) == (shop_name(double), "t", cause)
    assert (failure.action, failure.fatal) == (Action.EXCLUDE, False)
    with pytest.raises(EnvironmentFailed, match=f"has no reward: {cause}"):
        compute_score("d", "", "", played)


async def test_a_trainer_that_counts_finds_the_trajectory_marked_and_its_reward_is_no_error(run, chat, monkeypatch):
    monkeypatch.setattr(failures, "report", lambda failure: True)
    played = await run(UnlimitedClient(chat, [buy(), "Done."]), shop_task(RaisingShop))
    assert played["excluded"] is True
    assert compute_score("d", "", "", played) == {"score": 0.0, "acc": 0.0}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "needs its task as JSON in extra_info.tools_kwargs['@task']"),
        ({TASK_KEY: None}, "needs its task as JSON"),
        ({TASK_KEY: "{"}, "not valid JSON"),
        ({TASK_KEY: task_for(Guess).to_json()}, "the row must name its tools in extra_info.tool_selection"),
        ({TASK_KEY: shop_task().to_json(), OPENING_KEY: "0"}, "starts with another observation than the one in"),
    ],
)
async def test_a_row_that_can_not_work_is_fatal(tmp_path, reported, row, message):
    shop, _ = verl_tools(tmp_path, shop_name(Shop))

    trajectory = AgentData([], [], [], None, None, {}, "id", row)
    with pytest.raises((ConfigurationError, DataError)) as error:
        await shop.execute("i", {"item": {}}, agent_data=trajectory)
    assert message in str(error.value)
    assert [(failure.fatal, failure.episode.cause) for failure in reported] == [(True, "configuration")]


# Forms of calls


@pytest.mark.parametrize("format", tool_parsers.OF_VERL)
async def test_each_form_of_calls_is_read_by_a_parser_of_verl(tokenizer, chat, tmp_path, format):
    shop, _ = verl_tools(tmp_path, shop_name(Shop))
    call = ToolCall("buy", {"item": {"name": "tea", "sizes": [1, 2]}, "count": 2})
    ids = chat.encode_reply(render_calls([call], tool_parsers.tool_format(format)))
    content, calls = await ToolParser.get_tool_parser(format, tokenizer).extract_tool_calls(ids, [shop.tool_schema])
    assert content.strip().removesuffix("<|im_end|>") == ""
    assert [(found.name, json.loads(found.arguments)) for found in calls] == [(call.name, dict(call.arguments))]


@pytest.mark.parametrize("format", ["llama-3", "react"])
async def test_text_without_a_call_is_text_and_so_is_a_malformed_call(tokenizer, chat, format):
    parser = ToolParser.get_tool_parser(format, tokenizer)
    malformed = {"llama-3": '{"name": "buy", "parameters": ', "react": "Action: buy\nAction Input: {"}[format]
    for text in ("The tea is here.", malformed):
        assert await parser.extract_tool_calls(chat.encode_reply(text), []) == (text, [])


def test_a_form_that_we_can_not_read_is_refused():
    with pytest.raises(ConfigurationError, match="multi_turn.format: no format 'kimi' here"):
        tool_parsers.tool_format("kimi")
