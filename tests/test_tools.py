"""Tools: the schema says what the signature says, and whatever arguments a policy gives, the call answers."""

import asyncio
import enum
import json
import threading
from dataclasses import dataclass
from typing import Annotated, Literal

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import json_values
from typing_extensions import TypedDict  # pydantic wants this one below Python 3.12

from agentgym_rl.errors import ConfigurationError, Manner, ToolFailed
from agentgym_rl.inline_schema import inlined
from agentgym_rl.tool_docstring import read_docstring
from agentgym_rl.tools import Tool, ToolError, ToolResult, require_unique


class Unit(enum.Enum):
    CELSIUS = "C"
    FAHRENHEIT = "F"


class Place(pydantic.BaseModel):
    name: str
    title: str = ""
    near: list["Point"] = []


@dataclass
class Point:
    north: float
    east: float = 0.0


class Options(TypedDict, total=False):
    days: int


def weather(
    place: Place,
    schema: str,
    unit: Unit = Unit.CELSIUS,
    model: Literal["fast", "good"] = "fast",
    hours: Annotated[list[int], pydantic.Field(max_length=2)] = [6, 18],  # noqa: B006  # never changed
    options: Options | None = None,
) -> dict:
    """Forecast the weather.

    It asks a service.

    Args:
        place (Place): where;
            on earth.
        unit: of the temperature.

    Returns:
        A forecast.
    """
    return {"place": place, "unit": unit, "hours": hours, "schema": schema, "model": model, "options": options}


POINT = {
    "type": "object",
    "properties": {"north": {"type": "number"}, "east": {"type": "number", "default": 0.0}},
    "required": ["north"],
}


OPTIONS = {"type": "object", "properties": {"days": {"type": "integer"}}, "additionalProperties": False}


def test_the_schema_says_all_that_the_signature_and_the_docstring_say():
    tool = Tool.from_function(weather)
    assert (tool.name, tool.description) == ("weather", "Forecast the weather.\n\nIt asks a service.")
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "place": {
                "type": "object",
                "description": "where; on earth.",
                "properties": {
                    "name": {"type": "string"},
                    "title": {"type": "string", "default": ""},
                    "near": {"type": "array", "items": POINT, "default": []},
                },
                "required": ["name"],
            },
            "schema": {"type": "string"},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C", "description": "of the temperature."},
            "model": {"type": "string", "enum": ["fast", "good"], "default": "fast"},
            "hours": {"type": "array", "items": {"type": "integer"}, "maxItems": 2, "default": [6, 18]},
            "options": {
                "anyOf": [OPTIONS, {"type": "null"}],
                "default": None,
            },
        },
        "required": ["place", "schema"],
        "additionalProperties": False,
    }
    assert tool.to_chat() == {
        "type": "function",
        "function": {"name": "weather", "description": tool.description, "parameters": tool.parameters},
    }
    assert json.loads(json.dumps(tool.to_chat())) == tool.to_chat()


async def test_the_function_gets_the_types_that_it_asks_for_and_its_own_defaults():
    given = {"place": {"name": "Rome", "near": [{"north": "41.9"}]}, "schema": "s", "unit": "F"}
    assert json.loads((await Tool.from_function(weather).call(given)).text) == {
        "place": {"name": "Rome", "title": "", "near": [{"north": 41.9, "east": 0.0}]},
        "unit": "F",
        "hours": [6, 18],
        "schema": "s",
        "model": "fast",
        "options": None,
    }


def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


ADD = Tool.from_function(add)
ALLOWED = "It takes: a (integer), b (integer, optional)"


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({}, "a is missing"),
        ({"a": 1, "c": 2}, "there is no parameter 'c' (known: a, b)"),
        ({"a": 1, "bb": 2}, "there is no parameter 'bb' (did you mean 'b'?)"),
        ({"a": "one"}, "a: Input should be a valid integer, unable to parse string as an integer; given: 'one'"),
        ({"a": None}, "a: Input should be a valid integer; given: None"),
        ([1], "the arguments must be an object; given: [1]"),
        ("a=1", "the arguments must be an object; given: 'a=1'"),
    ],
)
async def test_a_wrong_call_is_answered_with_what_was_wrong_given_and_allowed(arguments, wrong):
    assert await ADD.call(arguments) == ToolResult(
        f"add was called wrongly: {wrong}. {ALLOWED}", is_error=True, is_wrong_call=True
    )


async def test_what_is_wrong_inside_of_an_argument_is_named_by_its_place():
    result = await Tool.from_function(weather).call({"place": {"near": [{}]}, "schema": "s", "hours": [1, 2, 3]})
    for wrong in ("place.name is missing", "place.near.0.north is missing", "hours: List should have at most 2 items"):
        assert wrong in result.text
    assert "place (object with name, title, near), schema (string), unit (one of 'C', 'F', optional)" in result.text
    assert "hours (array of integer, optional), options (object with days or null, optional)" in result.text


async def test_the_answer_to_a_megabyte_of_nonsense_is_short():
    for arguments in ({"a": "x" * 10**6}, {"x" * 10**6: 1}, {str(n): n for n in range(10**4)}, {"a": [[[[]]] * 10**5]}):
        result = await ADD.call(arguments)
        assert result.is_error
        assert len(result.text) < 1000


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]) | st.text(), json_values | st.floats(), max_size=3))
def test_whatever_is_given_the_call_answers(arguments):
    result = asyncio.run(ADD.call(arguments))
    assert isinstance(result, ToolResult)
    assert result.is_error == result.text.startswith("add was called wrongly: ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, "done"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (Point(1, 2), '{"north":1,"east":2}'),
    ],
)
async def test_what_the_function_returns_is_the_result_s_text(value, text):
    def give():
        return value

    assert await Tool.from_function(give).call({}) == ToolResult(text)


async def test_a_function_may_return_a_result_of_its_own():
    def refuse() -> ToolResult:
        return ToolResult("closed on Sundays", is_error=True)

    assert await Tool.from_function(refuse).call({}) == ToolResult("closed on Sundays", is_error=True)


async def test_an_ordinary_function_runs_off_the_event_loop_and_an_async_one_on_it():
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    async def where_async() -> bool:
        return where()

    assert (await Tool.from_function(where).call({})).text == "false"
    assert (await Tool.from_function(where_async).call({})).text == "true"


async def test_a_bound_method_is_a_tool_of_its_object():
    class Counter:
        count = 0

        def increase(self, by: int) -> int:
            self.count += by
            return self.count

    tool = Tool.from_function(Counter().increase)
    assert [(await tool.call({"by": 2})).text for _ in range(2)] == ["2", "4"]
    assert list(tool.parameters["properties"]) == ["by"]


class Shop:
    def __init__(self, error):
        self.error = error

    def buy(self, item: str) -> str:
        raise self.error

    async def buy_async(self, item: str) -> str:
        raise self.error


@pytest.mark.parametrize("method", ["buy", "buy_async"])
async def test_what_a_tool_refuses_on_purpose_is_a_result(method):
    tool = Tool.from_function(getattr(Shop(ToolError("no such item")), method))
    assert await tool.call({"item": "x"}) == ToolResult("no such item", is_error=True)


@pytest.mark.parametrize("method", ["buy", "buy_async"])
async def test_an_expected_exception_is_a_result_and_any_other_is_a_failure(method):
    tool = Tool.from_function(getattr(Shop(KeyError("x")), method), expected=(LookupError,))
    assert await tool.call({"item": "x"}) == ToolResult("KeyError: 'x'", is_error=True)
    tool = Tool.from_function(getattr(Shop(OSError("disk full")), method), "buy", expected=(LookupError,))
    with pytest.raises(ToolFailed, match="tool 'buy' raised OSError: disk full") as failed:
        await tool.call({"item": "x"})
    assert failed.value.cause_name == "tool_raised"


async def test_a_tool_that_wants_to_end_the_program_is_a_failure():
    with pytest.raises(ToolFailed, match="it raised SystemExit: 3"):
        await Tool.from_function(Shop(SystemExit(3)).buy).call({"item": "x"})


async def test_a_late_answer_is_a_failure_of_the_tool():
    release = threading.Event()

    def wait() -> str:
        release.wait(10)
        return "late"

    async def wait_async() -> str:
        await asyncio.Event().wait()
        return "never"

    for function in (wait, wait_async):
        with pytest.raises(ToolFailed, match=f"tool '{function.__name__}' gave no answer within 0.05 s") as failed:
            await Tool.from_function(function).call({}, timeout_seconds=0.05)
        assert failed.value.manner is Manner.TIMED_OUT
    release.set()


async def test_no_thread_outlives_its_call():
    await ADD.call({"a": 1})
    for thread in threading.enumerate():
        if thread.name == "tool add":
            thread.join(5)
            assert not thread.is_alive()


def untyped(a):
    pass


def unnamed(*a: int):
    pass


def unknown(a: "Unknown"):  # noqa: F821  # that it is unknown is the point
    pass


def no_json(a: threading.Event):
    pass


class Tree(pydantic.BaseModel):
    children: list["Tree"]


def recursive(tree: Tree):
    pass


def misdescribed(number: int):
    """Do.

    Args:
        numbr: to do.
    """


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (untyped, "the parameter 'a' of tool 'untyped' needs a type hint"),
        (unnamed, r"every parameter of tool 'unnamed' must have a name; given: \*a: int"),
        (unknown, "the type hints of tool 'unknown' can't be read: name 'Unknown' is not defined"),
        (no_json, "the parameters of tool 'no_json' have no JSON schema"),
        (recursive, r"the schema of tool 'recursive' can't be written out: #/\$defs/Tree contains itself"),
        (misdescribed, "tool 'misdescribed' describes 'numbr', which is no parameter of it; did you mean 'number'?"),
    ],
)
def test_a_function_that_can_be_no_tool_is_refused(function, message):
    with pytest.raises(ConfigurationError, match=message):
        Tool.from_function(function)


def test_two_tools_of_one_name_are_refused():
    require_unique(["add", "sub"])
    with pytest.raises(ConfigurationError, match="2 tools are called 'add'"):
        require_unique(["add", "sub", "add"])


# What is called like a keyword of JSON schema is a name among properties, and data among defaults.
def test_references_are_replaced_where_they_are_references():
    schema = {
        "title": "Arguments",
        "definitions": {"Point": {"title": "Point", "type": "array", "items": {"$ref": "#/definitions/Number"}}}
        | {"Number": {"type": "number"}},
        "properties": {
            "$ref": {"$ref": "#/definitions/Point", "description": "where"},
            "title": {"type": "string", "default": {"$ref": "#/definitions/Point", "title": "kept"}},
        },
    }
    assert inlined(schema, "go") == {
        "properties": {
            "$ref": {"type": "array", "items": {"type": "number"}, "description": "where"},
            "title": {"type": "string", "default": {"$ref": "#/definitions/Point", "title": "kept"}},
        }
    }
    with pytest.raises(ConfigurationError, match="'go' can't be written out: #/definitions/Line is not defined in it"):
        inlined({"properties": {"a": {"$ref": "#/definitions/Line"}}}, "go")


@pytest.mark.parametrize(
    ("text", "description", "arguments"),
    [
        ("", "", {}),
        ("Go.", "Go.", {}),
        (
            "Go.\n\nArgs:\n    a: one.\n\n    b: two\n        lines: of it.\nReturns:\n    c: no argument.",
            "Go.",
            {"a": "one.", "b": "two lines: of it."},
        ),
        ("Arguments:\n  a (int, optional): one.\n", "", {"a": "one."}),
        ("Go: there.\nNote:\n    a: no argument.", "Go: there.", {}),
    ],
)
def test_a_docstring_is_read_section_by_section(text, description, arguments):
    assert read_docstring(text) == (description, arguments)
