"""Messages survive the chat format, and what is no message is refused by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import json_values

from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message, ToolCall, assistant, system, user

tool_calls = st.builds(
    ToolCall, name=st.text(min_size=1), arguments=st.dictionaries(st.text(), json_values, max_size=3), id=st.text()
)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=st.text(),
    tool_calls=st.lists(tool_calls, max_size=2).map(tuple),
    tool_call_id=st.none() | st.text(),
)


@given(messages)
def test_a_message_survives_the_chat_format(message):
    assert Message.from_chat(message.to_chat()) == message


def test_the_chat_format_leaves_out_what_a_message_has_not():
    assert system("s").to_chat() == {"role": "system", "content": "s"}
    assert user("u").to_chat() == {"role": "user", "content": "u"}
    call = ToolCall("add", {"a": 1}, "id-1")
    assert assistant("", (call,)).to_chat() == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "id-1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}],
    }
    assert Message("tool", "2", tool_call_id="id-1").to_chat()["tool_call_id"] == "id-1"


def test_a_servers_tool_call_is_read_with_its_arguments_as_text_and_no_content():
    function = {"name": "add", "arguments": '{"a": 1}'}
    read = Message.from_chat({"role": "assistant", "content": None, "tool_calls": [{"id": "i", "function": function}]})
    assert read == assistant("", (ToolCall("add", {"a": 1}, "i"),))


@pytest.mark.parametrize(
    ("chat", "message"),
    [
        ({"role": "human", "content": ""}, "role was 'human'; allowed: system, user, assistant, tool"),
        ({"content": ""}, "role was None"),
        ({"role": "user", "content": None}, "content must be text; the user message has NoneType"),
        ({"role": "user", "content": [{"type": "text"}]}, "the user message has list"),
        ({"role": "assistant", "content": "", "tool_calls": [{"name": "add"}]}, "needs function.name"),
        ({"role": "assistant", "content": "", "tool_calls": ["add"]}, "needs function.name"),
        (
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": "{"}}]},
            "needs function.name",
        ),
        (
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": "[1]"}}]},
            r"arguments of tool call 'add' must be an object; given: \[1\]",
        ),
    ],
)
def test_what_is_no_message_is_refused_by_name(chat, message):
    with pytest.raises(DataError, match=message):
        Message.from_chat(chat)
