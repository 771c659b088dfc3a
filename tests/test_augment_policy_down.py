"""The command while the policy's server is down, hangs and comes back, and after a kill: nothing is played twice."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import typer
from doubles_agentgym import listening, running
from doubles_augment import record_of
from doubles_cli import Stairs, stairs
from doubles_judge import SILENT, ScriptedChat, chat_server
from doubles_store import ids, store_of
from typer.testing import CliRunner

from agentgym_rl.commands.augment import add_to
from agentgym_rl.data.augment import FAMILIES_FILE
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.versions import code_version
from agentgym_rl.evaluation.policies import KINDS, Kind
from agentgym_rl.policy import ScriptedPolicy
from agentgym_rl.task import Task

NAMES = "abcd"

app = typer.Typer()
add_to(app)


@app.callback()
def _several_commands():
    """One command alone would take no name."""


def command(folder, policy, *more, out="out"):
    given = ["--store", folder / "source", "--out", folder / out, "--rule", "prefix=2", "--continue-with", policy]
    return ["augment", *map(str, given), *more]


def run(*arguments, **options):
    result = CliRunner().invoke(app, command(*arguments, **options), env={"COLUMNS": "200"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def numbers(result):
    """What the table says."""
    rows = [line.rsplit(None, 1) for line in result.stdout.splitlines()[2:]]
    return {row[0].strip(): int(row[1]) for row in rows if len(row) == 2}


def digests(folder):
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


class Server:
    """Policies that fail for these tasks."""

    def __init__(self):
        self.down_for = set()

    def __call__(self, environment, task, episode):
        return Unreachable() if task.id in self.down_for else ScriptedPolicy(["up"] * 9)


class Unreachable:
    async def reply(self, conversation):
        raise ConnectionError("connection refused")


@pytest.fixture
def server(monkeypatch):
    made = Server()
    monkeypatch.setitem(KINDS, "served", Kind("served", lambda *_: nullcontext(made)))
    return made


@pytest.fixture
def folder(tmp_path):
    """Not solved, so that whoever goes on after their beginning does another thing."""
    store_of(tmp_path / "source", *(record_of(stairs(name), "up", "down", "down") for name in NAMES))
    return tmp_path


def test_only_what_the_policy_failed_is_played_again_and_then_the_store_is_what_it_would_be(folder, server):
    run(folder, "served", out="whole")
    server.down_for = {"b", "d"}
    failed = run(folder, "served")
    assert failed.exit_code == 1
    said = f"the policy failed 4 tries; the same command plays them again, or, with --finish, makes {folder / 'out'}"
    assert f"{said} without them" in failed.stderr
    assert numbers(failed)["so far"] == 4 + numbers(failed)["new"]
    assert not (folder / "out").exists()
    server.down_for = {"d"}
    Stairs.played.clear()
    assert "the policy failed 2 tries" in run(folder, "served").stderr
    assert set(Stairs.played) == {"b", "d"}
    server.down_for = set()
    Stairs.played.clear()
    done = run(folder, "served")
    assert (done.exit_code, set(Stairs.played)) == (0, {"d"})
    assert "the policy failed" not in done.stderr
    assert digests(folder / "out") == digests(folder / "whole")
    assert sorted(path.name for path in folder.iterdir()) == ["out", "source", "whole"]


def test_what_the_policy_fails_for_ever_can_be_left_out(folder, server):
    run(folder, "served", out="whole")
    everything = list(TrajectoryStore(folder / "whole").records())
    for server.down_for in ({"b", "c"}, {"b"}):
        assert run(folder, "served").exit_code == 1
    Stairs.played.clear()
    done = run(folder, "served", "--finish")
    assert (done.exit_code, Stairs.played) == (0, [])
    said = f"the policy failed 2 tries; {folder / 'out'} was made without them; to play them again, remove it"
    assert said in done.stderr
    assert (numbers(done)["given"], numbers(done)["rejected: policy_raised"]) == (4, 2)
    failed = {one.id for one in everything if one.provenance.parent and one.trajectory.task.id == "b"}
    assert failed
    assert ids(TrajectoryStore(folder / "out")) == [one.id for one in everything if one.id not in failed]
    again = run(folder, "served")
    assert (again.exit_code, again.stdout, Stairs.played) == (1, done.stdout, [])


def test_a_server_that_was_down_is_asked_once_it_is_there(folder):
    pytest.importorskip("openai", reason="openai is not installed")
    with listening("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    policy = f"server:m@http://127.0.0.1:{port}/v1"
    down = run(folder, policy)
    assert (down.exit_code, (folder / "out").exists()) == (1, False)
    with running(ScriptedChat(otherwise=lambda request: "up"), port):
        up = run(folder, policy)
    assert (up.exit_code, numbers(up)["kept"]) == (0, 8)


def asked_for(request):
    """The number of the parent that a request goes on from."""
    return int(re.search(r"parent (\d+)", str(request["messages"]))[1])


COMMAND = """
import sys
from agentgym_rl.cli import app
from agentgym_rl.data import augment_family

version = sys.argv.pop()
augment_family.code_version = lambda: version
app()
"""


@pytest.mark.slow
def test_killed_again_and_again_the_command_goes_on_where_it_was(tmp_path):
    pytest.importorskip("openai", reason="openai is not installed")
    tasks = [Task(f"t{number}", "doubles_cli:Stairs", {"note": f"parent {number}"}) for number in range(6)]
    store_of(tmp_path / "source", *(record_of(task, "up", "down", "down") for task in tasks))
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    families = tmp_path / ".out.unfinished" / FAMILIES_FILE
    with chat_server() as chat:
        for answered in (0, 1, 3, 5):

            def answer(request, ends=answered):
                return "up" if asked_for(request) < ends else SILENT

            with chat(otherwise=answer) as (server, settings):
                policy = f"server:m@{settings.url}"
                arguments = command(tmp_path, policy, "--concurrency", "2")
                cli = [sys.executable, "-c", COMMAND, *arguments, code_version()]
                with subprocess.Popen(cli, env=variables, stderr=subprocess.DEVNULL) as process:
                    while not server.now or answered > (families.exists() and families.read_bytes().count(b"\n")):
                        assert process.poll() is None
                        time.sleep(0.01)
                    process.send_signal(signal.SIGKILL)
        with chat(otherwise=lambda request: "up") as (server, _):
            done = subprocess.run(cli, env=variables, capture_output=True, text=True, check=True, timeout=120)
            assert {asked_for(request) for request in server.requests} == {5}
            assert run(tmp_path, policy, "--concurrency", "2", out="whole").stdout == done.stdout
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")
