"""`serve`: what it runs, whom it lets in, and what its clients never choose."""

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
    Guess,
    name_of,
)
from doubles_agentgym import content, expert_episode, played, remote, running, served

from agentgym_rl.environments import registry
from agentgym_rl.environments.agentgym import connection
from agentgym_rl.environments.agentgym.service import Service, listening, serve
from agentgym_rl.environments.toolbench.environment import KEY_VARIABLE
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.task import Task


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
