"""An environment's actions as tools, without verl: what is exported, what a call does, and the rows for verl's loop."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pyarrow.parquet
import pytest
from doubles import Guess, name_of, task_for
from doubles_toolbox import Numbers, Submits, question
from doubles_toolbox import name_of as box_name
from doubles_tools import NESTED, NewStartEachTime, RaisingShop, Shop, shop_task
from doubles_tools import name_of as shop_name
from typer.testing import CliRunner

from agentgym_rl.cli import app
from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.data.tool_rows import OPENING_KEY, TASK_KEY, write_tool_rows
from agentgym_rl.environment import fingerprint
from agentgym_rl.environments.registry import opened
from agentgym_rl.environments.tool_calling import ToolCalling
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.exported_tools import (
    ExportedTool,
    exported_tools,
    exported_tools_of,
    from_config,
    read_tool_file,
    told_of_tools,
    write_tool_file,
)
from agentgym_rl.messages import Message, ToolCall, assistant, user
from agentgym_rl.task import Task
from agentgym_rl.tools import ToolSchema
from data_preprocess.tool_rows import main

GUESS = name_of(Guess)
SECRET_4 = next(seed for seed in range(50) if Guess().draw(task_for(Guess, seed=seed)) == 4)


# What is exported


def test_an_environment_that_takes_text_has_one_tool_for_it():
    (tool,) = exported_tools(GUESS)
    assert (tool.schema.name, tool.text_argument) == ("act", "action")
    assert tool.schema.parameters["properties"]["action"] == {"type": "string", "description": "Find the number."}
    assert tool.schema.parameters["required"] == ["action"]


def test_an_environment_with_tools_has_these_and_one_for_the_answer():
    buy, answer = exported_tools(shop_name(Shop))
    assert (buy.schema, buy.text_argument) == (Shop.tools[0], None)
    assert (answer.schema.name, answer.text_argument) == ("final_answer", "answer")


def test_a_tool_that_is_called_like_the_answer_is_refused(monkeypatch):
    monkeypatch.setattr(Shop, "tools", (ToolSchema("final_answer", "", NESTED),))
    with pytest.raises(ConfigurationError, match="2 tools are called 'final_answer'"):
        exported_tools(shop_name(Shop))


def test_the_file_gives_the_tools_back(tmp_path):
    tools = [*exported_tools(shop_name(Shop)), *exported_tools(GUESS)]
    write_tool_file(tools, tmp_path / "tools.yaml")
    assert read_tool_file(tmp_path / "tools.yaml") == tools


def test_the_command_writes_the_file_and_names_the_tools(tmp_path):
    result = CliRunner().invoke(app, ["export-tools", shop_name(Shop), "--out", str(tmp_path / "tools.yaml")])
    assert result.exit_code == 0
    assert "buy, final_answer" in result.stdout
    assert len(read_tool_file(tmp_path / "tools.yaml")) == 2


@pytest.mark.parametrize("text", ["", "tools: 1", "- a", "tools: [{class_name: verl_ext.tools.EnvironmentTool}]", "{"])
def test_a_file_of_something_else_is_named(tmp_path, text):
    (tmp_path / "tools.yaml").write_text(text)
    with pytest.raises(DataError, match="tools.yaml is no file of tools"):
        read_tool_file(tmp_path / "tools.yaml")


def test_a_config_without_a_schema_or_with_a_wrong_argument_says_what_it_needs():
    with pytest.raises(ConfigurationError, match="needs `environment` and `tool: .* KeyError: 'tool'"):
        from_config({"environment": "babyai"})
    with pytest.raises(ConfigurationError, match="tool 'buy' has no parameter 'coun' .* did you mean 'count'"):
        ExportedTool("shop", Shop.tools[0], "coun")


def test_tools_that_depend_on_the_task_are_those_that_it_shows(tmp_path):
    of_task = asyncio.run(exported_tools_of(question(Numbers)))
    assert of_task == exported_tools(box_name(Numbers))
    arguments = ["--arguments", json.dumps(dict(question(Numbers).arguments)), "--out", str(tmp_path / "tools.yaml")]
    result = CliRunner().invoke(app, ["export-tools", box_name(Numbers), *arguments])
    assert result.exit_code == 0
    assert read_tool_file(tmp_path / "tools.yaml") == of_task


def test_a_toolbox_that_answers_through_a_tool_gets_no_other_tool_for_it():
    assert [tool.schema.name for tool in exported_tools(box_name(Submits))][-2:] == ["halve", "submit"]
    assert [tool.schema.name for tool in exported_tools(box_name(Numbers))][-2:] == ["halve", "final_answer"]


# What a call does


async def step(task: Task, *actions: Message, format="native"):
    """The result of the last of these actions."""
    async with opened(task.environment) as inner:
        environment = ToolCalling(inner, exported_tools(task.environment), format)
        await environment.reset(task)
        return [await environment.step(action) for action in actions][-1]


def calls(*pairs):
    return assistant("", tuple(ToolCall(name, arguments, f"id{n}") for n, (name, arguments) in enumerate(pairs)))


async def test_a_call_of_act_is_an_action_and_its_answer_is_the_tools():
    result = await step(task_for(Guess, seed=SECRET_4), calls(("act", {"action": "2"})))
    assert result.observation == (Message("tool", "higher", tool_call_id="id0"),)
    assert (result.valid, result.terminated) == (True, False)


async def test_calls_are_carried_out_in_order_until_the_episode_ends():
    said = ("act", {"action": "2"}), ("act", {"action": "4"}), ("act", {"action": "5"})
    result = await step(task_for(Guess, seed=SECRET_4), calls(*said))
    assert [message.content for message in result.observation] == ["higher", "found"]
    assert (result.reward, result.terminated, result.success) == (1.0, True, True)


async def test_a_reply_with_one_wrong_call_is_not_valid_though_the_others_are_carried_out():
    result = await step(task_for(Guess, seed=SECRET_4), calls(("atc", {}), ("act", {"action": "2"})))
    assert [message.content[:13] for message in result.observation] == ["There is no t", "higher"]
    assert not result.valid


async def test_calls_that_the_environment_takes_itself_are_one_step():
    result = await step(shop_task(), calls(("buy", {"item": {}, "count": 2}), ("buy", {"item": {}})))
    assert result.observation == tuple(Message("tool", "bought 3", tool_call_id=id) for id in ("id0", "id1"))
    assert result.reward == 0.5


@pytest.mark.parametrize("answer", [calls(("final_answer", {"answer": "3"})), assistant("3")])
async def test_the_answer_is_text_or_a_call_of_its_tool(answer):
    result = await step(shop_task(), calls(("buy", {"item": {}, "count": 3})), answer)
    assert (result.reward, result.success) == (1.0, True)


async def test_calls_and_the_answer_in_one_reply_are_done_in_order():
    result = await step(shop_task(), calls(("buy", {"item": {}, "count": 2}), ("final_answer", {"answer": "2"})))
    assert (result.reward, result.success) == (1.25, True)


async def test_a_toolbox_is_played_by_calls_and_answered_by_one():
    task = question(Numbers)
    added = await step(task, calls(("add", {"a": 1, "b": 2}), ("adds", {})))
    assert [(m.role, m.tool_call_id) for m in added.observation] == [("tool", "id0"), ("tool", "id1")]
    assert added.observation[0].content == "3"
    assert "did you mean 'add'" in added.observation[1].content
    assert not added.valid
    solved = await step(task, calls(("final_answer", {"answer": "3"})))
    assert (solved.reward, solved.success) == (1.0, True)


@pytest.mark.parametrize("told", [True, False])
async def test_a_toolbox_does_not_tell_of_its_tools_beside_whoever_does(told):
    task = question(Numbers)
    async with opened(task.environment) as inner:
        environment = ToolCalling(inner, exported_tools(task.environment), "hermes", told)
        await environment.reset(task)
        assert environment.instructions.count('"name": "halve"') == (0 if told else 1)
        assert environment.instructions.startswith("Compute.")
        assert environment.task(replace(task, prompt="Play.")).prompt.count('"name": "halve"') == (0 if told else 1)
        assert environment.task(task).prompt == ""
        within = environment.task(replace(task, prompt="Be brief. {{instructions}}"))
        prompt = within.system_prompt(environment.instructions)
        assert prompt.startswith("Be brief. Compute.")
        assert prompt.count('"name": "halve"') == (0 if told else 1)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (assistant("2"), "There is no call in this reply. Tools: act."),
        (assistant("<tool_call>{"), "call 1 is malformed"),
        (calls(("atc", {})), "There is no tool 'atc'; did you mean 'act'? Tools: act."),
        (calls(("act", {"action": 2})), "act takes one argument, 'action', which is text; given: {'action': 2}"),
        (calls(("act", {})), "which is text; given: {}"),
        (calls(("act", {"action": "2", "b": 1})), "which is text; given: {'action': '2', 'b': 1}"),
    ],
)
async def test_what_fits_no_tool_is_answered_and_the_environment_does_not_see_it(reply, message):
    """The secret is 4, so the environment would have said "higher"."""
    result = await step(task_for(Guess, seed=SECRET_4), reply, format="hermes")
    assert message in result.observation[0].content
    assert "Tools: act." in result.observation[0].content
    assert not result.valid
    assert not result.terminated


async def test_a_call_in_a_text_is_read_in_its_form():
    said = assistant('Action: act\nAction Input: {"action": "2"}')
    result = await step(task_for(Guess, seed=SECRET_4), said, format="react")
    assert result.observation[0].content == "higher"


# Rows


def rows_of(path):
    return pyarrow.parquet.read_table(path).to_pylist()


async def test_a_row_holds_the_first_observation_as_its_prompt_and_the_task_for_the_tools(tmp_path):
    tasks = [Task("a", shop_name(Shop), {"what": "milk"}, split="dev"), Task("b", GUESS, prompt="Guess well.")]
    tools = [*exported_tools(shop_name(Shop)), *exported_tools(GUESS)]
    await write_tool_rows(tasks, tools, tmp_path / "rows.parquet")
    first, second = rows_of(tmp_path / "rows.parquet")
    assert first["prompt"] == [
        {"role": "system", "content": Shop.instructions},
        {"role": "user", "content": "Buy milk."},
    ]
    assert second["prompt"][0] == {"role": "system", "content": "Guess well."}
    assert (first["agent_name"], first["data_source"]) == ("tool_agent", shop_name(Shop))
    assert first["extra_info"] == {
        "index": 0,
        "split": "dev",
        "tools_kwargs": {TASK_KEY: tasks[0].to_json(), OPENING_KEY: fingerprint([user("Buy milk.")])},
        "tool_selection": ["buy", "final_answer"],
    }
    assert second["extra_info"]["tool_selection"] == ["act"]
    assert read_tasks(tmp_path / "rows.parquet") == tasks


async def test_a_template_that_tells_of_no_tools_needs_the_system_prompt_to(tmp_path):
    await write_tool_rows([shop_task()], exported_tools(shop_name(Shop)), tmp_path / "rows.parquet", format="hermes")
    (row,) = rows_of(tmp_path / "rows.parquet")
    told = row["prompt"][0]["content"]
    assert told.startswith(Shop.instructions)
    assert json.dumps(Shop.tools[0].to_chat()) in told
    assert "<tool_call>" in told


def test_a_prompt_that_a_task_brings_goes_before_the_tools():
    told = told_of_tools("Guess.", exported_tools(GUESS), "react")
    assert told.startswith("Guess.\n\n")
    assert "Action Input:" in told
    assert told_of_tools("Guess.", exported_tools(GUESS), "native") == "Guess."


async def test_nothing_is_written_where_an_environment_has_no_tool_or_does_not_start(tmp_path):
    path = tmp_path / "rows.parquet"
    with pytest.raises(ConfigurationError, match="no tool is one of environment 'double-guess'; there are tools of"):
        await write_tool_rows([task_for(Guess)], exported_tools(shop_name(Shop)), path)
    with pytest.raises(ConfigurationError, match="max_turns must be at least 1"):
        await write_tool_rows([task_for(Guess, max_turns=0)], exported_tools(GUESS), path)
    assert not path.exists()


async def test_every_environment_is_closed_again(tmp_path, monkeypatch):
    monkeypatch.setattr(NewStartEachTime, "opened", 0)
    monkeypatch.setattr(NewStartEachTime, "closed", 0)
    tasks = [Task(id, shop_name(NewStartEachTime)) for id in "abc"]
    await write_tool_rows(tasks, exported_tools(shop_name(NewStartEachTime)), tmp_path / "rows.parquet")
    assert (NewStartEachTime.opened, NewStartEachTime.closed) == (3, 3)


def test_the_script_makes_rows_of_a_file_of_tasks(tmp_path, capsys):
    (tmp_path / "tasks.jsonl").write_text(shop_task(RaisingShop).to_json())
    write_tool_file(exported_tools(shop_name(RaisingShop)), tmp_path / "tools.yaml")
    paths = {name: str(tmp_path / name) for name in ("tasks.jsonl", "tools.yaml", "rows.parquet")}
    main(["--tasks", paths["tasks.jsonl"], "--tools", paths["tools.yaml"], "--out", paths["rows.parquet"]])
    assert len(rows_of(tmp_path / "rows.parquet")) == 1
    assert "1 rows" in capsys.readouterr().out
