"""An episode over AgentGym's HTTP protocol is the episode without it; what our server grants, refuses and says."""

import asyncio
import socket
from dataclasses import replace

import httpx
import pytest
from doubles import (
    Countdown,
    Crashes,
    Everything,
    Guess,
    Hangs,
    HangsAwaiting,
    InfoIsNoJson,
    NanReward,
    Raises,
    Recorder,
    ResetsOnceAndSaysSo,
    ReturnsNothing,
    name_of,
    task_for,
)
from doubles_agentgym import content, expert_episode, item, played, remote, served

from agentgym_rl.environments import registry
from agentgym_rl.environments.agentgym import connection
from agentgym_rl.environments.agentgym.instances import Instances, Refused
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.episode import play
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed, Manner
from agentgym_rl.messages import ToolCall, assistant, user
from agentgym_rl.policy import ScriptedPolicy
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason


@pytest.fixture
async def environment():
    async with registry.opened("agentgym") as made:
        yield made


@pytest.mark.parametrize("double", [Guess, Countdown])
async def test_an_episode_through_the_protocol_is_the_episode_without_it(double):
    with served(name_of(double)) as address:
        for seed in (0, 5):
            direct, lines = await expert_episode(task_for(double, seed=seed))
            assert content(await played(remote(address, seed), lines)) == content(direct)
            assert direct.stop is StopReason.TERMINATED


async def test_the_form_of_replies_is_read_by_the_client():
    with served(name_of(Guess)) as address:
        trajectory = await played(replace(remote(address), reply_form="tags"), ["4", "<action>4</action>"])
    assert [turn.valid for turn in trajectory.turns] == [False, True]


async def test_invalid_actions_and_the_environments_own_limit_come_through():
    lines = ["no", "8", "no", "no", "no", "no", "no"]
    with served(name_of(Guess)) as address:
        over = await played(remote(address), lines)
    assert content(over) == content(await played(task_for(Guess), lines))
    assert (over.stop, [turn.valid for turn in over.turns]) == (StopReason.TRUNCATED, [False, True, *[False] * 4])


async def test_every_field_of_messages_and_results_crosses(environment):
    with served(name_of(Everything)) as address:
        seen = await environment.reset(remote(address, text="zwölf \x00", deep=[1, {"a": None}]))
        call = ToolCall("add", {"a": [1, 2]}, "id-7")
        result = await environment.step(assistant("both", (call,)))
        direct = Everything()
        assert tuple(seen) == tuple(await direct.reset(task_for(Everything, text="zwölf \x00", deep=[1, {"a": None}])))
        assert result == await direct.step(assistant("both", (call,)))
        assert environment.instructions == direct.instructions == "Go on."


async def test_arguments_reach_the_environment_and_wrong_ones_stop_the_run_as_they_do_without_the_protocol():
    with served(name_of(Guess)) as address:
        assert len((await played(remote(address, max_turns=2), ["no"] * 3)).turns) == 2
        with pytest.raises(ConfigurationError, match="^max_turns must be at least 1; given: 0$") as caught:
            await played(remote(address, max_turns=0), [])
    assert "in reset" in str(caught.value.__cause__)  # the server's traceback


async def test_the_tasks_own_max_turns_cuts_off_whatever_is_served():
    with served(name_of(Countdown)) as address:
        trajectory = await played(remote(address, turns=2), ["no", "no", "no"])
    assert (trajectory.stop, trajectory.success, len(trajectory.turns)) == (StopReason.TRUNCATED, False, 2)
    assert trajectory.turns[-1].observation == (user("say 1 or 2"),)


@pytest.mark.parametrize("errors", ["status", "agentgym"])
async def test_the_contract_holds_over_the_protocol(errors):
    with served(name_of(Guess), errors=errors) as address:
        tasks = [Task(f"t{seed}", "agentgym", {"server": address, "max_turns": 6}, seed=seed) for seed in range(3)]
        report = await check_environment("agentgym", tasks)
    assert report.broken == ()
    assert sum(result.passed is True for result in report.results) == 12  # all but listed actions, expert, snapshot


@pytest.mark.parametrize("errors", ["status", "agentgym"])
@pytest.mark.parametrize(
    ("double", "lines", "options"),
    [
        (Raises, ["4"], {}),
        (ReturnsNothing, ["4"], {}),
        (NanReward, ["4"], {}),
        (Crashes, ["4", "exit"], {"isolation": "process"}),
    ],
)
async def test_a_failure_of_the_served_environment_is_the_failure_that_it_is_without_the_protocol(
    double, lines, options, errors
):
    with served(name_of(double), errors=errors, **options) as address:
        over = await played(remote(address), lines)
    task = task_for(double)
    async with registry.opened(task.environment, **options) as environment:
        direct = await play(ScriptedPolicy(lines), environment, task)
    assert over.failed
    assert content(over)[1:3] == content(direct)[1:3]
    assert over.failure.cause == direct.failure.cause
    assert over.failure.message.replace("'agentgym'", repr(task.environment)) == direct.failure.message


async def test_info_that_is_no_json_is_a_failure_that_says_so():
    with served(name_of(InfoIsNoJson)) as address:
        trajectory = await played(remote(address), ["4"])
    assert trajectory.failure.cause == "environment_raised"
    assert "answered what is no JSON: Object of type object" in trajectory.failure.message


async def test_a_call_that_hangs_on_the_server_ends_with_its_lease_as_a_timeout():
    with served(name_of(Hangs), isolation="process", lease_seconds=1.5) as address:
        trajectory = await played(remote(address), ["4"])
    assert trajectory.failure.cause == "environment_timed_out"
    assert trajectory.failure.message == "step of environment 'double-hangs' gave no answer within 1.5 s"


async def test_after_a_crash_the_same_instance_plays_on(environment):
    with served(name_of(Crashes), isolation="process") as address:
        for _ in range(2):
            trajectory = await play(ScriptedPolicy(["exit"]), environment, remote(address))
            assert trajectory.failure.cause == "environment_crashed"
        assert (await play(ScriptedPolicy(["7"]), environment, remote(address))).success


@pytest.mark.parametrize(
    ("name", "action"), [("doubles_agentgym:BreaksForGood", "break"), (name_of(ResetsOnceAndSaysSo), "1")]
)
def test_an_environment_that_can_not_be_reset_again_is_made_anew_under_the_same_id(name, action):
    with served(name) as address:
        id = httpx.post(f"{address}/create").json()["id"]
        for _ in range(3):
            assert httpx.post(f"{address}/reset", json={"id": id, "data_idx": 0}).status_code == 200
            httpx.post(f"{address}/step", json={"id": id, "action": action})


async def test_an_instance_that_the_server_no_longer_knows_is_replaced_at_the_next_reset(environment):
    with served(name_of(Guess)) as address:
        await environment.reset(remote(address))
        port = int(address.rpartition(":")[2])
    with pytest.raises(EnvironmentFailed, match="ConnectError") as caught:
        await environment.step(assistant("7"))
    assert caught.value.manner is Manner.CRASHED
    with served(name_of(Guess), port):
        assert (await play(ScriptedPolicy(["7"]), environment, remote(address))).success
    with served(name_of(Guess), port):  # between two episodes
        assert (await play(ScriptedPolicy(["7"]), environment, remote(address))).success


async def test_an_environment_moves_from_one_server_to_another_and_gives_its_instance_back(environment):
    with served(name_of(Guess)) as one, served(name_of(Countdown)) as other:
        await environment.reset(remote(one))
        assert (await environment.reset(remote(other)))[0] == user("3 left")
        assert httpx.get(f"{one}/health").json()["instances"] == 0


async def test_many_clients_at_once_play_as_each_does_alone():
    with served(name_of(Guess)) as address:
        direct = [await expert_episode(task_for(Guess, seed=seed)) for seed in range(24)]
        over = await asyncio.gather(*(played(remote(address, i), lines) for i, (_, lines) in enumerate(direct)))
    assert [content(trajectory) for trajectory in over] == [content(trajectory) for trajectory, _ in direct]


# What the server grants and refuses


async def test_a_token_is_wanted_by_every_route_but_health(monkeypatch):
    token = "schlüssel"
    with served(name_of(Guess), token=token) as address:
        assert httpx.get(f"{address}/health").json() == {"status": "ok", "instances": 0, "max_instances": 64}
        for route in ("create", "reset", "step", "close"):
            body = {"id": 1, "data_idx": 1, "action": "4"}
            assert httpx.post(f"{address}/{route}", json=body).status_code == 401
        for route in ("version", "observation?id=1"):
            assert httpx.get(f"{address}/{route}").status_code == 401
        with pytest.raises(
            ConfigurationError, match="/create answered 401: .*token is missing.*; its token belongs in OPEN"
        ):
            await played(remote(address), ["7"])
        monkeypatch.setenv(connection.TOKEN_VARIABLE, "schlüsse")
        with pytest.raises(ConfigurationError, match="the bearer token is wrong"):
            await played(remote(address), ["7"])
        monkeypatch.setenv(connection.TOKEN_VARIABLE, token)
        assert (await played(remote(address), ["7"])).success


async def test_no_more_instances_are_lent_than_allowed_and_a_closed_one_makes_room(environment):
    with served(name_of(Guess), max_instances=1, errors="agentgym") as address:
        await environment.reset(remote(address))
        trajectory = await played(remote(address), ["7"])
        assert trajectory.failure.cause == "environment_raised"
        assert "/create: all 1 instances of 'double-guess' are in use; close one, or wait" in trajectory.failure.message
        assert httpx.post(f"{address}/create").status_code == 503
        await environment.close()
        assert (await played(remote(address), ["7"])).success


async def test_an_instance_whose_lease_ran_out_is_closed_and_says_so(environment):
    with served(name_of(Guess), lease_seconds=0.2) as address:
        await environment.reset(remote(address))
        while httpx.get(f"{address}/health").json()["instances"]:
            await asyncio.sleep(0.02)
        with pytest.raises(
            EnvironmentFailed, match="there is no instance .*; it was closed, or its lease of 0.2 s ran"
        ):
            await environment.step(assistant("7"))
        assert (await play(ScriptedPolicy(["7"]), environment, remote(address))).success


async def test_each_request_begins_the_lease_anew():
    now = [0.0]
    recorder = registry.environment_class(name_of(Recorder))
    recorder.closes = 0
    instances = Instances(name_of(Recorder), "thread", 2, 10.0, clock=lambda: now[0])
    id = instances.create()
    for now[0], call in (
        (9.0, lambda: instances.reset(id, task_for(Recorder))),
        (18.0, lambda: instances.step(id, assistant("1"))),
    ):
        await instances.reap()
        await call()
    now[0] = 27.9
    await instances.reap()
    assert (len(instances), recorder.closes) == (1, 0)
    now[0] = 28.0
    await instances.reap()
    assert (len(instances), recorder.closes) == (0, 1)
    with pytest.raises(Refused, match="its lease of 10 s ran out") as caught:
        await instances.step(id, assistant("1"))
    assert caught.value.status == 404


async def test_an_instance_takes_one_call_at_a_time_and_may_be_closed_in_the_middle_of_it():
    with served(name_of(HangsAwaiting)) as address:
        async with httpx.AsyncClient(base_url=address, timeout=20) as client:
            id = (await client.post("/create")).json()["id"]
            await client.post("/reset", json={"id": id, "data_idx": 0})
            steps = [client.post("/step", json={"id": id, "action": "1"}) for _ in range(2)]
            done, hanging = await asyncio.wait(
                map(asyncio.ensure_future, steps), timeout=20, return_when=asyncio.FIRST_COMPLETED
            )
            busy = done.pop().result()
            assert (busy.status_code, busy.json()) == (409, {"error": f"instance {id} is busy with its step"})
            assert (await client.post("/close", json={"id": id})).json() is True
            assert (await client.post("/close", json={"id": id})).json() is False
            hanging.pop().cancel()


async def test_a_request_that_is_too_long_is_refused_whether_it_says_so_or_not(environment):
    with served(name_of(Guess), max_body_bytes=1000) as address:
        await environment.reset(remote(address))
        with pytest.raises(EnvironmentFailed, match="/step: a request may have 1000 bytes"):
            await environment.step(assistant("x" * 3_000_000))
        assert (await environment.step(assistant("7"))).success
        chunks = (b" " * 600 for _ in range(2))
        answer = httpx.post(f"{address}/create", content=chunks, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()) == (413, {"error": "a request may have 1000 bytes"})
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as client:
            head = "POST /create HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 1001\r\n\r\n"
            client.settimeout(20)
            client.sendall(head.encode())  # and no body: it is not waited for
            assert client.recv(1000).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("route", "body", "status", "message"),
    [
        (
            "reset",
            {"id": 1, "data_idx": 0},
            404,
            "there is no instance 1; it was closed, or its lease of 600 s ran out",
        ),
        ("reset", {"data_idx": 0}, 422, "body.id: Field required"),
        ("reset", {"id": 1, "task": {"seeds": 3}}, 422, "body.task.seeds: Extra inputs are not permitted"),
        ("reset", {"id": 1}, 400, "a reset needs either data_idx or task"),
        ("reset", {"id": 1, "data_idx": 0, "task": {}}, 400, "a reset needs either data_idx or task"),
        ("step", {"id": 1}, 400, "a step needs either action or message"),
        ("step", {"id": 1, "action": "4", "message": {}}, 400, "a step needs either action or message"),
        ("step", {"id": 1, "message": {"role": "boss"}}, 400, "a message's role was 'boss'; allowed: system, user,"),
    ],
)
def test_a_malformed_request_is_refused_with_what_is_wrong(our_server, route, body, status, message):
    answer = httpx.post(f"{our_server}/{route}", json=body)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(message)


@pytest.fixture(scope="module")
def our_server():
    with served(name_of(Guess), arguments={"max_turns": 2}) as address:
        yield address


@pytest.mark.parametrize(("errors", "status"), [("status", 500), ("agentgym", 200)])
def test_an_error_of_an_instance_has_the_status_that_was_asked_for(errors, status):
    with served(name_of(Raises), errors=errors) as address:
        id = httpx.post(f"{address}/create").json()["id"]
        httpx.post(f"{address}/reset", json={"id": id, "data_idx": 0})
        answer = httpx.post(f"{address}/step", json={"id": id, "action": "4"})
    assert answer.status_code == status
    assert answer.json()["error"] == "step of environment 'double-raises' raised ValueError: seven"
    assert answer.json()["detail"]["type"] == "EnvironmentFailed"


def test_what_agentgyms_own_babyai_client_asks_for_is_answered_by_its_names(our_server):
    # agentenv/agentenv/envs/babyai.py: /create without a body; data_idx; observation, reward, score and done.
    id = httpx.post(f"{our_server}/create").json()["id"]
    opening = httpx.post(f"{our_server}/reset", json={"id": id, "data_idx": 5}).json()
    assert [opening[name] for name in ("observation", "reward", "score", "done")] == [
        *("Guess a number from 1 to 8.", 0.0, 0.0, False)
    ]
    step = httpx.post(f"{our_server}/step", json={"id": id, "action": "1"}).json()
    assert [step[name] for name in ("observation", "reward", "score", "done")] == ["higher", 0.0, 0.0, False]
    assert httpx.get(f"{our_server}/observation", params={"id": id}).json() == "higher"
    last = httpx.post(f"{our_server}/step", json={"id": id, "action": "2"}).json()
    assert (last["done"], last["result"]["truncated"]) == (True, True)  # max_turns of the server's own arguments
    assert httpx.post(f"{our_server}/close", json={"id": id}).json() is True


async def test_our_server_speaks_the_babyai_dialect(our_server):
    secret = Guess().draw(task_for(Guess, seed=5))
    trajectory = await played(item(our_server, 5), [f"I think.\nAction: {secret}"])
    assert (trajectory.success, trajectory.turns[0].reward) == (True, 1.0)


def test_the_server_says_what_it_serves_and_its_whole_schema(our_server):
    version = httpx.get(f"{our_server}/version").json()
    assert version.pop("openmanus_rl") in (None, "0.1.0")
    assert version == {
        "environment": "double-guess",
        "max_turns": 6,
        "deterministic": True,
        "instructions": "Find the number.",
    }
    paths = httpx.get(f"{our_server}/openapi.json").json()["paths"]
    assert {f"{method} {path}" for path, methods in paths.items() for method in methods} == {
        *("post /create", "post /reset", "post /step", "post /close"),
        *("get /observation", "get /health", "get /version"),
    }


def test_a_server_that_stops_closes_every_instance():
    recorder = registry.environment_class(name_of(Recorder))
    recorder.closes = 0
    with served(name_of(Recorder)) as address:
        for _ in range(3):
            httpx.post(f"{address}/create")
    assert recorder.closes == 3
