"""MCP servers as toolboxes, with real servers on loopback: a session an episode, and every failure typed."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="the package 'mcp' is not installed (pip install openmanus-rl[mcp])")

from agentgym_rl.environments import mcp_session
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.mcp_toolbox import HttpServer, McpToolbox, StdioServer
from agentgym_rl.environments.registry import opened
from agentgym_rl.episode import play
from agentgym_rl.errors import ConfigurationError, Manner, ToolFailed
from agentgym_rl.messages import ToolCall, assistant
from agentgym_rl.policy import ScriptedPolicy
from agentgym_rl.task import Task
from agentgym_rl.tool_calls import render_calls

SCRIPT = str(Path(__file__).parent / "doubles_mcp_server.py")


class Numbers(McpToolbox):
    """Tools of the servers that the task names, and one of its own."""

    def double(self, number: int) -> int:
        """Double a number."""
        return 2 * number

    functions = (double,)

    def servers(self, task):
        urls = task.arguments.get("urls", [])
        commands = task.arguments.get("commands", [])
        return [*map(HttpServer, urls), *(StdioServer(command[0], tuple(command[1:])) for command in commands)]

    def check(self, answer, task):
        return float(answer == "3")


def task_with(**arguments):
    return Task("t", f"{__name__}:Numbers", {"question": "1 + 2?", **arguments})


def stdio_task(**arguments):
    return task_with(commands=[[sys.executable, SCRIPT]], **arguments)


def http_task(*urls):
    return task_with(urls=list(urls))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Served:
    """The server as a process that talks HTTP."""

    def __init__(self, log):
        self.log, port = log, free_port()
        self.url = f"http://127.0.0.1:{port}/mcp"
        with log.open("w") as out:
            self.process = subprocess.Popen([sys.executable, SCRIPT, str(port)], stdout=out, stderr=out)
        while "Uvicorn running" not in log.read_text():
            assert self.process.poll() is None, log.read_text()
            time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def deletes(self):
        """How many sessions were ended."""
        return self.log.read_text().count('"DELETE /mcp')

    async def has_deleted(self, count):
        """Wait for it."""
        while self.deletes() < count:
            await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """For all tests: a start takes about a second."""
    served = Served(tmp_path_factory.mktemp("served") / "log")
    yield served
    served.kill()


@pytest.fixture
def doomed(tmp_path):
    """For a test that ends it."""
    served = Served(tmp_path / "log")
    yield served
    served.kill()


async def begun(task):
    environment = Numbers()
    await environment.reset(task)
    return environment


async def called(environment, name, **arguments):
    result = await environment.step(assistant("", (ToolCall(name, arguments, "id"),)))
    return result.observation[0].content, result.valid


async def gone(pid):
    """Wait until a process is no more."""
    while Path(f"/proc/{pid}").exists():
        await asyncio.sleep(0.02)


async def test_an_episode_over_stdio_calls_answers_and_leaves_no_process():
    environment = await begun(stdio_task(tool_format="native"))
    schemas = {tool.name: tool for tool in environment.tools}
    assert list(schemas) == ["double", "add", "note", "read", "spell", "leaves", "hang", "crash", "process"]
    assert schemas["add"].description == "Add two numbers."
    assert schemas["add"].parameters["properties"]["b"] == {"default": 1, "type": "integer"}
    assert "$defs" in schemas["leaves"].parameters  # it contains itself, and can't be written out
    assert await called(environment, "add", a=1, b=2) == ("3", True)
    assert await called(environment, "leaves", tree={"value": 1, "children": [{"value": 2}] * 3}) == ("3", True)
    assert await called(environment, "double", number=4) == ("8", True)
    pid, _ = await called(environment, "process")
    assert (await environment.step(assistant("3"))).success
    await asyncio.wait_for(gone(pid), 5)
    await environment.close()


async def test_what_a_regular_expression_decides_is_left_to_the_server(served):
    environment = await begun(http_task(served.url))
    told, valid = await called(environment, "spell", word="x")
    assert "String should match pattern '^[a-f]+$'" in told
    assert valid
    assert await called(environment, "spell", word="face") == ("f-a-c-e", True)
    await environment.close()


async def test_what_a_server_calls_an_error_is_a_result_and_a_wrong_call_is_told(served):
    environment = await begun(http_task(served.url))
    refusal, valid = await called(environment, "read", path="/x")
    assert "no such file: /x" in refusal
    assert valid
    allowed = "It takes: a (integer), b (integer, optional)"
    for arguments, wrong in [
        ({"a": "one"}, "a: 'one' is not of type 'integer'"),
        ({}, "'a' is a required property"),
        ({"a": "x" * 10**6}, "a: 'x"),
    ]:
        told, valid = await called(environment, "add", **arguments)
        assert told.startswith(f"add was called wrongly: {wrong}")
        assert told.endswith(allowed)
        assert len(told) < 400
        assert not valid
    assert (await called(environment, "ad"))[0] == "There is no tool 'ad'; did you mean 'add'?"
    await environment.close()


async def test_each_episode_has_a_session_of_its_own():
    environment = await begun(stdio_task())
    assert await called(environment, "note", number=1) == ("[1]", True)
    pid, _ = await called(environment, "process")
    await environment.reset(stdio_task())
    assert not Path(f"/proc/{pid}").exists()
    assert await called(environment, "note", number=2) == ("[2]", True)
    await environment.close()
    await environment.close()


async def test_a_server_that_crashes_in_a_call_is_a_failure_that_shows_its_last_words():
    async with opened(f"{__name__}:Numbers") as environment:
        trajectory = await play(
            ScriptedPolicy([render_calls([ToolCall("crash")], "hermes")]), environment, stdio_task()
        )
    assert trajectory.failure.cause == "tool_crashed"
    assert "the server is gone; its stderr:" in trajectory.failure.message
    assert "the disk is full" in trajectory.failure.message


async def test_a_server_that_is_killed_between_two_calls_is_a_failure():
    environment = await begun(stdio_task())
    pid, _ = await called(environment, "process")
    os.kill(int(pid), signal.SIGKILL)
    with pytest.raises(ToolFailed, match="tool 'add' of MCP server '.*doubles_mcp_server.py' raised") as failed:
        await called(environment, "add", a=1)
    assert failed.value.manner is Manner.CRASHED
    await environment.close()


async def test_a_server_that_hangs_is_a_failure_by_the_deadline_and_is_killed(monkeypatch):
    environment = await begun(stdio_task())
    pid, _ = await called(environment, "process")
    monkeypatch.setattr(Numbers, "call_seconds", 0.2)
    with pytest.raises(ToolFailed, match="tool 'hang' gave no answer within 0.2 s") as failed:
        await called(environment, "hang")
    assert failed.value.manner is Manner.TIMED_OUT
    await environment.close()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("code", "message"),
    [("raise SystemExit('no licence')", "the server is gone; its stderr:\nno licence"), ("print('hello')", "is gone")],
)
async def test_a_server_that_ends_while_it_is_opened_is_a_failure(code, message):
    with pytest.raises(ToolFailed, match=message) as failed:
        await begun(task_with(commands=[[sys.executable, "-c", code]]))
    assert failed.value.manner is Manner.CRASHED


async def test_a_server_that_never_answers_is_a_failure_and_its_process_ends(monkeypatch, served):
    monkeypatch.setattr(mcp_session, "OPEN_SECONDS", 2.0)
    environment = Numbers()
    silent = [sys.executable, "-c", "import time; time.sleep(30)"]
    with pytest.raises(ToolFailed, match="opening MCP server .* gave no answer within 2 s") as failed:
        await environment.reset(task_with(urls=[served.url], commands=[silent]))
    assert failed.value.manner is Manner.TIMED_OUT
    await environment.close()
    children = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "time.sleep"], capture_output=True, text=True)
    assert children.stdout == ""


async def test_a_command_that_is_not_there_is_wrong_configuration():
    with pytest.raises(ConfigurationError, match="MCP server 'no-such-program' can't be started"):
        await begun(task_with(commands=[["no-such-program"]]))


async def test_two_servers_with_the_same_tool_are_refused(served):
    environment = Numbers()
    with pytest.raises(ConfigurationError, match="2 tools are called 'add'"):
        await environment.reset(http_task(served.url, served.url))
    await environment.close()


async def test_an_episode_over_http_has_a_session_that_is_ended_with_it(served):
    environment = await begun(http_task(served.url))
    before = served.deletes()
    assert await called(environment, "add", a=1, b=2) == ("3", True)
    assert served.deletes() == before
    assert (await environment.step(assistant("3"))).success
    await served.has_deleted(before + 1)
    await environment.reset(http_task(served.url))
    await environment.close()
    await served.has_deleted(before + 2)


async def test_a_server_over_http_that_goes_during_a_call_or_before_it_is_a_failure(doomed):
    environments = [await begun(http_task(doomed.url)) for _ in range(2)]
    for environment, tool in zip(environments, ("crash", "process"), strict=True):
        with pytest.raises(ToolFailed, match=f"tool '{tool}' of MCP server 'http.*; the server is gone") as failed:
            await called(environment, tool)
        assert failed.value.manner is Manner.CRASHED
        await environment.close()


async def test_a_server_over_http_that_is_not_there_is_a_failure():
    with pytest.raises(ToolFailed, match="the server is gone") as failed:
        await begun(http_task(f"http://127.0.0.1:{free_port()}/mcp"))
    assert failed.value.manner is Manner.CRASHED


async def test_an_mcp_toolbox_keeps_every_rule_of_the_contract(served):
    (await check_environment(f"{__name__}:Numbers", [http_task(served.url)])).raise_if_failed()


async def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(ConfigurationError, match=r'need the package \'mcp\': pip install "openmanus-rl\[mcp\]"'):
        await begun(stdio_task())
