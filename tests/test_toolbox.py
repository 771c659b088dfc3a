"""Toolboxes: functions, a question and a check are an environment; every call is answered."""

import inspect
import re
import sys
import types

import pytest
from doubles_toolbox import Numbers, Overpays, Submits, name_of, question

from agentgym_rl.environments import toolbox as toolbox_module
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.registry import opened
from agentgym_rl.environments.toolbox import MAX_CALLS, Toolbox
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed, Manner, ToolFailed
from agentgym_rl.messages import ToolCall, assistant
from agentgym_rl.policy import ScriptedPolicy
from agentgym_rl.task import Task
from agentgym_rl.tool_calls import render_calls
from agentgym_rl.trajectory import StopReason


def example():
    """The example of the module's docstring as a module, and its task."""
    text = inspect.getdoc(toolbox_module)
    code = re.search(r"\n\n((?:    .*\n|\n)+)", text)[1]
    code = inspect.cleandoc(code).replace("'''", '"""')
    module = types.ModuleType("my_shop")
    exec("from agentgym_rl.environments.toolbox import *\nfrom agentgym_rl.task import Task\n" + code, module.__dict__)
    return module, len([line for line in code.splitlines() if line.strip()])


async def test_the_example_of_the_docstring_is_an_environment(monkeypatch):
    module, lines = example()
    monkeypatch.setitem(sys.modules, "my_shop", module)
    module.Prices.__module__ = "my_shop"
    assert lines <= 12
    said = ['<tool_call>{"name": "price", "arguments": {"item": "apple"}}</tool_call>', "6"]
    async with opened("my_shop:Prices") as environment:
        trajectory = await play(ScriptedPolicy(said), environment, module.task)
        kiwi = [said[0].replace("apple", "kiwi"), "7"]
        wrong = await play(ScriptedPolicy(kiwi), environment, module.task)
    assert [m.content for m in trajectory.messages[1:]] == [
        "What do 3 apples cost?",
        said[0],
        "<tool_response>\n2\n</tool_response>",
        "6",
    ]
    assert '"name": "price", "description": "The price of one item."' in trajectory.messages[0].content
    assert trajectory.success
    assert wrong.turns[0].observation[0].content == "<tool_response>\nKeyError: 'kiwi'\n</tool_response>"
    assert wrong.turns[0].valid
    assert wrong.success is False
    (await check_environment("my_shop:Prices", [module.task])).raise_if_failed()


@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize("box", [Numbers, Submits])
async def test_a_toolbox_keeps_every_rule_of_the_contract(box, isolation):
    tasks = [question(box), question(box, "native", tool_format="native", max_turns=3)]
    (await check_environment(name_of(box), tasks, isolation=isolation)).raise_if_failed()


async def begun(box=Numbers, **arguments):
    environment = box()
    await environment.reset(question(box, **arguments))
    return environment


def hermes(*calls):
    return assistant(render_calls([ToolCall(name, arguments) for name, arguments in calls], "hermes"))


def text(result):
    return "\n".join(message.content for message in result.observation)


async def test_the_calls_of_a_reply_are_carried_out_in_order_and_answered_together():
    environment = await begun()
    result = await environment.step(hermes(("note", {"number": 4}), ("note", {"number": 5}), ("halve", {"number": 5})))
    answers = ["[4]", "[4,5]", "2.5"]
    assert text(result) == "\n".join(f"<tool_response>\n{answer}\n</tool_response>" for answer in answers)
    assert (result.valid, result.reward, result.terminated, result.success) == (True, 0.0, False, None)


async def test_state_is_set_up_anew_in_each_episode_and_belongs_to_one_instance():
    first, second = await begun(), await begun()
    await first.step(hermes(("note", {"number": 4})))
    assert "[5]" in text(await second.step(hermes(("note", {"number": 5}))))
    await first.reset(question(Numbers))
    assert "[6]" in text(await first.step(hermes(("note", {"number": 6}))))


@pytest.mark.parametrize(
    ("call", "answer", "valid"),
    [
        (("ad", {"a": 1}), "There is no tool 'ad'; did you mean 'add'?", False),
        (("add", {"a": 1}), "add was called wrongly: b is missing. It takes: a (integer), b (integer)", False),
        (("erase", {"number": 9}), "9 is not written down; there is: []", True),
        (("note", {"number": 1}), "[1]", True),
        (("erase", {"number": 1}), "1 is not written down; there is: []", True),
        (("blank", {}), "(no output)", True),
    ],
)
async def test_a_wrong_call_is_answered_with_what_was_wrong_and_a_refusal_of_the_tool_is_valid(call, answer, valid):
    result = await (await begun()).step(hermes(call))
    assert text(result) == f"<tool_response>\n{answer}\n</tool_response>"
    assert (result.valid, result.terminated) == (valid, False)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (render_calls([ToolCall("note", {"number": 1})], "hermes") + "<tool_call>{", "call 2 is malformed"),
        (
            render_calls([ToolCall("note", {"number": 1})] * (MAX_CALLS + 1), "hermes"),
            "a reply may have 16 calls; given: 17",
        ),
        ("<think> note(1)", "the reasoning after <think> was not ended"),
    ],
)
async def test_of_a_reply_that_can_not_be_read_nothing_is_carried_out(reply, why):
    environment = await begun()
    result = await environment.step(assistant(reply))
    assert why in text(result)
    assert text(result).endswith(". Nothing was carried out.")
    assert not result.valid
    assert environment.notes == []


async def test_calls_that_a_server_read_are_answered_one_by_one():
    environment = await begun()
    calls = (ToolCall("add", {"a": 1, "b": 2}, "id-1"), ToolCall("ad", {}, "id-2"))
    result = await environment.step(assistant("I add.", calls))
    assert [(m.role, m.tool_call_id, m.content[:19]) for m in result.observation] == [
        ("tool", "id-1", "3"),
        ("tool", "id-2", "There is no tool 'a"),
    ]
    many = tuple(ToolCall("note", {"number": 1}, f"id-{n}") for n in range(MAX_CALLS + 1))
    refused = await environment.step(assistant("", many))
    assert [message.tool_call_id for message in refused.observation] == [call.id for call in many]
    assert environment.notes == []


@pytest.mark.parametrize(("answer", "reward"), [("3", 1.0), ("nearly", 0.5), ("4", 0.0), ("<think>4?</think> 3", 1.0)])
@pytest.mark.parametrize("box", [Numbers, Submits])
async def test_the_answer_ends_the_episode_with_what_the_check_says(box, answer, reward):
    environment = await begun(box)
    if box is Submits:
        answer = answer.rpartition(" ")[2]
        result = await environment.step(hermes(("note", {"number": 1}), ("submit", {"answer": answer}), ("crash", {})))
    else:
        result = await environment.step(assistant(answer))
    assert (result.terminated, result.reward, result.success) == (True, reward, reward == 1.0)
    with pytest.raises(EnvironmentFailed, match="was stepped without an open episode; reset it first"):
        await environment.step(assistant(answer))


async def test_with_a_tool_for_the_answer_other_text_is_refused():
    environment = await begun(Submits)
    result = await environment.step(assistant("3"))
    assert text(result) == "There is no call in this reply; answer with the tool 'submit'."
    assert not result.valid
    result = await environment.step(hermes(("submit", {"anser": "3"})))
    assert "submit takes one argument, answer (string)" in text(result)
    assert not result.valid
    assert not Submits.facts.any_text
    assert "submit" in [tool.name for tool in Submits.tools]


async def test_an_empty_reply_is_no_answer():
    result = await (await begun()).step(assistant("  "))
    assert (text(result), result.valid) == ("The reply is empty; call a tool or answer.", False)


async def test_the_last_turn_is_carried_out_and_cuts_the_episode_off():
    environment = await begun(max_turns=2)
    assert not (await environment.step(assistant(""))).truncated
    result = await environment.step(hermes(("add", {"a": 1, "b": 2})))
    assert (result.truncated, result.terminated, result.success) == (True, False, False)
    assert "3" in text(result)


async def test_an_answer_in_the_last_turn_is_an_end_and_no_cut():
    result = await (await begun(max_turns=1)).step(assistant("3"))
    assert (result.truncated, result.terminated, result.success) == (False, True, True)


async def test_a_tool_that_crashes_is_a_failure_of_the_tool_and_no_reward():
    async with opened(name_of(Numbers)) as environment:
        said = [render_calls([ToolCall("crash")], "hermes")]
        trajectory = await play(ScriptedPolicy(said), environment, question(Numbers))
    assert trajectory.stop is StopReason.FAILED
    assert trajectory.failure.cause == "tool_raised"
    assert "tool 'crash' raised OSError: disk full" in trajectory.failure.message


async def test_a_tool_that_hangs_is_a_failure_by_its_deadline(monkeypatch):
    monkeypatch.setattr(Numbers, "call_seconds", 0.05)
    environment = await begun()
    with pytest.raises(ToolFailed, match="tool 'hang' gave no answer within 0.05 s") as failed:
        await environment.step(hermes(("hang", {})))
    environment.release.set()
    assert failed.value.manner is Manner.TIMED_OUT


async def test_a_failure_of_a_tool_in_a_worker_process_is_still_the_tools():
    async with opened(name_of(Numbers), "process") as environment:
        said = [render_calls([ToolCall("crash")], "hermes")]
        trajectory = await play(ScriptedPolicy(said), environment, question(Numbers), Limits(step_seconds=10))
    assert trajectory.failure.cause == "tool_raised"


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_the_tools_are_told_in_one_way(isolation):
    async with opened(name_of(Numbers), isolation) as environment:
        await environment.reset(question(Numbers, tool_format="react"))
        assert environment.tools == ()
        assert environment.instructions.startswith("Compute.\n\nYou have these tools:\n- note: Write a number down")
        await environment.reset(question(Numbers, tool_format="native"))
        assert environment.tools == Numbers.tools
        assert environment.instructions == "Compute."
    assert [tool.name for tool in Numbers.tools] == ["note", "erase", "blank", "crash", "hang", "add", "halve"]
    assert list(Numbers.tools[0].parameters["properties"]) == ["number"]


async def test_a_check_outside_of_0_to_1_is_a_failure_of_the_environment():
    async with opened(name_of(Overpays)) as environment:
        trajectory = await play(ScriptedPolicy(["3"]), environment, question(Overpays))
    assert trajectory.failure.cause == "environment_raised"
    assert "check must say how good an answer is, from 0 to 1; it said 2.0" in trajectory.failure.message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"question": 3}, "task 't' needs the argument 'question', a text; given: {'question': 3}"),
        ({"max_turns": 0}, "the argument 'max_turns' must be a whole number of at least 1; given: 0"),
        ({"tool_format": "hermess"}, "no tool format 'hermess'; did you mean 'hermes'?"),
    ],
)
async def test_a_task_that_can_not_work_is_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        await begun(**arguments)


def test_two_functions_of_one_name_are_refused_when_the_class_is_made():
    def add(a: int) -> int:
        return a

    with pytest.raises(ConfigurationError, match="2 tools are called 'add'"):

        class Twice(Toolbox):
            functions = (add, add)


async def test_a_task_is_played_by_a_blank_toolbox_too():
    class Asks(Toolbox):
        def check(self, answer, task):
            return answer == "3"

    environment = Asks()
    await environment.reset(Task("t", "x", {"question": "?"}))
    assert environment.instructions == Toolbox.instructions
    assert (await environment.step(assistant("3"))).success
