"""Policy specs: each kind gives the policy that it names, and a wrong spec says what exists."""

import asyncio
import json
import sys
import threading
import types
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from doubles_cli import stairs
from doubles_toolbox import Numbers, question

from agentgym_rl.environments import registry
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.evaluation.policies import CHECKPOINT_TARGET, Sampling, policies
from agentgym_rl.policy import UNREADABLE, ScriptedPolicy
from agentgym_rl.trajectory import StopReason


async def played(spec, task=None, sampling=None, episode=0):
    """What the policy said, and the trajectory."""
    task = task or stairs("t", height=3)
    with policies(spec, sampling) as make_policy:
        async with registry.opened(task.environment) as environment:
            policy = make_policy(environment, task, episode)
            trajectory = await play(policy, environment, task, Limits(max_turns=12))
    return [turn.reply.message.content for turn in trajectory.turns], trajectory


async def test_the_expert_climbs():
    assert (await played("expert"))[0] == ["up", "up", "up"]


async def test_a_script_is_said_line_by_line_and_then_it_is_out_of_budget():
    said, trajectory = await played("script:up, down ,jump high")
    assert said == ["up", "down", "jump high"]
    assert trajectory.stop is StopReason.TOKEN_BUDGET


async def test_random_actions_repeat_with_the_seed_and_differ_between_episodes_and_tasks():
    high = stairs("high", height=99)
    first, _ = await played("random", high)
    assert set(first) == {"up", "down"}
    assert first == (await played("random", high))[0]
    others = [
        (await played("random", high, episode=1))[0],
        (await played("random", high, Sampling(seed=1)))[0],
        (await played("random", stairs("higher", height=99)))[0],
    ]
    assert all(other != first for other in others)


async def test_a_person_types_and_gives_up_at_the_end_of_input(monkeypatch):
    lines = iter(["up", "down"])

    def typed(prompt):
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", typed)
    said, trajectory = await played("human")
    assert said == ["up", "down"]
    assert trajectory.stop is StopReason.TOKEN_BUDGET


class ChatServer(ThreadingHTTPServer):
    """Answers every chat completion with `message`, and keeps what it was asked."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Chat)
        self.message = {"role": "assistant", "content": "up"}
        self.refusal = None
        """Error that requests are refused with."""
        self.answered = 1
        """Requests that are answered before."""
        self.asked = []
        self.connections = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Chat(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections open unless it is asked not to

    def do_POST(self):
        self.server.connections.append(self.headers["Connection"])
        self.server.asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        choice = {"index": 0, "finish_reason": "stop", "message": self.server.message}
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        is_refused = self.server.refusal is not None and len(self.server.asked) > self.server.answered
        body = json.dumps(self.server.refusal if is_refused else answer).encode()
        self.send_response(400 if is_refused else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def chat_server():
    server = ChatServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_server_is_asked_with_the_whole_conversation_and_the_sampling(chat_server):
    said, _ = await played(f"server:org/model@{chat_server.url}", sampling=Sampling(0.7, 32, seed=5))
    assert said == ["up", "up", "up"]
    path, asked = chat_server.asked[1]
    assert path == "/v1/chat/completions"
    assert [message["role"] for message in asked["messages"]] == ["system", "user", "assistant", "user"]
    assert (asked["model"], asked["temperature"], asked["max_tokens"]) == ("org/model", 0.7, 32)


# What the model wrote as arguments -> what the environment gets to see of it.
@pytest.mark.parametrize(
    ("written", "observed"),
    [
        ('{"a": 1, "b": 2}', "3"),
        ("", "add was called wrongly: a is missing; b is missing"),
        ('{"a": 1', f"there is no parameter '{UNREADABLE}' (known: a, b)"),
        ("[1, 2]", f"there is no parameter '{UNREADABLE}' (known: a, b)"),
    ],
)
async def test_a_server_shows_the_tools_and_reads_their_calls(chat_server, written, observed):
    call = {"id": "call-7", "type": "function", "function": {"name": "add", "arguments": written}}
    chat_server.message = {"role": "assistant", "content": None, "tool_calls": [call]}
    task = question(Numbers, tool_format="native", max_turns=2)
    said, trajectory = await played(f"server:m@{chat_server.url}", task)
    assert said == ["", ""]
    asked = chat_server.asked[1][1]
    assert [tool["function"]["name"] for tool in asked["tools"]] == [tool.name for tool in Numbers.tools]
    called, answered = asked["messages"][2:]
    arguments = called["tool_calls"][0]["function"]["arguments"]
    assert isinstance(arguments, str)
    assert json.loads(arguments) == ({UNREADABLE: written} if "known" in observed else json.loads(written or "{}"))
    assert observed in answered["content"]
    assert (answered["role"], answered["tool_call_id"]) == ("tool", "call-7")
    assert trajectory.turns[0].valid is (observed == "3")


async def test_arguments_that_a_server_sends_as_an_object_are_taken_as_they_are(chat_server):
    call = {"id": "call-7", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    chat_server.message = {"role": "assistant", "content": None, "tool_calls": [call]}
    _, trajectory = await played(f"server:m@{chat_server.url}", question(Numbers, tool_format="native", max_turns=1))
    assert trajectory.turns[0].observation[0].content == "3"


async def test_a_server_is_not_shown_the_tools_that_the_instructions_tell_of(chat_server):
    await played(f"server:m@{chat_server.url}", question(Numbers, tool_format="hermes", max_turns=1))
    assert "tools" not in chat_server.asked[0][1]
    assert "<tool_call>" in chat_server.asked[0][1]["messages"][0]["content"]


def test_a_server_policy_may_be_used_from_one_event_loop_after_another(chat_server):
    task = stairs("t", height=3)

    async def solved(make_policy):
        async with registry.opened(task.environment) as environment:
            trajectory = await play(make_policy(environment, task, 0), environment, task)
        return trajectory.success

    with policies(f"server:m@{chat_server.url}") as make_policy:
        assert [asyncio.run(solved(make_policy)) for _ in range(2)] == [True, True]
    assert set(chat_server.connections) == {"close"}


async def test_a_servers_seed_differs_between_episodes_and_stays_within_one(chat_server):
    spec = f"server:m@{chat_server.url}"
    for episode in (0, 1, 0):
        await played(spec, episode=episode)
    seeds = [asked["seed"] for _, asked in chat_server.asked]
    first, second, again = set(seeds[:3]), set(seeds[3:6]), set(seeds[6:])
    assert len(first) == len(second) == 1
    assert first == again != second


# What servers answer when the conversation is longer than what they take.
@pytest.mark.parametrize(
    "refusal",
    [
        {"error": {"message": "Too long.", "type": "invalid_request_error", "code": "context_length_exceeded"}},
        {"error": {"message": "request (9 tokens) is too large", "type": "exceed_context_size_error", "code": 400}},
        {"object": "error", "message": "This model's maximum context length is 8 tokens.", "code": 400},
        {"error": {"message": "The input (9 tokens) is longer than the model's context length (8 tokens)."}},
        {"object": "error", "message": "max_tokens must be at least 1, got -1.", "code": 400},
    ],
)
async def test_a_server_without_room_for_the_conversation_ends_the_budget(chat_server, refusal):
    chat_server.refusal = refusal
    said, trajectory = await played(f"server:m@{chat_server.url}")
    assert said == ["up"]
    assert (trajectory.stop, trajectory.success, trajectory.failure) == (StopReason.TOKEN_BUDGET, False, None)


async def test_a_server_without_room_for_the_first_reply_is_a_failure_of_the_policy(chat_server):
    """More tokens are asked for than it ever has, so that no episode could be played."""
    told = "'max_tokens' is too large: 256. This model's maximum context length is 128 tokens and your request has 9"
    chat_server.refusal, chat_server.answered = {"object": "error", "message": told, "code": 400}, 0
    _, trajectory = await played(f"server:m@{chat_server.url}")
    assert trajectory.failure.cause == "policy_raised"
    assert "'max_tokens' is too large" in trajectory.failure.message


async def test_another_request_that_a_server_refuses_is_a_failure_of_the_policy(chat_server):
    chat_server.refusal = {"error": {"message": "max_tokens must be at least 1", "code": "invalid_value"}}
    _, trajectory = await played(f"server:m@{chat_server.url}")
    assert trajectory.failure.cause == "policy_raised"
    assert "max_tokens must be at least 1" in trajectory.failure.message


async def test_a_server_that_is_not_there_is_a_failure_of_the_policy():
    server = ChatServer()
    server.server_close()
    _, trajectory = await played(f"server:m@{server.url}")
    assert trajectory.failure.cause == "policy_raised"
    assert "APIConnectionError" in trajectory.failure.message


def test_a_server_without_openai_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ConfigurationError, match=r"needs 'openai': pip install \"openmanus-rl\[server\]\""):
        policies("server:m@http://127.0.0.1:1/v1").__enter__()


def test_a_checkpoint_without_torch_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, CHECKPOINT_TARGET.partition(":")[0], None)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="a checkpoint policy needs"):
        policies(f"checkpoint:{tmp_path}").__enter__()


async def test_a_checkpoint_is_held_as_long_as_it_is_used(tmp_path, monkeypatch):
    calls = []

    @contextmanager
    def checkpoint_policies(path, temperature, max_tokens, seed):
        calls.append((path, temperature, max_tokens, seed))
        yield lambda environment, task, episode: ScriptedPolicy(["up"] * 3)
        calls.append("freed")

    module, _, name = CHECKPOINT_TARGET.partition(":")
    monkeypatch.setitem(sys.modules, module, types.SimpleNamespace(**{name: checkpoint_policies}))
    (tmp_path / "config.json").write_text("{}")
    said, _ = await played(f"checkpoint:{tmp_path}", sampling=Sampling(0.0, 16, 3))
    assert said == ["up"] * 3
    assert calls == [(str(tmp_path), 0.0, 16, 3), "freed"]


def test_a_checkpoint_folder_that_is_missing_is_named(tmp_path):
    with (
        pytest.raises(ConfigurationError, match=r"the folder '.*/none' does not exist"),
        policies(f"checkpoint:{tmp_path}/none"),
    ):
        pass


def test_a_folder_that_is_no_checkpoint_is_named(tmp_path):
    with (
        pytest.raises(ConfigurationError, match=r"holds no config\.json; a checkpoint is a Hugging Face"),
        policies(f"checkpoint:{tmp_path}"),
    ):
        pass


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("exprt", r"no policy 'exprt'; did you mean 'expert'\? \(expert, random, human, script:.*checkpoint:FOLDER\)"),
        ("expert:now", "this policy is written expert; given: 'expert:now'"),
        ("script", "this policy is written script:ACTION,ACTION,...; given: 'script'"),
        ("server:", "this policy is written server:MODEL@URL; given: 'server:'"),
        ("server:model", "this policy is written server:MODEL@URL; given: 'server:model'"),
        ("server:@http://x/v1", "this policy is written server:MODEL@URL; given: 'server:@http://x/v1'"),
        ("server:m@ftp://x", "this policy is written server:MODEL@URL"),
    ],
)
def test_a_wrong_spec_says_what_exists(spec, message):
    with pytest.raises(ConfigurationError, match=message), policies(spec):
        pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -0.1}, "at least 0 .*; given: -0.1"),
        ({"max_tokens": 0}, "max_tokens must be at least 1; given: 0"),
    ],
)
def test_sampling_that_cannot_work_is_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Sampling(**options)
