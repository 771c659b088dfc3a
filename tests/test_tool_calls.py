"""Tool calls in text: what is written is read again, nothing is dropped in silence, and no text raises."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import json_values

from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.messages import ToolCall, assistant
from agentgym_rl.tool_calls import Parsed, parse, parse_message, render_calls, render_result, render_tools
from agentgym_rl.tools import Tool, ToolSchema

JSON_FORMATS = ["hermes", "llama-3", "react"]
FORMATS = [*JSON_FORMATS, "qwen3-coder"]

line_names = st.text(min_size=1).filter(lambda name: name == name.strip() and "\n" not in name and ">" not in name)
any_call = st.builds(ToolCall, name=line_names, arguments=st.dictionaries(st.text(), json_values, max_size=3))


@pytest.mark.parametrize("format", JSON_FORMATS)
@given(calls=st.lists(any_call, min_size=1, max_size=3).map(tuple))
def test_calls_that_are_written_as_json_are_read_again(format, calls):
    assert parse(render_calls(calls, format), format) == Parsed("", calls)


def schema_of(value):
    """A schema that lets a value be what it is, and text only if it is text."""
    kinds = {str: "string", bool: "boolean", int: "integer", list: "array", dict: "object", type(None): "null"}
    return {"type": kinds[type(value)]}


@given(
    name=line_names,
    arguments=st.dictionaries(line_names, json_values, max_size=3).filter(
        lambda arguments: "</parameter>" not in str(arguments) and "</think>" not in str(arguments)
    ),
)
def test_qwen3_coder_values_are_read_again_by_their_schemas(name, arguments):
    properties = {key: schema_of(value) for key, value in arguments.items()}
    tool = ToolSchema(name, "", {"type": "object", "properties": properties})
    calls = (ToolCall(name, arguments), ToolCall(name, {}))
    assert parse(render_calls(calls, "qwen3-coder"), "qwen3-coder", [tool]) == Parsed("", calls)


PIECES = ["<tool_call>", "</tool_call>", "<function=f>", "<parameter=a>", "</parameter>", "</function>"]
PIECES += ['{"name":"f",', '"arguments":{', '"parameters":{', "}", "[", '"', ";", "NaN", "<|python_tag|>"]
PIECES += ["Action:", "Action Input:", "Observation:", "Final Answer:", "<think>", "</think>", "f", "\n", "\ud800"]


@pytest.mark.parametrize("format", [*FORMATS, "native"])
@given(text=st.text() | st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_no_text_raises_and_a_call_that_was_begun_is_read_or_reported(format, text):
    parsed = parse(text, format)
    if format in ("hermes", "qwen3-coder") and "<tool_call>" in text.rpartition("</think>")[2]:
        assert parsed.calls or parsed.problem


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>" * 300_000,
        '{"name": ' * 300_000,
        '{"name": ' + "9" * 3_000_000,
        "[" * 3_000_000,
        '<tool_call>{"name": "f", "arguments": ' + '{"a": ' * 500_000,
        "<tool_call><function=f>" + "<parameter=a>" * 200_000,
        "Action: f\nAction Input: " + "[" * 3_000_000,
        "Action:" + " " * 3_000_000 + "x",
        "\n" * 3_000_000,
    ],
    ids=lambda text: text[:30],
)
def test_megabytes_of_openings_are_read_in_one_pass(format, text):
    parsed = parse(text, format)
    assert parsed.calls == ()
    assert len(parsed.problem) < 600


# What each form looks like in a reply, with text around it.
REPLIES = {
    "hermes": 'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>',
    "qwen3-coder": "I add.\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n"
    "<parameter=b>\n2\n</parameter>\n</function>\n</tool_call>",
    "llama-3": 'I add.\n{"name": "add", "parameters": {"a": 1, "b": 2}}',
    "react": 'I add.\nAction: add\nAction Input: {"a": 1, "b": 2}',
}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADD = Tool.from_function(add)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "thought", ["<think>\nFirst: <tool_call> Action: {\n</think>\n", "left open by the template</think>", ""]
)
def test_a_call_is_read_behind_text_and_reasoning(format, thought):
    parsed = parse(thought + REPLIES[format], format, [ADD])
    assert parsed[:3] == ("I add.", (ToolCall("add", {"a": 1, "b": 2}),), "")
    assert parsed.reasoning in ("First: <tool_call> Action: {", "left open by the template", "")


@pytest.mark.parametrize("format", [*FORMATS, "native"])
def test_text_without_a_call_is_an_answer(format):
    assert parse(" It is 3. ", format) == Parsed("It is 3.")


@pytest.mark.parametrize("format", FORMATS)
def test_reasoning_that_was_not_ended_is_no_answer(format):
    parsed = parse("<think> it is 3", format)
    assert (parsed.content, parsed.calls) == ("", ())
    assert parsed.problem == "the reasoning after <think> was not ended by </think>"


@pytest.mark.parametrize(
    ("format", "text", "problem"),
    [
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1}', "no valid JSON (Expecting ',' delimiter)"),
        ("hermes", '<tool_call>{"name": "add", "arguments": {}}', "</tool_call> is missing at the end of the text"),
        ("hermes", '<tool_call>{"name": "add", "arguments": {}} and so on', "</tool_call> is missing at 'and so on'"),
        ("hermes", '<tool_call>{"name": "add"}</tool_call>', "the call of 'add' needs \"arguments\", an object"),
        ("hermes", '<tool_call>["add"]</tool_call>', 'a call is an object with a "name"'),
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>', "NaN is no JSON"),
        ("hermes", '{"name": "add"}</tool_call>', "</tool_call> stands without <tool_call>"),
        ("qwen3-coder", "<tool_call>add</tool_call>", "<function=...> is missing at 'add</tool_call>'"),
        ("qwen3-coder", "<tool_call><function=add><parameter=a>1", "</parameter> is missing after <parameter=a>"),
        ("qwen3-coder", "<tool_call><function=add>1", "</function> is missing at '1'"),
        ("qwen3-coder", "<tool_call><function=add></function>", "</tool_call> is missing"),
        (
            "qwen3-coder",
            "<tool_call><function=add><parameter=a>1</parameter><parameter=a>2</parameter></function></tool_call>",
            "the parameter 'a' stands there twice",
        ),
        (
            "qwen3-coder",
            "<tool_call><function=add><parameter=a>one</parameter></function></tool_call>",
            "the value of 'a' is no valid JSON (Expecting value)",
        ),
        (
            "qwen3-coder",
            "<tool_call><function=add><parameter=a>1 or 2</parameter></function></tool_call>",
            "the value of 'a' goes on behind its JSON: 'or 2'",
        ),
        ("llama-3", '{"name": "add", "parameters": {', "no valid JSON"),
        ("llama-3", '<|python_tag|>{"name": "add"}', "the call of 'add' needs \"parameters\", an object"),
        ("react", "Action: add", '"Action Input:" is missing at the end of the text'),
        ("react", "Action:\nAction Input: {}", '"Action:" names no tool'),
        ("react", "Action: add\nAction Input: [1, 2]", "the input must be a JSON object; given: '[1, 2]'"),
        ("react", "Action: add\nAction Input: 1 and 2", "the input must be a JSON object; given: '1 and 2'"),
        ("react", "Action: add\nAction Input: one", "no valid JSON (Expecting value) at 'one'"),
    ],
)
def test_a_malformed_call_is_told_with_the_form_that_is_allowed(format, text, problem):
    parsed = parse(text, format, [ADD])
    assert parsed.calls == ()
    assert problem in parsed.problem
    assert "the form is" in parsed.problem


@pytest.mark.parametrize("format", FORMATS)
def test_what_was_read_before_a_malformed_call_is_kept(format):
    broken = {
        "hermes": "<tool_call>{",
        "qwen3-coder": "<tool_call>",
        "llama-3": '\n{"name": 1}',
        "react": "\nAction: x",
    }
    parsed = parse(REPLIES[format] + broken[format], format, [ADD])
    assert parsed[:2] == ("I add.", (ToolCall("add", {"a": 1, "b": 2}),))
    assert "call 2 is malformed" in parsed.problem


def test_llama_calls_are_separated_by_semicolons_or_lines_and_other_json_is_an_answer():
    one, two = '{"name": "f", "parameters": {}}', '{"type": "function", "name": "g", "arguments": {"x": ";"}}'
    calls = (ToolCall("f", {}), ToolCall("g", {"x": ";"}))
    for between in (";", "; ", "\n", ";\n", " "):
        assert parse(one + between + two, "llama-3") == Parsed("", calls)
    assert parse('{"result": 3}', "llama-3") == Parsed('{"result": 3}')


def test_a_react_answer_is_what_follows_its_mark():
    assert parse("Thought: easy.\nFinal Answer: it is 3.\nTruly.", "react").content == "it is 3.\nTruly."


def test_an_observation_that_a_react_reply_makes_up_is_told_and_not_read():
    text = REPLIES["react"] + "\nObservation: 3\nAction: add\nAction Input: {}"
    parsed = parse(text, "react", [ADD])
    assert parsed.calls == (ToolCall("add", {"a": 1, "b": 2}),)
    assert "observations come from the environment" in parsed.problem


def search(query: str) -> str:
    """Search."""
    return query


def double(number: int) -> int:
    """Double."""
    return 2 * number


# The line behind "Action Input:" -> what the only parameter gets.
@pytest.mark.parametrize(
    ("tool", "line", "value"),
    [
        (search, "New York", "New York"),
        (search, '"New York"', "New York"),
        (search, "2024 elections", "2024 elections"),
        (search, "2024", "2024"),
        (search, '{"query": "New York"}', "New York"),
        (double, "4", 4),
        (double, "four", "four"),
    ],
)
def test_the_only_parameter_of_a_react_tool_may_be_bare(tool, line, value):
    text = f"Action: {tool.__name__}\nAction Input: {line}\n"
    [call] = parse(text, "react", [Tool.from_function(tool)]).calls
    assert list(call.arguments.values()) == [value]


# Text with line breaks at both ends, and a number in a parameter that takes both text and numbers.
def test_a_qwen3_coder_value_stays_text_where_text_is_allowed():
    schema = {"properties": {"a": {"type": "string"}, "b": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}}
    schema["properties"] |= {"c": {"enum": ["1", "2"]}, "d": {"enum": [1, 2]}, "e": {"const": 3}}
    call = ToolCall("f", {"a": "\n1\n\n", "b": "2", "c": "1", "d": 2, "e": 3, "unknown": "4"})
    assert parse(render_calls([call], "qwen3-coder"), "qwen3-coder", [ToolSchema("f", "", schema)]).calls == (call,)


@pytest.mark.parametrize(
    ("format", "call", "message"),
    [
        ("qwen3-coder", ToolCall("f", {"a": "x</parameter>"}), "a value may not hold </parameter> or </think>"),
        ("qwen3-coder", ToolCall("f>", {}), "can't write the name 'f>'"),
        ("react", ToolCall("f\n", {}), "can't write the name"),
        ("hermes", ToolCall("f", {"a": {1, 2}}), "must be JSON values"),
        ("llama-3", ToolCall("f", {"a": float("nan")}), "must be JSON values"),
    ],
)
def test_a_call_that_a_form_can_not_write_is_refused(format, call, message):
    with pytest.raises(DataError, match=message):
        render_calls([call], format)


@pytest.mark.parametrize("format", FORMATS)
def test_the_prompt_shows_every_tool_with_its_schema_and_the_form(format):
    prompt = render_tools([ADD, Tool.from_function(search)], format)
    assert "Add two numbers." in prompt
    shown = json.dumps(ADD.parameters)
    assert json.dumps(json.loads(shown)) in prompt or '"integer"' in prompt
    form = {
        "hermes": "<tool_call>",
        "qwen3-coder": "<function=",
        "llama-3": '"parameters": <',
        "react": "Action Input:",
    }
    assert form[format] in prompt
    assert render_tools([], format) == ""


def test_a_message_that_has_calls_goes_through_as_it_is():
    call = ToolCall("add", {"a": 1}, "id-7")
    message = assistant("<tool_call>", (call,))
    assert parse_message(message, "hermes") == Parsed("<tool_call>", (call,))
    assert parse_message(assistant(REPLIES["hermes"]), "hermes").calls == (ToolCall("add", {"a": 1, "b": 2}),)


def test_native_calls_are_no_text():
    assert parse("<tool_call>", "native") == Parsed("<tool_call>")
    assert render_tools([ADD], "native") == ""
    with pytest.raises(ConfigurationError, match="belongs into a message's tool_calls"):
        render_calls([ToolCall("add")], "native")


def test_a_result_is_written_as_the_form_has_it():
    assert render_result("3", "hermes") == render_result("3", "qwen3-coder") == "<tool_response>\n3\n</tool_response>"
    assert render_result("3", "react") == "Observation: 3"
    assert render_result("3", "llama-3") == render_result("3", "native") == "3"


def test_an_unknown_format_is_refused_by_name():
    with pytest.raises(ConfigurationError, match="no tool format 'hermess'; did you mean 'hermes'?"):
        parse("", "hermess")
