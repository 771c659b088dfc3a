"""Environments over AgentGym's HTTP protocol: the same episodes as without it, and each fault as its typed failure."""

import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path

import doubles_toolbench
import httpx
import pytest
import uvicorn
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
from doubles_agentgym import FAULTS, Recorded, faulty, running, served

from agentgym_rl.environment import StepResult
from agentgym_rl.environments import registry
from agentgym_rl.environments.agentgym import connection
from agentgym_rl.environments.agentgym.dialects import DIALECTS, after_action_word, sql_block
from agentgym_rl.environments.agentgym.instances import Instances, Refused
from agentgym_rl.environments.agentgym.service import Service, listening, serve
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.toolbench.environment import KEY_VARIABLE
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed, Manner
from agentgym_rl.messages import ToolCall, assistant, user
from agentgym_rl.policy import ExpertPolicy, ScriptedPolicy
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason


def remote(address, seed=0, turns=64, **arguments):
    """The task that plays `arguments` on our server."""
    return Task("t", "agentgym", {"server": address, "arguments": arguments, "max_turns": turns}, seed=seed)


def item(address, number=3, dialect="babyai"):
    """The task with this number on one of AgentGym's servers."""
    return Task("t", "agentgym", {"server": address, "dialect": dialect, "item": number})


@pytest.fixture
async def environment():
    async with registry.opened("agentgym") as made:
        yield made


async def played(task, lines, limits=None):
    """The episode of a policy that says these lines."""
    async with registry.opened(task.environment) as environment:
        return await play(ScriptedPolicy(lines), environment, task, limits)


async def expert_episode(task):
    """The episode without the protocol, and the expert's lines."""
    async with registry.opened(task.environment) as environment:
        trajectory = await play(ExpertPolicy(environment), environment, task)
    return trajectory, [turn.reply.message.content for turn in trajectory.turns]


def content(trajectory):
    """All of a trajectory but its task and the seconds."""
    turns = [(turn.reply, turn.observation, turn.reward, turn.valid, dict(turn.info)) for turn in trajectory.turns]
    failure = trajectory.failure and (trajectory.failure.cause, trajectory.failure.message)
    return trajectory.opening, turns, trajectory.stop, trajectory.success, failure, trajectory.fingerprint


# Our server


@pytest.mark.parametrize("double", [Guess, Countdown])
async def test_an_episode_through_the_protocol_is_the_episode_without_it(double):
    with served(name_of(double)) as address:
        for seed in (0, 5):
            direct, lines = await expert_episode(task_for(double, seed=seed))
            assert content(await played(remote(address, seed), lines)) == content(direct)
            assert direct.stop is StopReason.TERMINATED


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


# what acts on the server's machine


async def test_a_client_does_not_choose_the_servers_files_and_plays_with_those_that_it_was_started_with(tmp_path):
    secret, words = tmp_path / "secret.txt", tmp_path / "words.txt"
    secret.write_text("hunter2")
    words.write_text("crane")
    with served("wordle", arguments={"answers_file": str(words)}) as address:
        id = httpx.post(f"{address}/create").json()["id"]
        asked = {"id": id, "task": {"arguments": {"guesses_file": str(secret), "answers_file": str(secret)}}}
        refused = httpx.post(f"{address}/reset", json=asked)
        assert (refused.status_code, refused.json()["error"]) == (
            400,
            "the server sets answers_file, guesses_file itself",
        )
        assert refused.json()["detail"]["traceback"] == ""
        assert "hunter2" not in refused.text
        with pytest.raises(DataError, match="^the server sets answers_file itself$"):
            await played(remote(address, answers_file=str(secret)), [])
        assert (await played(remote(address, word="crane"), ["crane"])).success  # a word of the server's own list


async def test_a_client_chooses_neither_whom_toolbench_asks_nor_its_folder_nor_the_code_that_judges(
    monkeypatch, tmp_path
):
    monkeypatch.setenv(KEY_VARIABLE, "only for our own server")
    ours, theirs = doubles_toolbench.Virtual(), doubles_toolbench.Virtual()
    lines = [doubles_toolbench.call(doubles_toolbench.SEARCH_NAME, name="messi"), doubles_toolbench.finish()]
    with running(ours.app) as our_url, running(theirs.app) as their_url:
        arguments = {"url": our_url, "judge": "doubles_toolbench:names_the_id"}
        with served("toolbench", arguments=arguments) as address:
            asked = dict(doubles_toolbench.task(their_url).arguments)
            del asked["url"]
            for name, value in (("url", their_url), ("cache", str(tmp_path / "new")), ("judge", "os:getcwd")):
                with pytest.raises(DataError, match=f"^the server sets {name} itself$"):
                    await played(remote(address, **asked, **{name: value}), [])
            over = await played(remote(address, **asked), lines)
    assert (over.success, over.turns[-1].reward) == (True, 1.0)
    assert [request["toolbench_key"] for request in ours.requests] == ["only for our own server"]
    assert theirs.requests == []
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("agentgym", {"server"}),
        ("alfworld", {"file"}),
        ("gymnasium", {"id", "kwargs", "renderer"}),
        ("gymnasium-text", {"id", "kwargs", "renderer"}),
        ("textworld", {"file"}),
        ("toy-text", set()),
    ],
)
def test_arguments_that_name_files_addresses_or_code_are_known(name, arguments):
    assert registry.environment_class(name).host_arguments == arguments


# serve()


async def test_serve_plays_babyai_in_another_process_and_stops_on_sigterm():
    direct, lines = await expert_episode(Task("t", "babyai", {"level": "GoToObj"}, seed=3))
    script = (
        "from agentgym_rl.environments.agentgym.service import Service, listening, serve\n"
        "serve(Service('babyai'), port=0, announce=lambda line: print(line, flush=True))"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent
    )
    try:
        said, _, address = server.stdout.readline().rpartition(" ")
        assert said == "serving babyai on"
        over = await played(remote(address.strip(), 3, level="GoToObj"), lines)
        assert content(over) == content(direct)
        assert over.success
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) in (0, -signal.SIGTERM)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "double-gess"}, "no environment 'double-gess'; did you mean 'double-guess'?"),
        ({"max_instances": 0}, "max_instances must be above 0; given: 0"),
        ({"lease_seconds": -1.0}, "lease_seconds must be above 0; given: -1.0"),
        ({"max_body_bytes": 0}, "max_body_bytes must be above 0; given: 0"),
        ({"isolation": "proces"}, "no isolation 'proces'; did you mean 'process'?"),
        ({"errors": "http"}, "no errors 'http'; known: agentgym, status"),
        ({"token": ""}, "the token of a server must not be empty; None serves without one"),
    ],
)
def test_a_service_that_can_not_work_is_refused_at_once(options, message):
    with pytest.raises(ConfigurationError) as caught:
        serve(Service(**{"name": name_of(Guess), **options}), port=0)
    assert str(caught.value) == message


def test_a_taken_port_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"can't listen on 127.0.0.1:{port}: .*in use"):
            serve(Service(name_of(Guess)), port=port)


@pytest.mark.parametrize(("options", "warned"), [({}, True), ({"token": "t"}, False)])
def test_serving_beyond_this_machine_without_a_token_is_warned_about(monkeypatch, caplog, options, warned):
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    lines = []
    serve(Service(name_of(Guess), **options), "0.0.0.0", 0, lines.append)
    assert ("without a token: whoever reaches" in caplog.text) is warned
    assert lines[0].startswith("serving double-guess on http://0.0.0.0:")


def test_answers_are_not_held_back_until_the_last_one_is_acknowledged():
    with listening("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("uvicorn", lambda: serve(Service(name_of(Guess)), port=0)),
        ("httpx", lambda: connection.Connection("http://127.0.0.1:1")),
    ],
)
def test_a_missing_package_says_what_to_install(monkeypatch, package, use):
    connection._httpx.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf"needs '{package}': pip install \"openmanus-rl\[agentgym\]\""):
        use()


# The network's faults


EXPECTED = {
    # fault: how the failure comes about, and what it says
    "closes without an answer": ("crashed", "RemoteProtocolError: Server disconnected without sending a response"),
    "cut in the middle": ("crashed", "RemoteProtocolError: peer closed connection"),
    "cut in the header": ("crashed", "RemoteProtocolError"),
    "not http": ("crashed", "RemoteProtocolError: illegal status line"),
    "status 500": ("raised", "answered 500: 'Internal Server Error'"),
    "status 502": ("crashed", "answered 502: '<html>Bad Gateway</html>'"),
    "status 503": ("raised", "answered 503: ''"),
    "status 504": ("timed_out", ": upstream"),
    "redirected": ("raised", "answered 302: ''"),
    "truncated json": ("raised", """answered no JSON: '{"observation": "hal'"""),
    "no utf-8": ("raised", "answered no JSON: "),
    "broken gzip": ("raised", "DecodingError: "),
    "error with status 200": ("raised", ": The id 7 is not valid."),
    "error with malformed detail": ("raised", ": no room"),
    "too long": ("raised", "answered more than 1000 bytes"),
    "no object": ("raised", "the server answered without '...'; given: list"),
    "no observation": ("raised", "the server answered without '...'; given: 'reward', 'done'"),
    "observation is no text": ("raised", "the server's 'observation' must be of type str; given: 3"),
}


def test_every_fault_is_expected():
    assert set(EXPECTED) | {"hangs"} == set(FAULTS)


@pytest.mark.parametrize("route", ["/create", "/reset", "/step"])
@pytest.mark.parametrize("fault", EXPECTED)
async def test_a_fault_of_the_network_is_its_typed_failure(monkeypatch, fault, route):
    monkeypatch.setattr(connection, "ANSWER_BYTES", 1000)
    cause, message = EXPECTED[fault]
    field = "id" if route == "/create" else "observation"
    if fault == "observation is no text" and route == "/create":
        message = "the server answered without 'id'; given: 'observation', 'reward', 'done'"
    async with faulty(fault, route) as address:
        trajectory = await played(item(address), ["left", "right"])
    assert trajectory.failure.cause == f"environment_{cause}"
    assert message.replace("...", field) in trajectory.failure.message
    assert (len(trajectory.opening) > 0, trajectory.turns) == (route == "/step", ())


@pytest.mark.parametrize(("route", "call"), [("/create", "reset"), ("/reset", "reset"), ("/step", "step")])
async def test_a_server_that_hangs_is_waited_for_until_the_deadline_and_no_longer(route, call):
    limits = Limits(reset_seconds=0.5, step_seconds=0.5)
    async with faulty("hangs", route) as address:
        trajectory = await played(item(address), ["left"], limits)
    assert trajectory.failure.cause == "environment_timed_out"
    assert trajectory.failure.message == f"{call} of environment 'agentgym' gave no answer within 0.5 s"


async def test_a_server_that_is_not_there_is_a_crash():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    trajectory = await played(item(f"http://127.0.0.1:{port}"), ["left"])
    assert trajectory.failure.cause == "environment_crashed"
    assert f"POST http://127.0.0.1:{port}/create: ConnectError" in trajectory.failure.message


async def test_a_close_that_hangs_is_given_up_soon(environment, monkeypatch):
    monkeypatch.setattr("agentgym_rl.environments.agentgym.client.CLOSE_SECONDS", 0.1)
    async with faulty("hangs", "/close") as address:
        await environment.reset(item(address))
        await environment.close()
        await environment.close()
    with pytest.raises(EnvironmentFailed, match="was used after close"):
        await environment.reset(item(address))


@pytest.mark.parametrize(
    ("fault", "kept"), [("hangs", False), ("cut in the middle", False), ("error with status 200", True)]
)
async def test_an_instance_whose_step_may_still_be_under_way_is_not_used_again(environment, fault, kept):
    async with faulty(fault, "/step") as address:
        await play(ScriptedPolicy(["left"]), environment, item(address), Limits(step_seconds=0.5))
        first = environment._instance
        await environment.reset(item(address))
        assert (environment._instance is first) is kept


@pytest.mark.parametrize("server", ["status 500", "no observation"])
async def test_our_own_dialect_refuses_answers_that_are_not_our_servers(server):
    async with faulty(server, "/reset") as address:
        trajectory = await played(remote(address), ["7"])
    assert trajectory.failure.cause == "environment_raised"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"messages": [{"role": "boss"}], "instructions": ""}, "the server answered 'messages' malformed: .*'boss'"),
        ({"messages": "hello", "instructions": ""}, "the server's 'messages' must be of type list or dict"),
        ({"messages": []}, "the server answered without 'instructions'; given: 'messages'"),
    ],
)
async def test_a_malformed_message_of_a_server_is_its_failure_and_no_wrong_data_of_ours(environment, answer, message):
    with running(Recorded({"/create": [{"id": 7}], "/reset": [answer]})) as address:
        with pytest.raises(EnvironmentFailed, match=message):
            await environment.reset(remote(address))


# What a task says


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "server must read 'http://host:port'; given: None"),
        ({"server": "localhost:36001"}, "server must read 'http://host:port'; given: 'localhost:36001'"),
        ({"server": "http://h", "dialect": "baby"}, "no dialect 'baby' of an AgentGym server; did you mean 'babyai'?"),
        ({"server": "http://h", "dialect": "babyai"}, "item must be a whole number of at least 0; given: None"),
        (
            {"server": "http://h", "dialect": "babyai", "item": True},
            "item must be a whole number of at least 0; given: True",
        ),
        (
            {"server": "http://h", "item": 3},
            "a task of an AgentGym server with the dialect 'openmanus' has no 'item'; known: ",
        ),
        ({"server": "http://h", "arguments": [1]}, "arguments must be an object; given: [1]"),
        ({"server": "http://h", "max_turns": 0}, "max_turns must be a whole number of at least 1; given: 0"),
        ({"server": "http://h:x"}, "'http://h:x' is no address of a server: "),
    ],
)
async def test_wrong_arguments_of_a_task_stop_the_run(environment, arguments, message):
    with pytest.raises(ConfigurationError) as caught:
        await environment.reset(Task("t", "agentgym", arguments))
    assert str(caught.value).startswith(message)


async def test_a_step_before_reset_is_a_failure(environment):
    with pytest.raises(EnvironmentFailed, match="stepped before reset"):
        await environment.step(assistant("7"))


@pytest.mark.parametrize(
    ("reply", "action", "statement"),
    [
        ("go left", "go left", "go left"),
        ("Thought:\nleft.\n\nAction:\ngo left", "go left", "Thought:\nleft.\n\nAction:\ngo left"),
        ("Action: go right? No. Action: go left\n", "go left", "Action: go right? No. Action: go left"),
        ("Action: ```sql\nSELECT 1;\n```", "```sql\nSELECT 1;\n```", "SELECT 1;"),
        ("```\nSELECT 1\n``` or ```SQL SELECT 2 ```", "```\nSELECT 1\n``` or ```SQL SELECT 2 ```", "SELECT 2"),
        ("", "", ""),
    ],
)
def test_the_action_is_what_follows_its_word_and_a_statement_what_stands_in_its_block(reply, action, statement):
    assert after_action_word(reply) == action
    assert sql_block(reply) == statement


# AgentGym's own servers, in the shapes of their answers


TOOL = (
    # agentenv-tool/agentenv_movie/movie_server.py and its four siblings; reward is that so far (movie_env.py, update)
    {
        "/create": [0],
        "/reset": ["Now new trial starts.\nGoal."],
        "/step": [
            {"observation": "Observation: {}\nGive me one action.", "reward": 0.5, "done": False},
            {"observation": "Observation: 3", "reward": 1.0, "done": True},
        ],
    },
    [("POST /create", {"id": 0}), ("POST /reset", {"env_idx": 0, "id": 3})],
    ("POST /step", {"env_idx": 0, "action": "Thought: t\n\nAction: go"}),
    "Now new trial starts.\nGoal.",
    [StepResult.going_on("Observation: {}\nGive me one action.", 0.5), StepResult.at_end(0.5, True, "Observation: 3")],
)

RECORDED = {
    # dialect: answers by route, what is asked up to the first observation, the first step asked for, what the policy
    # sees first, what the steps are read as
    "alfworld": (  # agentenv-alfworld/agentenv_alfworld/env_wrapper.py
        {
            "/create": [{"id": 4}],
            "/reset": [
                {
                    "id": 4,
                    "observation": "You are in a room.",
                    "available_actions": ["look", "go to bed 1"],
                    "task_type": "p/t",
                }
            ],
            "/step": [
                {"observation": "A bed.", "reward": 0.0, "available_actions": ["look"], "done": False},
                {"observation": "Won.", "reward": 1.0, "available_actions": [], "done": True},
            ],
        },
        [("POST /create", None), ("POST /reset", {"id": 4, "game": 3, "world_type": "Text"})],
        ("POST /step", {"id": 4, "action": "go"}),
        "You are in a room.\nAvailable actions: look, go to bed 1",
        [
            StepResult.going_on("A bed.\nAvailable actions: look"),
            StepResult.at_end(1.0, True, "Won.\nAvailable actions: "),
        ],
    ),
    "babyai": (  # agentenv-babyai/agentenv_babyai/environment.py
        {
            "/create": [{"id": 0}],
            "/reset": [{"observation": "Your goal: go", "reward": 0, "score": 0, "deleted": False, "done": False}],
            "/step": [
                {"observation": "Wall.", "reward": 0, "score": 0, "done": False},
                {"observation": "The task is completed.", "reward": 0.859375, "score": 0.859375, "done": True},
            ],
        },
        [("POST /create", None), ("POST /reset", {"id": 0, "data_idx": 3})],
        ("POST /step", {"id": 0, "action": "go"}),
        "Your goal: go",
        [StepResult.going_on("Wall."), StepResult.at_end(0.859375, True, "The task is completed.")],
    ),
    "sciworld": (  # agentenv-sciworld/agentenv_sciworld: recorded from that server with scienceworld 1.2.3, shortened
        {
            "/create": [{"id": 0}],
            "/reset": [
                {
                    "task_name": "boil",
                    "var_num": 10,
                    "task_description": "Your task is to boil chocolate.",
                    "observation": "This room is called the art studio. In it, you see: \n\tthe agent",
                    "reward": 0,
                    "score": 0,
                    "deleted": False,
                    "done": False,
                }
            ],
            "/step": [
                {"observation": "In your inventory, you see:\n\tan orange", "reward": 0, "score": 0, "done": False},
                {"observation": "You focus on the orange.", "reward": -100, "score": -100, "done": True},
            ],
        },
        [("POST /create", None), ("POST /reset", {"id": 0, "data_idx": 3})],
        ("POST /step", {"id": 0, "action": "go"}),
        "Your task is to boil chocolate.\nThis room is called the art studio. In it, you see: \n\tthe agent",
        [
            StepResult.going_on("In your inventory, you see:\n\tan orange"),
            StepResult.at_end(-100.0, False, "You focus on the orange."),
        ],
    ),
    "textcraft": (  # agentenv-textcraft/agentenv_textcraft/env_wrapper.py
        {
            "/create": [{"id": 2, "observation": "Goal: craft a.", "done": False, "reward": 0}],
            "/reset": [{"id": 2, "observation": "Goal: craft b.", "done": False, "reward": 0}],
            "/step": [
                {"observation": "Got 1 log", "reward": 0, "done": False},
                {"observation": "Crafted 1 minecraft:b", "reward": 1, "done": True},
            ],
        },
        [("POST /create", {}), ("POST /reset", {"id": 2, "data_idx": 3})],
        ("POST /step", {"id": 2, "action": "go"}),
        "Goal: craft b.",
        [StepResult.going_on("Got 1 log"), StepResult.at_end(1.0, True, "Crafted 1 minecraft:b")],
    ),
    "maze": (  # agentenv-lmrlgym/agentenv_lmrlgym/maze/environment.py
        {
            "/maze/create": [{"id": 0}],
            "/maze/reset": [{"observation": "The goal is at position 8, 6."}],
            "/maze/step": [
                {"observation": "There are walls.", "reward": -1.0, "done": False},
                {"observation": "Success", "reward": 0.0, "done": True},
            ],
        },
        [("POST /maze/create", None), ("POST /maze/reset", {"id": 0, "game": 3})],
        ("POST /maze/step", {"id": 0, "action": "go"}),
        "The goal is at position 8, 6.",
        [StepResult.going_on("There are walls.", -1.0), StepResult.at_end(0.0, True, "Success")],
    ),
    "wordle": (  # agentenv-lmrlgym/agentenv_lmrlgym/wordle/environment.py
        {
            "/wordle/create": [{"id": 0}],
            "/wordle/reset": [{"id": 0, "observation": "Let's start Wordle!"}],
            "/wordle/step": [
                {"observation": "b y g g b", "reward": 0, "done": False},
                {"observation": "b y g g b", "reward": 0, "done": True},
            ],
        },
        [("POST /wordle/create", None), ("POST /wordle/reset", {"id": 0, "seed": 3})],
        ("POST /wordle/step", {"id": 0, "action": "go"}),
        "Let's start Wordle!",
        [StepResult.going_on("b y g g b"), StepResult.at_end(0.0, False, "b y g g b")],
    ),
    "webshop": (  # agentenv-webshop/agentenv_webshop/server.py, model.py
        {
            "/create": [48950075],
            "/reset": [["", None]],
            "/observation": ["WebShop [SEP] Search"],
            "/step": [
                {"state": "Page 1", "reward": 0.0, "done": False, "info": None},
                {"state": "Thank you", "reward": 0.75, "done": True, "info": None},
            ],
        },
        [
            ("POST /create", None),
            ("POST /reset", {"env_idx": 48950075, "session_id": 3}),
            ("GET /observation", "env_idx=48950075"),
        ],
        ("POST /step", {"env_idx": 48950075, "action": "go"}),
        "WebShop [SEP] Search",
        [StepResult.going_on("Page 1"), StepResult.at_end(0.75, False, "Thank you")],
    ),
    "sqlgym": (  # agentenv-sqlgym/agentenv_sqlgym/server.py
        {
            "/create": [489575],
            "/reset": [["How many rows?", None]],
            "/step": [
                {"state": "no such table: t", "reward": 0.0, "done": False, "info": None},
                {"state": "[(3,)]", "reward": 1.0, "done": True, "info": {"ground_truth": [[3]]}},
            ],
        },
        [("POST /create", None), ("POST /reset", {"env_idx": 489575, "item_id": 3})],
        ("POST /step", {"env_idx": 489575, "action": "Thought: t\n\nAction: go"}),
        "How many rows?",
        [StepResult.going_on("no such table: t"), StepResult.at_end(1.0, True, "[(3,)]")],
    ),
    "webarena": (  # agentenv-webarena/agentenv_webarena/server.py
        {
            "/create": [{"env_idx": 0}],
            "/reset": [{"observation": "[4] RootWebArea"}],
            "/step": [
                {"observation": "OBJECTIVE", "reward": 0.0, "terminated": False, "truncated": False, "info": {}},
                {"observation": "OBJECTIVE", "reward": 0.0, "terminated": False, "truncated": True, "info": None},
            ],
        },
        [("POST /create", None), ("POST /reset", {"env_idx": 0, "idx": 3, "seed": 0})],
        ("POST /step", {"env_idx": 0, "action": "Thought: t\n\nAction: go"}),
        "[4] RootWebArea",
        [StepResult.going_on("OBJECTIVE"), StepResult.cut_off("OBJECTIVE")],
    ),
    "movie": TOOL,
    "weather": TOOL,
    "todo": TOOL,
    "sheet": TOOL,
    "academia": TOOL,
    "searchqa": (  # agentenv-searchqa/agentenv_searchqa/server.py (AgentGym-RL)
        {
            "/create": [0],
            "/reset": ["Question: who?"],
            "/step": [
                {"observation": "<information>x</information>", "reward": 0, "done": False, "info": None},
                {"observation": "Sorry, your answer is incorrect.", "reward": 0, "done": True, "info": None},
            ],
        },
        [("POST /create", {"id": 0}), ("POST /reset", {"env_idx": 0, "id": 3})],
        ("POST /step", {"env_idx": 0, "action": "Thought: t\n\nAction: go"}),
        "Question: who?",
        [
            StepResult.going_on("<information>x</information>"),
            StepResult.at_end(0.0, False, "Sorry, your answer is incorrect."),
        ],
    ),
}


def test_there_are_recorded_answers_of_every_dialect_but_our_own():
    assert set(RECORDED) | {"openmanus"} == set(DIALECTS)


@pytest.mark.parametrize("dialect", RECORDED)
async def test_the_answers_of_agentgyms_servers_are_read_right(dialect):
    answers, asked_first, step_asked, seen, results = RECORDED[dialect]
    server = Recorded(answers)
    with running(server) as address:
        async with registry.opened("agentgym") as environment:
            opening = await environment.reset(item(address, 3, dialect))
            asked = len(server.requests)
            steps = [await environment.step(assistant("Thought: t\n\nAction: go")) for _ in results]
            assert environment.instructions
    assert server.requests[:asked] == asked_first
    assert server.requests[asked] == step_asked
    assert (opening, steps) == ([user(seen)], results)


async def test_a_science_world_task_is_solved_by_its_score_and_not_by_its_last_reward():
    steps = [{"observation": "Hot.", "reward": 75, "score": 75, "done": False}]
    steps += [{"observation": "Boils.", "reward": 25, "score": 100, "done": True}]
    with running(Recorded({**RECORDED["sciworld"][0], "/step": steps})) as address:
        trajectory = await played(item(address, dialect="sciworld"), ["wait", "wait"])
    assert ([turn.reward for turn in trajectory.turns], trajectory.success) == ([75.0, 25.0], True)


async def test_an_error_with_status_200_of_a_real_server_fails_the_step():
    answers = {**RECORDED["babyai"][0], "/step": [{"error": "The task with environment 0 has finished."}]}
    with running(Recorded(answers)) as address:
        trajectory = await played(item(address), ["go"])
    assert trajectory.failure.cause == "environment_raised"
    assert trajectory.failure.message.endswith("/step: The task with environment 0 has finished.")
