"""Environments behind an OpenEnv server: a real one where its package is, its double always, and broken ones."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("aiohttp", reason='aiohttp is not installed: pip install "openmanus-rl[openenv]"')

from doubles_openenv import OPENING, SERVER_PYTHON, double, faulty, real, stop_servers

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments import openenv_session, registry
from agentgym_rl.environments.agentgym.connection import TOKEN_VARIABLE
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.openenv_actions import ACTION_CHARACTERS, Actions, NoAction
from agentgym_rl.environments.openenv_adapter import OpenEnv
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed, Manner
from agentgym_rl.messages import assistant
from agentgym_rl.policy import ScriptedPolicy
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason
from data_preprocess import openenv as data_set

NAME = "openenv"
needs_server = pytest.mark.skipif(
    SERVER_PYTHON not in os.environ, reason=f"{SERVER_PYTHON} does not name a Python with openenv-core==0.3.0"
)


@pytest.fixture(params=[pytest.param(real, marks=needs_server, id="openenv-core"), pytest.param(double, id="double")])
def served(request):
    """What starts a server."""
    return request.param


@pytest.fixture(scope="module", autouse=True)
def servers():
    yield
    stop_servers()


def task(address, seed=0, **arguments):
    return Task("t", NAME, {"base_url": address, **arguments}, seed=seed)


async def played(address, lines, limits=None, **arguments):
    async with registry.opened(NAME) as environment:
        return await play(ScriptedPolicy(lines), environment, task(address, **arguments), limits)


def said(result):
    return "".join(message.content for message in result.observation)


def ends(trajectory):
    return trajectory.stop, trajectory.success, [turn.reward for turn in trajectory.turns]


# ---- servers as they should be


async def test_the_contract_holds_with_eight_sessions_at_once(served):
    async with served("Numbers") as address:
        tasks = [task(address, seed, max_turns=8) for seed in range(3)]
        report = await check_environment(NAME, tasks)
    assert report.broken == ()
    assert sum(result.passed is True for result in report.results) == 12  # all but listed actions, expert, snapshot


async def test_a_single_field_of_text_is_the_reply_and_the_seed_is_the_servers(served):
    # random.Random(seed).randint(1, 8) gives 7 for the seed 0, 3 for 1
    async with served("Numbers") as address, registry.opened(NAME) as environment:
        await environment.reset(task(address))
        assert (
            environment.instructions
            == "Act in the environment. Your whole answer is the action's text: a number from 1 to 8."
        )
        told = [await environment.step(assistant(text)) for text in ("4", " 8\n", "7")]
        assert [(said(r), r.reward, r.terminated) for r in told] == [
            ("higher", 0.0, False),
            ("lower", 0.0, False),
            ("(nothing)", 1.0, True),
        ]
        await environment.reset(task(address, seed=1))
        assert (await environment.step(assistant("3"))).terminated


async def test_further_arguments_reach_the_servers_reset(served):
    async with served("Numbers") as address:
        trajectory = await played(address, ["2"], reset={"secret": 2}, success_reward=1)
    assert ends(trajectory) == (StopReason.TERMINATED, True, [1.0])


async def test_success_is_known_only_by_the_least_sum_of_rewards(served):
    async with served("Numbers") as address:
        unknown = await played(address, ["7"])
        lost = await played(address, ["1"] * 6, success_reward=0.5)
        cut_off = await played(address, ["1"] * 6, success_reward=0.5, max_turns=3)
    assert ends(unknown) == (StopReason.TERMINATED, None, [1.0])
    assert ends(lost) == (StopReason.TERMINATED, False, [0.0] * 6)
    assert ends(cut_off) == (StopReason.TRUNCATED, False, [0.0] * 3)


async def test_an_action_of_several_fields_is_json_by_the_servers_schema(served):
    async with served("Walk") as address, registry.opened(NAME) as environment:
        opening = await environment.reset(task(address))  # random.Random(0).choice((-3, 3)) gives 3
        assert opening[0].content == '{"at": 0, "goal": 3}'
        assert '"direction": {"enum": ["left", "right"], "type": "string"}' in environment.instructions
        assert "metadata" not in environment.instructions
        one = await environment.step(assistant('{"direction": "right"}'))
        assert (said(one), one.valid) == ('{"at": 1, "goal": 3}', True)
        two = await environment.step(assistant('I go on.\n```json\n{"direction": "right", "steps": 2}\n```'))
        assert (two.terminated, two.reward) == (True, 1.0)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "it is no JSON object"),
        ("right", "it is no JSON object"),
        ("[1]", "it is no JSON object"),
        ('{"direction": "right"', "it is no JSON object"),
        ('{"direction": "up"}', "direction: 'up' is not one of ['left', 'right']"),
        ('{"steps": 1}', "'direction' is a required property"),
        ('{"direction": "left", "steps": 4}', "steps: 4 is greater than the maximum of 3"),
        ('{"direction": "left", "steps": true}', "steps: True is not of type 'integer'"),
        ('{"direction": "left", "metadata": {}}', "Additional properties are not allowed ('metadata' was unexpected)"),
        ('{"direction": "left", "steps": 1e999}', "it can't be written as JSON"),
        ('{"direction": "left", "steps": NaN}', "it can't be written as JSON"),
        ('{"direction": "\\ud800"}', "it can't be written as JSON"),
        ("[" * 100_000, "it is no JSON object"),
        ('{"direction": ' + "[" * 800 + "]" * 800 + "}", ""),
        ('{"steps": ' + "9" * 5000 + "}", "it is no JSON object"),
        ("x" * (ACTION_CHARACTERS + 1), f"it has {ACTION_CHARACTERS + 1} characters, more than {ACTION_CHARACTERS}"),
        (
            '{"direction": "left", "day": "someday"}',
            "Not an action: day: ",
        ),  # the schema's "format" is checked by the server alone
    ],
)
async def test_what_is_no_action_is_told_and_leaves_the_world_alone(served, reply, why):
    async with served("Walk") as address, registry.opened(NAME) as environment:
        await environment.reset(task(address))
        refused = await environment.step(assistant(reply))
        assert (refused.valid, refused.reward, refused.terminated) == (False, 0.0, False)
        assert why in said(refused)
        assert said(await environment.step(assistant('{"direction": "left"}'))) == '{"at": -1, "goal": 3}'


@pytest.mark.parametrize("text", ["\x00", "数", "x" * ACTION_CHARACTERS, "{}", '"', "\r\n7", "</s>"])
async def test_any_other_text_reaches_a_field_of_text(served, text):
    async with served("Numbers") as address, registry.opened(NAME) as environment:
        await environment.reset(task(address))
        assert (await environment.step(assistant(text))).valid


async def test_a_session_survives_a_policy_that_thinks_longer_than_the_server_waits_for_a_pong(served):
    async with served("Numbers") as address, registry.opened(NAME) as environment:
        await environment.reset(task(address))
        await asyncio.sleep(1.5)
        assert (await environment.step(assistant("7"))).terminated


async def test_an_environment_that_raises_is_a_failure_and_the_next_episode_a_new_session(served):
    async with served("Numbers", 1) as address, registry.opened(NAME) as environment:
        for _ in range(2):
            trajectory = await play(ScriptedPolicy(["raise"]), environment, task(address))
            assert trajectory.failure.cause == "environment_raised"
            assert "the number is lost (code: EXECUTION_ERROR)" in trajectory.failure.message
        assert (await play(ScriptedPolicy(["7"]), environment, task(address))).stop is StopReason.TERMINATED


async def test_a_session_that_the_server_ends_over_its_own_validation_is_a_failure(served):
    async with served("Numbers") as address:
        trajectory = await played(address, ["7!"])
    assert trajectory.failure.cause == "environment_raised"
    assert "code: SESSION_ERROR" in trajectory.failure.message


async def test_a_session_makes_room_for_the_next_before_that_is_opened(served):
    async with served("Numbers", 1) as address:
        async with registry.opened(NAME) as environment:
            for seed in range(4):
                await environment.reset(task(address, seed))
        async with registry.opened(NAME) as other:
            await other.reset(task(address))


async def test_no_room_on_the_server_is_told(served):
    async with served("Numbers", 1) as address, registry.opened(NAME) as environment:
        await environment.reset(task(address))
        trajectory = await played(address, ["7"])
        assert trajectory.failure.cause == "environment_raised"
        assert "1/1" in trajectory.failure.message
        assert "CAPACITY_REACHED" in trajectory.failure.message
        assert (await environment.step(assistant("7"))).terminated


@needs_server
async def test_the_double_gives_the_schema_that_the_real_server_gives():
    for name in ("Numbers", "Walk"):
        schemas = []
        for served in (real, double):
            async with served(name) as address:
                session, schema = await openenv_session.Session.opened(address)
                await session.close()
                schemas.append({key: value for key, value in schema.items() if key != "title"})
        schemas[1]["properties"]["metadata"]["description"] = schemas[0]["properties"]["metadata"]["description"]
        assert schemas[0] == schemas[1]


# ---- servers as they should not be


def observation(**changed):
    data = {"observation": {"text": "on"}, "reward": 0, "done": False, **changed}
    return json.dumps({"type": "observation", "data": {k: v for k, v in data.items() if v != "left out"}})


@pytest.mark.parametrize(
    ("answer", "cause", "message"),
    [
        (None, "timed_out", "no answer within 0.5 s"),
        ("hello", "raised", "answered no JSON: 'hello'"),
        ("[" * 100_000, "raised", "answered no JSON"),
        ("[]", "raised", "answered without an object 'data'; given: []"),
        ('{"type": "observation"}', "raised", "answered without an object 'data'"),
        ('{"type": "state", "data": {}}', "raised", "answered a 'state'; allowed: observation, error"),
        ('{"type": "error", "data": {"message": "no", "code": "X"}}', "raised", "no (code: X)"),
        (observation(observation="on"), "raised", "without an object 'observation' and 'done'"),
        (observation(observation="left out"), "raised", "without an object 'observation' and 'done'"),
        (observation(done="left out"), "raised", "without an object 'observation' and 'done'"),
        (observation(done=1), "raised", "without an object 'observation' and 'done'"),
        (observation(reward="1"), "raised", "'reward' must be a finite number or null; given: '1'"),
        (observation(reward=float("nan")), "raised", "'reward' must be a finite number or null; given: nan"),
        (observation(reward=10**400), "raised", "'reward' must be a finite number or null; given: 1000"),
        (observation(text="x" * 5000), "crashed", "the connection is gone"),
    ],
)
@pytest.mark.parametrize("at", ["reset", "step"])
async def test_each_fault_of_a_server_is_its_typed_failure(monkeypatch, answer, cause, message, at):
    monkeypatch.setattr(openenv_session, "ANSWER_BYTES", 200_000 if answer and answer[0] == "[" else 4000)
    async with faulty([answer] if at == "reset" else [OPENING, answer]) as address:
        limits = Limits(**{f"{at}_seconds": 0.5}) if answer is None else None
        trajectory = await played(address, ["7"], limits)
    assert trajectory.failure.cause == f"environment_{cause}"
    assert message in trajectory.failure.message


async def test_an_error_of_validation_is_an_invalid_action_at_a_step_and_a_failure_at_a_reset():
    errors = [{"loc": ["level"], "msg": "Input should be a number"}]
    refusal = json.dumps({"type": "error", "data": {"message": "no", "code": "VALIDATION_ERROR", "errors": errors}})
    async with faulty([OPENING, refusal]) as address, registry.opened(NAME) as environment:
        await environment.reset(task(address))
        refused = await environment.step(assistant("7"))
    assert (refused.valid, said(refused)) == (False, "Not an action: level: Input should be a number")
    async with faulty([refusal]) as address, registry.opened(NAME) as environment:
        with pytest.raises(EnvironmentFailed) as failed:
            await environment.reset(task(address, reset={"level": "x"}))
    told = f"reset at {address}/ws: level: Input should be a number (code: VALIDATION_ERROR)"
    assert str(failed.value) == told


async def test_a_server_that_hangs_up_is_a_crash():
    async with faulty([OPENING]) as address:
        trajectory = await played(address, ["7"])
    assert trajectory.failure.cause == "environment_crashed"
    assert "the connection is gone (closed with code 1011)" in trajectory.failure.message


async def test_a_server_that_talks_unasked_or_without_end_is_a_failure():
    for extra in (1, 100):
        async with faulty([OPENING + f"\n{OPENING}" * extra, OPENING]) as address, registry.opened(NAME) as environment:
            await environment.reset(task(address))
            await asyncio.sleep(0.1)
            with pytest.raises(EnvironmentFailed, match="answered a 'observation' although nothing had been asked"):
                await environment.step(assistant("7"))


async def test_a_late_answer_is_not_taken_for_the_next_one():
    async with faulty([OPENING, None]) as address, registry.opened(NAME) as environment:
        await environment.reset(task(address))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(environment.step(assistant("7")), 0.2)
        with pytest.raises(EnvironmentFailed, match="the last call of this session failed or was cut off"):
            await environment.step(assistant("7"))


@pytest.mark.parametrize(
    ("schema", "cause", "message"),
    [
        ((500, "oops"), "raised", "/schema answered 500: Internal Server Error"),
        ((502, ""), "crashed", "/schema answered 502: Bad Gateway"),
        ((504, ""), "timed_out", "/schema answered 504: Gateway Timeout"),
        ((404, ""), "raised", "/schema answered 404: Not Found"),
        ((200, "<html>"), "raised", "/schema answered no JSON: b'<html>'"),
        ((200, "[" * 100_000), "raised", "/schema answered no JSON"),
        ((200, "{}"), "raised", "/schema answered without a schema of actions; given: {}"),
        ((200, '{"action": {"type": 3}}'), "raised", "the server's schema of actions is malformed"),
        ((200, '{"action": {"properties": []}}'), "raised", "the server's schema of actions is malformed"),
        ((200, " " * 300_000), "raised", "/schema answered more than 200000 bytes"),
        ((200, None), "timed_out", "no answer within 0.5 s"),
    ],
)
async def test_each_fault_of_a_schema_is_its_typed_failure(monkeypatch, schema, cause, message):
    monkeypatch.setattr(openenv_session, "ANSWER_BYTES", 200_000)
    async with faulty([OPENING], schema) as address:
        trajectory = await played(address, ["7"], Limits(reset_seconds=0.5) if schema[1] is None else None)
    assert trajectory.failure.cause == f"environment_{cause}"
    assert message in trajectory.failure.message


async def test_an_episode_that_is_over_at_its_reset_is_a_failure():
    async with faulty([OPENING.replace("false", "true")]) as address:
        with pytest.raises(EnvironmentFailed, match="ended the episode in its reset"):
            await OpenEnv().reset(task(address))


async def test_a_server_that_is_not_there_is_a_crash_and_one_that_came_back_plays_on():
    environment = OpenEnv()
    async with double("Numbers") as address:
        await environment.reset(task(address))
    with pytest.raises(EnvironmentFailed, match="the connection is gone") as gone:
        await environment.step(assistant("7"))
    with pytest.raises(EnvironmentFailed, match="Cannot connect") as absent:
        await environment.reset(task(address))
    assert [error.value.manner for error in (gone, absent)] == [Manner.CRASHED, Manner.CRASHED]
    async with double("Numbers") as address:
        await environment.reset(task(address))
        assert (await environment.step(assistant("7"))).terminated
        await environment.close()


async def test_a_token_that_is_refused_stops_the_run(monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, "schlüssel")
    async with faulty([OPENING], (401, "")) as address:
        with pytest.raises(
            ConfigurationError, match="/schema answered 401; its token belongs in OPENMANUS_SERVER_TOKEN"
        ):
            await played(address, ["7"])


# ---- schemas


def test_text_is_text_also_where_it_may_be_null_or_is_one_of_a_few():
    optional = Actions.of({"properties": {"say": {"anyOf": [{"type": "string"}, {"type": "null"}]}}})
    assert optional.read(" up ") == {"say": "up"}
    few = Actions.of({"properties": {"go": {"enum": ["up", "down"], "type": "string"}}})
    assert few.read("up\n") == {"go": "up"}
    assert (
        few.instructions == 'Your whole answer is the action\'s go. It must fit this schema: {"enum": ["up", "down"]}'
    )
    with pytest.raises(NoAction, match="go: 'left' is not one of"):
        few.read("left")


@pytest.mark.parametrize(
    "properties", [{}, {"n": {"type": "integer"}}, {"n": {"type": ["string", "integer"]}}, {"n": True}, {"n": {}}]
)
def test_what_is_not_text_alone_is_asked_for_as_json(properties):
    actions = Actions.of({"type": "object", "properties": properties})
    assert actions.field is None
    assert actions.read('{"n": 3}') == {"n": 3}


def test_a_schema_is_shown_without_references_and_one_that_contains_itself_with_them():
    point = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    shown = Actions.of({"properties": {"at": {"$ref": "#/$defs/Point"}, "to": {}}, "$defs": {"Point": point}})
    assert "$ref" not in shown.instructions
    with pytest.raises(NoAction, match="at: 'x' is a required property"):
        shown.read('{"at": {}}')
    tree = {"properties": {"left": {"$ref": "#/$defs/Tree"}, "n": {"type": "integer"}}}
    whole = Actions.of({**tree, "$defs": {"Tree": tree}})
    assert "#/$defs/Tree" in whole.instructions
    with pytest.raises(NoAction, match="left.n: 'x' is not of type 'integer'"):
        whole.read('{"left": {"n": "x"}}')


@pytest.mark.parametrize(
    "reference",
    [
        "file:///etc/hostname",
        "#/$defs/Missing",
        "#missing",
        "#/properties/n/minimum",
        "#/required/0",
        "other",
        "http://[",
    ],
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_a_reference_that_is_not_to_the_schema_itself_is_found_before_the_first_turn(keyword, reference):
    schema = {"properties": {"to": {keyword: reference}, "n": {"minimum": 3}}, "required": ["n"]}
    with pytest.raises(EnvironmentFailed, match=re.escape("the server's schema of actions is malformed: ")):
        Actions.of(schema)
    behind = {"properties": {"left": {"$ref": "#/of/Tree"}}, "of": {"Tree": schema}}  # where no keyword leads
    with pytest.raises(EnvironmentFailed, match="malformed"):
        Actions.of(behind)
    with pytest.raises(EnvironmentFailed, match="malformed"):
        Actions.of({"properties": {"left": {"$ref": "#"}, **schema["properties"]}, "required": ["n"]})


def test_no_other_address_is_asked_for_a_schema():
    asked = []

    class Secret(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

    with ThreadingHTTPServer(("127.0.0.1", 0), Secret) as server:
        threading.Thread(target=server.serve_forever).start()
        address = f"http://127.0.0.1:{server.server_port}/secret"
        with suppress(Exception):
            Actions.of({"properties": {"to": {"$ref": address}}}).read('{"to": 1}')
        server.shutdown()
    assert asked == []
    with pytest.raises(EnvironmentFailed, match=f"'{address}' is not defined in it"):
        Actions.of({"properties": {"to": {"$ref": address}}})


def test_references_by_name_and_to_the_whole_lead_on():
    named = {"$id": "http://h/action", "properties": {"to": {"$ref": "#at"}, "then": {"$ref": "#"}}}
    actions = Actions.of({**named, "$defs": {"At": {"$anchor": "at", "type": "integer"}}})
    with pytest.raises(NoAction, match="then.to: 'x' is not of type 'integer'"):
        actions.read('{"then": {"to": "x"}}')
    assert actions.read('{"then": {"to": 3}}') == {"then": {"to": 3}}


def test_a_part_in_another_dialect_is_refused_and_the_whole_in_one_is_read():
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    assert Actions.of({**draft, "properties": {"n": {"type": "integer"}}}).read('{"n": 3}') == {"n": 3}
    with pytest.raises(EnvironmentFailed, match="a part of it has a '\\$schema' of its own"):
        Actions.of({"properties": {"n": {"$id": "http://h/n", **draft}}})


def test_what_a_regular_expression_decides_is_left_to_the_server():
    for_ever = "^(a+)+$"
    assert Actions.of({"properties": {"say": {"type": "string", "pattern": "^b$"}}}).read("a") == {"say": "a"}
    text, names = "a" * 40 + "!", {"type": "object", "patternProperties": {for_ever: {}}}
    whole = {"properties": {"say": {"type": "string", "pattern": for_ever}}}
    actions = Actions.of(whole)
    assert for_ever in actions.instructions
    assert actions.read(text) == {"say": text}
    for closed in ("additionalProperties", "unevaluatedProperties"):
        assert Actions.of({**names, closed: False}).read(json.dumps({text: 1})) == {text: 1}
    again = {"$schema": "https://json-schema.org/draft/2020-12/schema", "anyOf": [{"$ref": "#/of"}], "of": names}
    assert Actions.of({**again, "properties": {"n": {"$ref": "#"}}}).read(json.dumps({"n": {text: 1}}))


# ---- arguments and data set


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"base_url": "localhost:8000"}, "base_url must read 'http://host:port'; given: 'localhost:8000'"),
        ({"base_url": None}, "base_url must read"),
        ({"base_url": "http://"}, "is no address of a server"),
        ({"base_url": "http://h", "reset": [1]}, "reset must be an object without 'seed'"),
        ({"base_url": "http://h", "reset": {"seed": 1}}, "reset must be an object without 'seed', which is the task's"),
        ({"base_url": "http://h", "success_reward": True}, "success_reward must be a number; given: True"),
        ({"base_url": "http://h", "max_turns": 0}, "'max_turns' must be a whole number of at least 1"),
        ({"base_url": "http://h", "url": 1}, "an OpenEnv task has no 'url'"),
    ],
)
async def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ConfigurationError) as raised:
        await OpenEnv().reset(Task("t", NAME, arguments))
    assert message in str(raised.value)


def test_the_address_is_an_argument_of_the_host():
    assert OpenEnv.host_arguments == {"base_url"}


async def test_stepping_before_reset_after_the_end_and_after_close_is_a_failure():
    environment = OpenEnv()
    with pytest.raises(EnvironmentFailed, match="stepped before reset"):
        await environment.step(assistant("7"))
    async with double("Numbers") as address:
        await environment.reset(task(address))
        await environment.step(assistant("7"))
        with pytest.raises(EnvironmentFailed, match="stepped after the end of its episode"):
            await environment.step(assistant("7"))
        await environment.close()
        with pytest.raises(EnvironmentFailed, match="used after close"):
            await environment.reset(task(address))


def test_tasks_of_all_splits_have_seeds_of_their_own(tmp_path):
    arguments = ["--base-url", "http://localhost:8000/", "--reset", '{"level": 2}', "--success-reward", "1"]
    data_set.main(["--out", str(tmp_path), *arguments, "--train", "20", "--validation", "5", "--test", "5"])
    tasks = [t for split in ("train", "validation", "test") for t in read_tasks(tmp_path / f"{split}.parquet")]
    assert len({t.seed for t in tasks}) == len({t.id for t in tasks}) == 30
    assert tasks[0].arguments == {
        "base_url": "http://localhost:8000/",
        "reset": {"level": 2},
        "success_reward": 1.0,
        "max_turns": 64,
    }
    with pytest.raises(ConfigurationError, match="--reset must be a JSON object; given: 3"):
        data_set.main(["--out", str(tmp_path), *arguments[:2], "--reset", "3"])
