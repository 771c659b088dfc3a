"""Shapes that fine-tuning files of OpenAI, LLaMA-Factory and TRL have: each is read, and ours end as theirs must."""

from __future__ import annotations

import json

import pytest
from doubles_store import record, store_of

from agentgym_rl.data.chat_files import from_line, to_line
from agentgym_rl.data.preferences import preference_pairs
from agentgym_rl.data.record import Provenance, Record
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message, ToolCall, assistant, system, user
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason, Trajectory, Turn

TASK = Task("t", "shell")
LOOK = ToolCall("look", {"at": "x"}, "c1")
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}


def openai(*messages: dict, **fields: object) -> tuple[Message, ...]:
    return from_line({"messages": list(messages), **fields}, TASK).messages


def sharegpt(*turns: tuple[str, str], **fields: object) -> tuple[Message, ...]:
    said = [{"from": speaker, "value": value} for speaker, value in turns]
    return from_line({"conversations": said, **fields}, TASK).messages


def test_a_reply_of_calls_alone_and_texts_in_parts_are_read_and_tools_are_passed_over():
    parts = [{"type": "text", "text": "A wall."}, {"type": "text", "text": "A door."}]
    asked = {"role": "user", "content": [{"type": "text", "text": "Look."}]}
    called = {"role": "assistant", "tool_calls": [CALL]}
    seen = {"role": "tool", "tool_call_id": "c1", "content": parts}
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    said = {"role": "assistant", "content": "Both."}
    assert openai(asked, called, seen, said, tools=tools, parallel_tool_calls=False) == (
        user("Look."), assistant("", (LOOK,)), Message("tool", "A wall.\nA door.", (), "c1"), assistant("Both."),
    )  # fmt: skip


def test_a_developers_message_is_the_systems_and_a_refusal_is_what_was_said():
    refused = {"role": "assistant", "content": None, "refusal": "No.", "weight": 0}
    assert openai({"role": "developer", "content": "Be kind."}, refused) == (system("Be kind."), assistant("No."))


def test_calls_are_read_as_they_once_were_written():
    called = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": '{"at": "x"}'}}
    seen = {"role": "function", "name": "look", "content": "A wall."}
    assert openai({"role": "user", "content": "Look."}, called, seen) == (
        user("Look."),
        assistant("", (ToolCall("look", {"at": "x"}, "call_1"),)),
        Message("tool", "A wall.", (), "call_1"),
    )


@pytest.mark.parametrize("part", [{"type": "image_url", "image_url": {"url": "u"}}, "text", {"type": "text"}])
def test_a_part_that_is_no_text_is_named(part):
    with pytest.raises(DataError, match="a part of a message must be text; given: "):
        openai({"role": "user", "content": [part]}, {"role": "assistant", "content": "a"})


def test_a_system_prompt_beside_the_turns_comes_first():
    assert sharegpt(("human", "Hi."), ("gpt", "Hello."), system="Be kind.", tools="[]") == (
        system("Be kind."), user("Hi."), assistant("Hello."),
    )  # fmt: skip
    assert sharegpt(("human", "Hi."), ("chatgpt", "Hello."), system="") == (user("Hi."), assistant("Hello."))
    assert sharegpt(("system", "Be."), ("gpt", "Hello."), system="Be kind.") == (system("Be."), assistant("Hello."))


def test_calls_without_an_id_get_one_and_are_answered_in_order():
    two = json.dumps([{"name": "look", "arguments": {}}, {"name": "go", "arguments": {}}])
    seen = [("observation", "1"), ("observation", "2"), ("observation", "3")]
    _, called, *answers, again = sharegpt(("human", "Hi."), ("function_call", two), *seen, ("function_call", two))
    assert [call.id for call in called.tool_calls] == ["call_1", "call_2"]
    assert [answer.tool_call_id for answer in answers] == ["call_1", "call_2", None]
    assert [call.id for call in again.tool_calls] == ["call_3", "call_4"]


def test_an_answer_keeps_its_id_though_its_call_has_none():
    called = {"role": "assistant", "tool_calls": [{**CALL, "id": None}]}
    answer = {"role": "tool", "content": "", "tool_call_id": "x"}
    assert openai({"role": "user", "content": "Look."}, called, answer)[-1].tool_call_id == "x"


def test_calls_that_have_ids_keep_them_and_are_not_answered_without():
    seen = {"role": "tool", "content": "A wall."}
    _, called, answer = openai({"role": "user", "content": "Look."}, {"role": "assistant", "tool_calls": [CALL]}, seen)
    assert (called.tool_calls, answer.tool_call_id) == ((LOOK,), None)


def test_reasoning_before_a_call_and_arguments_as_text_are_read():
    written = '<think>\nhm\n</think>\n\n{"name": "look", "arguments": "{\\"at\\": \\"x\\"}"}'
    assert sharegpt(("human", "Hi."), ("function_call", written), ("function_response", "A wall.")) == (
        user("Hi."),
        assistant("<think>\nhm\n</think>\n\n", (ToolCall("look", {"at": "x"}, "call_1"),)),
        Message("tool", "A wall.", (), "call_1"),
    )


@pytest.mark.parametrize("arguments", ["[1]", "{", "3"])
def test_arguments_that_are_no_object_are_named(arguments):
    with pytest.raises(DataError, match="a function_call is JSON with `name` and `arguments`"):
        sharegpt(("function_call", json.dumps({"name": "look", "arguments": arguments})))


@pytest.mark.parametrize("layout", ["openai", "sharegpt"])
def test_a_conversation_ends_with_the_last_reply(layout):
    turns = (Turn(Reply(assistant("a")), (user("b"),), 0.0), Turn(Reply(assistant("c")), (user("d"), user("e")), 1.0))
    line = to_line(Trajectory(TASK, (user("o"),), turns, StopReason.TERMINATED), layout)
    assert [message.content for message in from_line(line, TASK).messages] == ["o", "a", "b", "c"]
    without = Trajectory(TASK, (user("o"),), (*turns[:1], Turn(Reply(assistant("c")), (), 0.0)), StopReason.TERMINATED)
    assert to_line(without, layout) == line


@pytest.mark.parametrize("opening", [(), (system("s"),), (user("u"), assistant("a"))])
def test_a_pair_whose_prompt_nobody_answers_is_none(tmp_path, opening):
    def episode(said: str, solved: bool) -> Record:
        turns = (Turn(Reply(assistant(said)), (), float(solved)),)
        return Record(said, Trajectory(TASK, opening, turns, StopReason.TERMINATED, solved), Provenance("collect"))

    assert list(preference_pairs(store_of(tmp_path / "s", episode("a", True), episode("b", False)))) == [None]


def test_a_pair_whose_prompt_ends_with_the_user_or_a_tool_is_one(tmp_path):
    store = store_of(tmp_path / "s", record("lost", "a", 0.0, success=False), record("solved", "b", 1.0))
    (pair,) = preference_pairs(store)
    assert (pair["prompt"][-1]["role"], pair["chosen"][0]["content"]) == ("user", "b")
    looked = Turn(Reply(assistant("", (LOOK,))), (Message("tool", "A wall.", (), "c1"),), 0.0)
    told = [
        Record(said, Trajectory(TASK, (user("u"),), (looked, end), StopReason.TERMINATED, said == "a"), Provenance("c"))
        for said, end in ((said, Turn(Reply(assistant(said)), (), 0.0)) for said in "ab")
    ]
    (pair,) = preference_pairs(store_of(tmp_path / "t", *told))
    assert (pair["prompt"][-1]["role"], pair["chosen"][0]["content"]) == ("tool", "a")
