"""Servers on loopback for the tests of the AgentGym protocol: ours, recorded answers, and broken HTTP."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from doubles import Guess

from agentgym_rl.environments import registry
from agentgym_rl.environments.agentgym.server import make_app
from agentgym_rl.environments.agentgym.service import Service, listening
from agentgym_rl.episode import play
from agentgym_rl.policy import ExpertPolicy, ScriptedPolicy
from agentgym_rl.task import Task


def remote(address, seed=0, turns=64, **arguments):
    """The task that plays `arguments` on our server."""
    return Task("t", "agentgym", {"server": address, "arguments": arguments, "max_turns": turns}, seed=seed)


def item(address, number=3, dialect="babyai"):
    """The task with this number on one of AgentGym's servers."""
    return Task("t", "agentgym", {"server": address, "dialect": dialect, "item": number})


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


class BreaksForGood(Guess):
    """After a step that raised, this instance can't be reset."""

    def reset(self, task):
        if getattr(self, "broken", False):
            raise RuntimeError("it is broken")
        return super().reset(task)

    def step(self, action):
        self.broken = action.content == "break"
        if self.broken:
            raise RuntimeError("now it breaks")
        return super().step(action)


@contextmanager
def running(app, port: int = 0) -> Iterator[str]:
    """Its address; a uvicorn on a thread of its own, stopped at the end."""
    with listening("127.0.0.1", port) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


@contextmanager
def served(name: str, port: int = 0, **options) -> Iterator[str]:
    """The address of our own server of an environment."""
    with running(make_app(Service(name, **options)), port) as address:
        yield address


class Recorded:
    """An ASGI application that answers each route with recorded JSON values in turn, and notes what it was asked."""

    def __init__(self, answers: dict[str, list]):
        self.answers = {route: list(values) for route, values in answers.items()}
        self.requests: list[tuple[str, object]] = []

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        body = (await receive())["body"]
        asked = json.loads(body) if body else scope["query_string"].decode() or None
        self.requests.append((f"{scope['method']} {scope['path']}", asked))
        left = self.answers.get(scope["path"])
        status, value = (200, left.pop(0)) if left else (404, {"detail": "Not Found"})
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(value).encode()})


def http(body: bytes, status: str = "200 OK", length: int | None = None, more: str = "") -> bytes:
    length = len(body) if length is None else length
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}Content-Length: {length}\r\n\r\n".encode() + body
    )


FAULTS = {
    # name: the bytes that are sent before the connection is cut; None: nothing is ever sent
    "hangs": None,
    "closes without an answer": b"",
    "cut in the middle": http(b'{"observation": "hal', length=100),
    "cut in the header": b"HTTP/1.1 200 OK\r\nContent-Le",
    "not http": b"220 mail.example ESMTP\r\n\r\n",
    "status 500": http(b"Internal Server Error", "500 Internal Server Error"),
    "status 502": http(b"<html>Bad Gateway</html>", "502 Bad Gateway"),
    "status 503": http(b"", "503 Service Unavailable"),
    "status 504": http(b'{"error": "upstream"}', "504 Gateway Timeout"),
    "redirected": http(b"", "302 Found", more="Location: http://127.0.0.1:1/\r\n"),
    "truncated json": http(b'{"observation": "hal'),
    "no utf-8": http(b'{"observation": "\xff"}'),
    "broken gzip": http(gzip.compress(b"{}")[:-9] + b"x" * 9, more="Content-Encoding: gzip\r\n"),
    "error with status 200": http(b'{"error": "The id 7 is not valid."}'),
    "error with malformed detail": http(b'{"error": "no room", "detail": {"type": ["?"]}}', "500 Oops"),
    "too long": http(b" " * 2000),
    "no object": http(b"[]"),
    "no observation": http(b'{"reward": 0, "done": false}'),
    "observation is no text": http(b'{"observation": 3, "reward": 0, "done": false}'),
}


@asynccontextmanager
async def faulty(fault: str, route: str):
    """The address of a server that plays the BabyAI dialect, but for one route."""
    answers = {
        "/create": http(b'{"id": 7}'),
        "/reset": http(b'{"observation": "go"}'),
        "/step": http(b'{"observation": "on", "reward": 0, "done": false}'),
    }
    answers[route] = FAULTS[fault]
    handlers = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.current_task())
        head = await reader.readuntil(b"\r\n\r\n")
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        await reader.readexactly(int(length[0].split(b":")[1]) if length else 0)
        answer = answers.get(head.split(b" ")[1].decode(), http(b"true"))
        if answer is None:
            await asyncio.Event().wait()
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
