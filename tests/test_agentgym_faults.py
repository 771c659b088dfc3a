"""Each fault of a server and of the network is its typed failure; what a task gets wrong stops the run."""

import socket

import pytest
from doubles_agentgym import FAULTS, Recorded, faulty, item, played, remote, running

from agentgym_rl.environments import registry
from agentgym_rl.environments.agentgym import connection
from agentgym_rl.environments.agentgym.dialects import after_action_word, sql_block
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.policy import ScriptedPolicy
from agentgym_rl.task import Task


@pytest.fixture
async def environment():
    async with registry.opened("agentgym") as made:
        yield made


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
