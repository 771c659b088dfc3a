"""ToolBench on a loopback server: the protocol to the letter, each fault as its typed failure, cache and verdicts."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from doubles_agentgym import http, running
from doubles_toolbench import HEALTH, HEALTH_NAME, SEARCH, SEARCH_NAME, Virtual, answering, call, finish, task
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments import registry
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.toolbench import server
from agentgym_rl.environments.toolbench.answers import Answer, AnswerFolder
from agentgym_rl.environments.toolbench.apis import apis_of, standard_name
from agentgym_rl.environments.toolbench.environment import KEY_VARIABLE, ToolBench
from agentgym_rl.episode import play
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed, JudgeFailed, ToolFailed
from agentgym_rl.messages import Message, ToolCall, assistant
from agentgym_rl.policy import ScriptedPolicy
from data_preprocess import toolbench as data_set

QUERIES_VARIABLE = "OPENMANUS_TOOLBENCH_QUERIES"
"""Names the folder with StableToolBench's query files."""
GOOD = http(b'{"error": "", "response": "here"}')


@pytest.fixture(scope="module")
def served():
    virtual = Virtual()
    with running(virtual.app) as address:
        virtual.address = address
        yield virtual


@pytest.fixture
def virtual(served):
    """The server, and what it was asked in this test."""
    served.requests.clear()
    return served


@pytest.fixture
async def box():
    async with registry.opened("toolbench") as made:
        yield made


async def played(box, given_task, *replies: str):
    """The result of each reply."""
    await box.reset(given_task)
    return [await box.step(assistant(reply)) for reply in replies]


def seen(result) -> str:
    return "\n".join(message.content for message in result.observation)


# ---- names and schemas


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Pack & Send", "pack_send"),
        ("/api/Tracking/", "api_tracking"),
        ("168predict VIP Football", "get_168predict_vip_football"),
        ("__x__", "x"),
        ("天气 API", "天气_api"),
        ("!?", ""),
    ],
)
def test_names_are_those_that_the_server_looks_answers_up_by(given, name):
    assert standard_name(given) == name


def test_a_function_shows_types_descriptions_and_examples_and_which_arguments_are_needed():
    (api,) = apis_of([SEARCH])
    assert (api.category, api.tool_name, api.api_name) == ("Data", "theclique", "transfermarkt_search")
    assert api.schema.name == SEARCH_NAME
    assert api.schema.description == "Transfermarkt search of TheClique: Search by name"
    assert api.schema.parameters == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "whom", "examples": ["messi"]},
            "is_from": {"type": "number"},  # `from` can't be an argument's name in Python
        },
        "required": ["name"],
    }


@pytest.mark.parametrize(
    ("given", "type"),
    [
        ("string", "string"),
        ("BOOLEAN", "boolean"),
        ("ARRAY", "array"),
        ("ENUM", "string"),
        ("DATE (YYYY-MM-DD)", "string"),
    ],
)
def test_types_that_json_schema_does_not_have_are_text(given, type):
    parameter = {"name": "x", "type": given, "description": "", "default": ""}
    (api,) = apis_of([{**SEARCH, "required_parameters": [parameter], "optional_parameters": [parameter]}])
    assert api.schema.parameters["properties"] == {"x": {"type": type}}
    assert api.schema.parameters["required"] == ["x"]  # named twice, needed once


def test_an_api_that_stands_there_twice_is_one_and_long_names_that_are_cut_alike_stay_apart():
    rows = [{**SEARCH, "api_name": "a" * 70 + end} for end in ("", "b", "c")]
    names = [api.schema.name for api in apis_of([*rows, rows[0]])]
    assert names == ["a" * 64, "a" * 62 + "_2", "a" * 62 + "_3"]


NAMES = st.text(min_size=1, max_size=90).filter(standard_name)


@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=6))
def test_functions_of_a_query_have_names_of_their_own_that_servers_take(pairs):
    apis = apis_of([{**SEARCH, "tool_name": tool, "api_name": name} for tool, name in pairs])
    names = [api.schema.name for api in apis]
    assert len(set(names)) == len(names)
    assert all(0 < len(name) <= 64 for name in names)


# ---- the protocol


async def test_a_call_is_one_request_with_the_fields_that_the_server_asks_for(box, virtual, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "my-key")
    (result,) = await played(box, task(virtual.address, strip="filter"), call(SEARCH_NAME, name="messi"))
    assert virtual.requests == [
        {
            "category": "Data",
            "tool_name": "theclique",
            "api_name": "transfermarkt_search",
            "tool_input": '{"name": "messi"}',
            "strip": "filter",
            "toolbench_key": "my-key",
        }
    ]
    said = '{"error": "", "response": {"Players": ["Messi 28003"]}}'
    assert seen(result) == f"<tool_response>\n{said}\n</tool_response>"
    assert (result.valid, result.reward, result.info) == (True, 0.0, {"calls": 1, "calls_with_result": 1})


async def test_an_address_may_name_the_route_itself(box, virtual):
    await played(box, task(f"{virtual.address}/virtual/"), call(HEALTH_NAME))
    assert len(virtual.requests) == 1


async def test_an_error_that_an_api_answers_is_an_observation(box, virtual):
    (result,) = await played(box, task(virtual.address), call(HEALTH_NAME))
    assert '{"error": "Too many requests error...", "response": ""}' in seen(result)
    assert result.valid
    assert result.info == {"calls": 1, "calls_with_result": 0}


async def test_long_answers_are_cut_as_configured(box, virtual):
    (result,) = await played(
        box, task(virtual.address, observation_characters=40, tool_format="native"), call(SEARCH_NAME, name="long")
    )
    assert not result.valid  # in "native" a server reads the calls; text is none
    action = assistant("", (ToolCall(SEARCH_NAME, {"name": "long"}, "c1"),))
    result = await box.step(action)
    # {"error": "", "response": "  has 27 characters, so that 13 of the response's are left
    assert result.observation == (Message("tool", '{"error": "", "response": "' + "x" * 13 + "...", (), "c1"),)


async def test_any_text_can_be_an_argument(box, virtual):
    (result,) = await played(box, task(virtual.address), call(SEARCH_NAME, name="\ud800"))
    assert "half a character" in seen(result)


async def test_calls_of_one_reply_are_made_in_order_and_none_after_the_end(box, virtual):
    replies = call(HEALTH_NAME) + call(SEARCH_NAME, name="messi") + finish() + call(HEALTH_NAME)
    (result,) = await played(box, task(virtual.address), replies)
    assert [request["api_name"] for request in virtual.requests] == ["health", "transfermarkt_search"]
    assert (result.terminated, result.reward, result.success) == (True, 1.0, True)


# ---- replies that are not carried out


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ("", "There is no call in this reply; call a function, or end with Finish."),
        ("28003.", "There is no call in this reply"),
        ('<tool_call>{"name": ', "Nothing was carried out."),
        (call("health_for_suivi_coli"), f"There is no function 'health_for_suivi_coli'; did you mean '{HEALTH_NAME}'?"),
        (call(SEARCH_NAME), "name is missing. It takes: name (string), is_from (number, optional)"),
        (call(SEARCH_NAME, name="a", team="b"), "there is no parameter 'team'. It takes: name (string)"),
        (call(SEARCH_NAME, name="a") * 17, "A reply may have 16 calls; given: 17. Nothing was carried out."),
        (call("Finish"), "return_type was None. It takes: return_type (one of 'give_answer', 'give_up_and_restart')"),
        (call("Finish", return_type=["give_answer"]), "return_type was ['give_answer']"),
        (call("Finish", return_type="give_answer"), "give_answer needs final_answer, a text"),
        (finish("  "), "give_answer needs final_answer, a text"),
    ],
)
async def test_what_is_no_call_is_answered_with_what_was_wrong_and_the_server_is_not_asked(
    box, virtual, reply, message
):
    (result,) = await played(box, task(virtual.address), reply)
    assert message in seen(result)
    assert (result.valid, result.terminated, result.reward) == (False, False, 0.0)
    assert virtual.requests == []


async def test_each_call_that_a_server_read_is_answered_also_when_nothing_is_carried_out(box, virtual):
    await box.reset(task(virtual.address))
    calls = tuple(ToolCall(HEALTH_NAME, {}, f"c{number}") for number in range(17))
    result = await box.step(assistant("", calls))
    assert [message.tool_call_id for message in result.observation] == [call.id for call in calls]
    assert not result.valid


async def test_of_several_calls_the_good_ones_are_made(box, virtual):
    (result,) = await played(box, task(virtual.address), call("nothing") + call(SEARCH_NAME, name="messi"))
    assert "There is no function 'nothing'" in seen(result)
    assert "Messi 28003" in seen(result)
    assert not result.valid


# ---- the end and its verdict


@pytest.mark.parametrize(
    ("judge", "replies", "reward"),
    [
        ("any_call", [call(SEARCH_NAME, name="messi"), finish()], 1.0),
        ("any_call", [finish()], 0.0),
        ("any_call", [call(HEALTH_NAME), finish()], 0.0),  # an error
        ("any_call", [call(SEARCH_NAME, name="nobody"), finish()], 0.0),  # no error, and nothing
        ("any_call", [call(SEARCH_NAME, name="messi"), finish(None)], 0.0),
        ("relevant_calls", [call(SEARCH_NAME, name="messi"), finish()], 1.0),
        ("relevant_calls", [call(HEALTH_NAME), finish()], 0.0),
        ("doubles_toolbench:names_the_id", [finish("It is 28003.")], 1.0),
        ("doubles_toolbench:names_the_id", [finish("I don't know.")], 0.5),
        ("doubles_toolbench:names_the_id", [finish(None)], 0.0),
        ("doubles_toolbench:awaits", [call(HEALTH_NAME), call(SEARCH_NAME, name="messi"), finish()], 1.0),
        ("doubles_toolbench:off_the_event_loop", [finish()], 1.0),
    ],
)
async def test_an_attempt_earns_what_its_judge_says_and_nothing_where_it_was_given_up(
    box, virtual, judge, replies, reward
):
    relevant = [["TheClique", "Transfermarkt search"]]
    *before, last = await played(box, task(virtual.address, judge=judge, relevant=relevant), *replies)
    assert [result.reward for result in before] == [0.0] * len(before)
    assert (last.terminated, last.truncated, last.reward, last.success) == (True, False, reward, reward == 1)


async def test_relevant_calls_wants_every_one_of_them(box, virtual):
    relevant = [["TheClique", "Transfermarkt search"], ["suivi-colis", "Health"]]
    made = task(virtual.address, judge="relevant_calls", relevant=relevant)
    *_, last = await played(box, made, call(SEARCH_NAME, name="messi"), call(HEALTH_NAME), finish())
    assert last.success is False


@pytest.mark.parametrize(
    ("judge", "cause", "message"),
    [
        ("raises", "judge_raised", "judge 'doubles_toolbench:raises' raised KeyError: 'no such model'"),
        ("says_text", "judge_raised", "from 0 to 1; it said 'Solved'"),
        ("says_two", "judge_raised", "from 0 to 1; it said 2"),
        ("is_late", "judge_timed_out", "gave no answer within 0.05 s"),
    ],
)
async def test_a_judge_that_gives_no_verdict_is_its_own_failure(box, virtual, judge, cause, message):
    made = task(virtual.address, judge=f"doubles_toolbench:{judge}", judge_seconds=0.05 if judge == "is_late" else 9)
    with pytest.raises(JudgeFailed) as raised:
        await played(box, made, finish())
    assert raised.value.cause_name == cause
    assert message in str(raised.value)


async def test_the_last_turn_is_truncated_unless_it_ends_the_attempt(box, virtual):
    _, cut = await played(box, task(virtual.address, max_turns=2), call(SEARCH_NAME, name="messi"), "hm")
    assert (cut.terminated, cut.truncated, cut.success, cut.reward) == (False, True, False, 0.0)
    _, ended = await played(box, task(virtual.address, max_turns=2), call(SEARCH_NAME, name="messi"), finish())
    assert (ended.terminated, ended.truncated, ended.success) == (True, False, True)
    with pytest.raises(EnvironmentFailed, match="stepped without an open episode; reset it first"):
        await box.step(assistant(finish()))


# ---- faults of the server


@pytest.mark.parametrize(
    ("answer", "cause", "message", "tries"),
    [
        (b"", "tool_crashed", "RemoteProtocolError", 3),
        (http(b'{"error": "", "resp', length=100), "tool_crashed", "RemoteProtocolError", 3),
        (b"220 mail.example ESMTP\r\n\r\n", "tool_crashed", "RemoteProtocolError", 3),
        (http(b"<html>Bad Gateway</html>", "502 Bad Gateway"), "tool_crashed", "answered 502: '<html>", 3),
        (http(b"slow down", "429 Too Many Requests"), "tool_raised", "answered 429: 'slow down' (tried 3 times)", 3),
        (http(b"Internal Server Error", "500 Oops"), "tool_raised", "answered 500: 'Internal Server Error'", 1),
        (http(b"late", "504 Gateway Timeout"), "tool_timed_out", "answered 504: 'late'", 1),
        (http(b'{"detail": "Not Found"}', "404 Not Found"), "tool_raised", "answered 404", 1),
        (http(b"", "302 Found", more="Location: http://127.0.0.1:1/\r\n"), "tool_raised", "answered 302", 1),
        (http(b'{"error": "", "resp'), "tool_raised", "which can't be read: ", 1),
        (http(b"\xff"), "tool_raised", "which can't be read: ", 1),
        (http(b"[]"), "tool_raised", "an answer is an object with 'error' and 'response'; given: []", 1),
        (http(b'{"detail": 3}'), "tool_raised", "an answer is an object with 'error' and 'response'", 1),
        (http(b"[" * 99999), "tool_raised", "which can't be read: ", 1),
        (http(b"{}", more="Content-Encoding: gzip\r\n"), "tool_raised", "DecodingError", 1),
        (http(b" " * 300_000), "tool_raised", "answered more than 200000 bytes", 1),
    ],
)
async def test_a_fault_of_the_server_is_the_tools_typed_failure(box, monkeypatch, answer, cause, message, tries):
    monkeypatch.setattr(server, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(server, "ANSWER_BYTES", 200_000)
    async with answering(answer) as (address, asked):
        with pytest.raises(ToolFailed) as raised:
            await played(box, task(address), call(HEALTH_NAME))
    assert raised.value.cause_name == cause
    assert message in str(raised.value)
    assert len(asked) == tries


async def test_what_passes_is_tried_again_and_then_answered(box, monkeypatch):
    monkeypatch.setattr(server, "PAUSE_SECONDS", 0.001)
    async with answering(b"", http(b"busy", "503 Busy"), GOOD) as (address, asked):
        (result,) = await played(box, task(address), call(HEALTH_NAME))
    assert "here" in seen(result)
    assert len(asked) == 3
    assert asked[0] == asked[1] == asked[2]


async def test_without_retries_the_first_fault_is_the_failure(box):
    async with answering(b"", GOOD) as (address, asked):
        with pytest.raises(ToolFailed, match=r"\(tried 1 times\)"):
            await played(box, task(address, retries=0), call(HEALTH_NAME))
    assert len(asked) == 1


async def test_a_server_that_is_not_there_is_a_crashed_tool(box, monkeypatch):
    monkeypatch.setattr(server, "PAUSE_SECONDS", 0.001)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(ToolFailed) as raised:
        await played(box, task(address), call(HEALTH_NAME))
    assert raised.value.cause_name == "tool_crashed"
    assert f"POST {address}/virtual: ConnectError" in str(raised.value)


async def test_a_slow_server_is_a_tool_that_timed_out_retries_and_all(box, monkeypatch):
    monkeypatch.setattr(server, "PAUSE_SECONDS", 0.001)
    async with answering(b"", None) as (address, asked):
        with pytest.raises(ToolFailed) as raised:
            await played(box, task(address, call_seconds=0.1), call(HEALTH_NAME))
        assert raised.value.cause_name == "tool_timed_out"
        assert f"function '{HEALTH_NAME}' gave no answer within 0.1 s" in str(raised.value)
    assert len(asked) <= 2


@pytest.mark.parametrize(
    ("body", "error", "response"),
    [
        ('{"error": null, "response": 0}', "", 0),
        ('{"response": []}', "", []),
        ('{"error": "gone"}', "gone", ""),
        ('{"error": {"code": 3}, "response": ""}', '{"code": 3}', ""),
    ],
)
def test_answers_that_a_model_wrote_a_little_off_are_read(body, error, response):
    assert Answer.of(json.loads(body)) == (error, response)


async def test_a_played_episode_has_its_reward_and_a_failed_one_its_cause(box, virtual):
    replies = [call(SEARCH_NAME, name="messi"), finish()]
    solved = await play(ScriptedPolicy(replies), box, task(virtual.address))
    assert ([turn.reward for turn in solved.turns], solved.success) == ([0.0, 1.0], True)
    failed = await play(ScriptedPolicy(replies), box, task("http://127.0.0.1:1", retries=0))
    assert failed.failure.cause == "tool_crashed"


# ---- the cache


async def test_what_is_in_the_cache_is_not_asked_again(box, virtual, tmp_path):
    made = task(virtual.address, cache=str(tmp_path / "answers"))
    (first,) = await played(box, made, call(SEARCH_NAME, name="messi"))
    async with registry.opened("toolbench") as another:
        nobody_there = task("http://127.0.0.1:1", cache=str(tmp_path / "answers"))
        (second,) = await played(another, nobody_there, call(SEARCH_NAME, name="messi"))
    assert len(virtual.requests) == 1
    assert first == second


@pytest.mark.parametrize("changed", ["argument", "strip", "key"])
async def test_the_whole_request_is_the_caches_key(box, virtual, tmp_path, monkeypatch, changed):
    made = task(virtual.address, cache=str(tmp_path))
    await played(box, made, call(SEARCH_NAME, name="messi"))
    if changed == "key":
        monkeypatch.setenv(KEY_VARIABLE, "another")
    other = task(virtual.address, cache=str(tmp_path), strip="filter" if changed == "strip" else "truncate")
    await played(box, other, call(SEARCH_NAME, name="long" if changed == "argument" else "messi"))
    assert len(virtual.requests) == 2


async def test_errors_are_not_kept_and_keys_are_in_no_file(box, virtual, tmp_path, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "secret-key")
    replies = [call(HEALTH_NAME), call(HEALTH_NAME), call(SEARCH_NAME, name="messi")]
    await played(box, task(virtual.address, cache=str(tmp_path)), *replies)
    assert len(virtual.requests) == 3
    (kept,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert "secret-key" not in kept.read_text()
    assert json.loads(kept.read_text())["request"]["api_name"] == "transfermarkt_search"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b'{"answer": 3}', b"\xff"])
async def test_a_damaged_file_is_asked_for_again_and_replaced(box, virtual, tmp_path, damage):
    made = task(virtual.address, cache=str(tmp_path))
    await played(box, made, call(SEARCH_NAME, name="messi"))
    (kept,) = tmp_path.rglob("*.json")
    whole = kept.read_bytes()
    kept.write_bytes(damage)
    await played(box, made, call(SEARCH_NAME, name="messi"))
    assert len(virtual.requests) == 2
    assert kept.read_bytes() == whole


def test_a_write_that_fails_leaves_neither_half_a_file_nor_rubbish(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        AnswerFolder(str(tmp_path)).put({"api_name": "a"}, Answer("", "x"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


REQUESTS = st.dictionaries(st.sampled_from(["category", "tool_name", "tool_input", "toolbench_key"]), st.text())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(REQUESTS, REQUESTS, VALUES)
def test_an_answer_is_found_as_it_was_kept_and_by_its_own_request_only(tmp_path_factory, one, other, response):
    folder = AnswerFolder(str(tmp_path_factory.mktemp("answers")))
    folder.put(one, Answer("", response))
    assert folder.get(one) == Answer("", response)
    assert (folder.get(other) is None) == (one != other)


# ---- arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"query": None}, "'query' must be a text; given: None"),
        ({"query": " "}, "'query' must be a text; given: ' '"),
        ({"url": "127.0.0.1:80"}, "'url' must read 'http://host:port'; given: '127.0.0.1:80'"),
        ({"url": "http://127.0.0.1:x"}, "is no address of a server"),
        ({"apis": []}, "needs at least one API, in a list; given: []"),
        ({"apis": ["search"]}, "an API is an object with category_name, tool_name"),
        ({"apis": [{**SEARCH, "api_name": 3}]}, "an API needs the field 'api_name', a text; given: 3"),
        ({"apis": [{**SEARCH, "tool_name": "!"}]}, "an API's 'tool_name' needs a letter or a digit; given: '!'"),
        ({"apis": [{**SEARCH, "required_parameters": [{"name": "x"}]}]}, "must be a list of objects with name, type"),
        (
            {"apis": [{**SEARCH, "optional_parameters": None}]},
            "the 'optional_parameters' of API 'Transfermarkt search'",
        ),
        ({"relevant": [["TheClique"]]}, "a relevant API is a pair of tool and API; given: ['TheClique']"),
        ({"relevant": [["A", "b"]]}, "the relevant API 'b' of 'A' is none of the task's APIs"),
        ({"judge": "any_cal"}, "no rule 'any_cal'; did you mean 'any_call'? (or give 'module:function')"),
        ({"judge": "relevant_calls"}, "the rule 'relevant_calls' needs the argument 'relevant'; given: none"),
        ({"judge": "no_such_module:f"}, "judge 'no_such_module:f' can't be imported: "),
        ({"judge": "doubles_toolbench:nothing"}, "can't be imported: "),
        ({"judge": "doubles_toolbench:NO_FUNCTION"}, "must be a function; it is a int"),
        ({"call_seconds": 0}, "'call_seconds' must be a number above 0; given: 0"),
        ({"judge_seconds": True}, "'judge_seconds' must be a number above 0; given: True"),
        ({"retries": -1}, "'retries' must be a whole number of at least 0; given: -1"),
        ({"observation_characters": 0}, "'observation_characters' must be a whole number of at least 1; given: 0"),
        ({"cache": "/dev/null/answers"}, "the cache '/dev/null/answers' is no folder that can be made"),
        ({"tool_format": "hermez"}, "no tool format 'hermez'; did you mean 'hermes'?"),
        ({"turns": 3}, "a ToolBench task has no 'turns'"),
    ],
)
async def test_wrong_arguments_are_named(box, arguments, message):
    with pytest.raises(ConfigurationError) as raised:
        await played(box, task(**{"url": "http://127.0.0.1:1", **arguments}), call(HEALTH_NAME))
    assert message in str(raised.value)


def test_importing_needs_no_package_and_using_it_without_says_how_to_install_it():
    code = (
        "import sys; sys.modules['httpx'] = None\n"
        "from agentgym_rl.environments.toolbench import environment\n"
        "from agentgym_rl.environments.toolbench.server import VirtualServer\n"
        "try: VirtualServer('http://x', 0)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "ConfigurationError ToolBench needs 'httpx': pip install \"openmanus-rl[toolbench]\"\n"


# ---- the contract


async def test_it_keeps_the_contract(virtual):
    tasks = [task(virtual.address, "a"), task(virtual.address, "b", max_turns=3, apis=[HEALTH])]
    (await check_environment("toolbench", tasks)).raise_if_failed()


async def test_the_instructions_tell_of_the_functions_or_else_a_server_does(box, virtual):
    await box.reset(task(virtual.address))
    assert box.instructions.startswith(ToolBench.instructions)
    assert all(name in box.instructions for name in (SEARCH_NAME, HEALTH_NAME, "Finish"))
    assert box.tools == ()
    await box.reset(task(virtual.address, tool_format="native"))
    assert box.instructions == ToolBench.instructions
    assert [tool.name for tool in box.tools] == [SEARCH_NAME, HEALTH_NAME, "Finish"]


async def test_eight_at_once_play_as_each_does_alone_also_in_a_process_of_its_own(virtual):
    replies = [call(SEARCH_NAME, name="messi"), call(HEALTH_NAME), call("nothing"), finish()]

    async def play(number: int, isolation: registry.Isolation = "thread"):
        made = task(virtual.address, observation_characters=10 + number)
        async with registry.opened("toolbench", isolation) as one:
            return await played(one, made, *replies)

    alone = [await play(number) for number in range(8)]
    assert await asyncio.gather(*(play(number) for number in range(8))) == alone
    assert len({seen(results[0]) for results in alone}) == 8
    assert await play(0, "process") == alone[0]


# ---- the data set


def write_queries(folder: Path, *queries: dict, name: str = "queries.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(queries))
    return path


def query(id: object, text: str = "", **changed: object) -> dict:
    relevant = [["TheClique", "Transfermarkt search"]]
    made = {"query_id": id, "query": text or f"Query {id}", "api_list": [SEARCH, HEALTH], "relevant APIs": relevant}
    return {**made, **changed}


def test_queries_are_dealt_by_id_and_none_is_in_two_splits(tmp_path):
    path = write_queries(tmp_path, *map(query, range(10)), query(99, "Query 3"), query(4))
    again = write_queries(tmp_path, query(4), name="again.json")
    sizes = {"train": 5, "validation": 2, "test": 3}
    dealt = data_set.build([path, again], sizes, {"url": "http://x"}, seed=0)
    assert {split: len(tasks) for split, tasks in dealt.items()} == sizes
    ids = [task.id for tasks in dealt.values() for task in tasks]
    assert sorted(ids) == [f"toolbench-{number}" for number in range(10)]
    assert dealt == data_set.build([path], sizes, {"url": "http://x"}, seed=0)
    assert dealt != data_set.build([path], sizes, {"url": "http://x"}, seed=1)
    with pytest.raises(DataError, match="toolbench has 10 different tasks; 11 were asked for"):
        data_set.build([path], {"train": 11}, {"url": "http://x"}, seed=0)


def test_a_task_has_no_more_than_it_needs(tmp_path):
    dealt = data_set.build([write_queries(tmp_path, query(7))], {"test": 1}, {"url": "http://x"}, seed=0)
    (made,) = dealt["test"]
    kept = {name: value for name, value in SEARCH.items() if name not in ("method", "template_response")}
    assert (made.id, made.environment, made.split) == ("toolbench-7", "toolbench", "test")
    assert made.arguments["apis"] == [kept, HEALTH]
    assert set(made.arguments) == {"query", "apis", "relevant", "url"}


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ([query(1), query(1, "another")], "the id 1 is also that of another query"),
        ([query(1, query="")], "query '1' needs 'query'; given: ''"),
        ([{"query": "x"}], "query '' needs 'query_id'; given: ''"),
        ([query(1, api_list=[])], "query '1' needs 'api_list'; given: []"),
        ([query(1, api_list=["search"])], "query '1': an API is an object with"),
        ([query(1, api_list=[{**SEARCH, "tool_name": None}])], "query '1': an API needs the field 'tool_name', a text"),
        ([query(1, **{"relevant APIs": [["A", "b"]]})], "query '1': the relevant API 'b' of 'A' is none"),
        (["query"], "must be a JSON list of queries; it is a list"),
    ],
)
def test_a_file_that_can_not_be_read_as_queries_is_refused(tmp_path, queries, message):
    path = write_queries(tmp_path, *queries)
    with pytest.raises(DataError) as raised:
        data_set.read_queries([path])
    assert str(raised.value).startswith(str(path))
    assert message in str(raised.value)


@pytest.mark.parametrize("content", [None, "", "{"])
def test_a_file_that_is_no_json_is_refused(tmp_path, content):
    path = tmp_path / "queries.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match="can't be read"):
        data_set.read_queries([path])


def test_the_command_line_writes_a_file_for_each_split(tmp_path, capsys):
    path = write_queries(tmp_path, *map(query, range(4)))
    sizes = ["--train", "3", "--validation", "0", "--test", "1"]
    data_set.main([str(path), "--url", "http://x:1", "--judge", "relevant_calls", *sizes, "--out", str(tmp_path)])
    tasks = read_tasks(tmp_path / "train.parquet")
    assert len(tasks) == 3
    assert tasks[0].arguments["judge"] == "relevant_calls"
    assert tasks[0].arguments["apis"][0]["tool_name"] == "TheClique"
    assert not (tmp_path / "validation.parquet").exists()
    assert "test.parquet: 1 tasks" in capsys.readouterr().out


@pytest.mark.skipif(
    QUERIES_VARIABLE not in os.environ, reason=f"{QUERIES_VARIABLE} does not name StableToolBench's query files' folder"
)
async def test_stabletoolbenchs_solvable_queries_are_tasks_that_can_be_reset(box):
    files = sorted(Path(os.environ[QUERIES_VARIABLE]).glob("G*.json"))
    queries = data_set.read_queries(files)
    # 163 + 124 + 61, and one text that stands there under two ids
    assert len(queries) == 347
    shared = {"url": "http://127.0.0.1:1", "judge": "relevant_calls", "tool_format": "native"}
    for tasks in data_set.build(files, {"train": 240, "validation": 40, "test": 67}, shared, seed=0).values():
        for made in tasks:
            await box.reset(made)
            assert len(box.tools) == len(made.arguments["apis"]) + 1  # and Finish
