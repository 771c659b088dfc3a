"""OpenEnv servers on loopback for the tests: the real one in its own interpreter, a small double of it, broken ones."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web
from doubles_openenv_games import GAMES, action_model
from pydantic import BaseModel, ConfigDict, Field, ValidationError

SERVER_PYTHON = "OPENMANUS_OPENENV_SERVER_PYTHON"
"""Environment variable with a Python that has openenv-core; not OPENMANUS_PYTHON_OPENENV, which runs the client."""


class Base(BaseModel):
    """As openenv-core's Action."""

    model_config = ConfigDict(extra="forbid")
    metadata: dict[str, Any] = Field(default_factory=dict, description="Additional metadata for the action")


_SERVERS = ("Numbers:16", "Numbers:1", "Walk:16")
_running: dict[str, Any] = {}


@asynccontextmanager
async def real(name: str, sessions: int = 16) -> AsyncIterator[str]:
    """The address of a server of openenv-core's; one process serves all, from the first call to `stop_servers`."""
    if not _running:
        script = Path(__file__).with_name("doubles_openenv_server.py")
        process = subprocess.Popen(
            [os.environ[SERVER_PYTHON], str(script), *_SERVERS], stdout=subprocess.PIPE, text=True
        )
        ports = await asyncio.to_thread(process.stdout.readline)
        _running.update(zip(_SERVERS, ports.split(), strict=True), process=process)
    yield f"http://127.0.0.1:{_running[f'{name}:{sessions}']}"


def stop_servers() -> None:
    """End the process of the real servers, if it was started."""
    if _running:
        _running["process"].kill()
        _running["process"].communicate()
        _running.clear()


@asynccontextmanager
async def double(name: str, sessions: int = 16) -> AsyncIterator[str]:
    """The address of a double with the same protocol, errors, limit of sessions and pings."""
    model, open_sessions = action_model(name, Base), set()

    async def schema(request):
        return web.json_response({"action": model.model_json_schema(), "observation": {}, "state": {}})

    async def session(request):
        socket = web.WebSocketResponse(heartbeat=0.4)
        await socket.prepare(request)
        if len(open_sessions) >= sessions:
            message = f"Server at capacity: {len(open_sessions)}/{sessions} sessions active."
            await socket.send_json(_error(message, "CAPACITY_REACHED"))
            await socket.close()
            return socket
        open_sessions.add(socket)
        try:
            await _talk(socket, GAMES[name](), model)
        finally:
            open_sessions.discard(socket)
            await socket.close()
        return socket

    async with _serving({"/schema": schema, "/ws": session}) as address:
        yield address


async def _talk(socket: web.WebSocketResponse, game: Any, model: Any) -> None:
    async for message in socket:
        asked = json.loads(message.data)
        if asked["type"] == "close":
            return
        try:
            if asked["type"] == "reset":
                fields, reward, done = game.reset(**asked["data"])
            else:
                fields, reward, done = game.step(model.model_validate(asked["data"]).model_dump())
        except ValidationError as error:
            told = _error("Invalid message", "VALIDATION_ERROR")
            told["data"]["errors"] = error.errors()
            try:
                json.dumps(told)
            except TypeError as unwritten:  # as openenv-core 0.3.0, whose session ends over its own answer
                await socket.send_json(_error(f"Unable to serialize unknown type: {unwritten}", "SESSION_ERROR"))
                return
            await socket.send_json(told)
        except Exception as error:
            await socket.send_json(_error(str(error), "EXECUTION_ERROR"))
        else:
            seen = {"observation": fields, "reward": reward, "done": done}
            await socket.send_json({"type": "observation", "data": seen})


def _error(message: str, code: str) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code}}


OPENING = '{"type": "observation", "data": {"observation": {"text": "go"}, "reward": null, "done": false}}'
SCHEMA = '{"action": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}'


@asynccontextmanager
async def faulty(answers: list[str | None], schema: tuple[int, str | None] = (200, SCHEMA)) -> AsyncIterator[str]:
    """The address of a server that answers with these texts in turn, and then hangs up.

    Args:
        answers: None: nothing is ever said any more. Each line of a text is a message of its own.
        schema: status and content of /schema; None: it never answers.
    """

    async def give_schema(request):
        status, text = schema
        return await asyncio.Event().wait() if text is None else web.Response(status=status, text=text)

    async def session(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        left = list(answers)
        async for message in socket:
            if message.type is not WSMsgType.TEXT or not left:
                break
            for text in (left.pop(0) or "\0").split("\n"):
                if text == "\0":
                    await asyncio.Event().wait()
                await socket.send_str(text)
        await socket.close(code=1011)
        return socket

    async with _serving({"/schema": give_schema, "/ws": session}) as address:
        yield address


@asynccontextmanager
async def _serving(routes: dict[str, Any]) -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes([web.get(path, handler) for path, handler in routes.items()])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
