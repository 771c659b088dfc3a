"""One session with an OpenEnv server: a websocket, behind which the server keeps one environment for us alone.

Whatever goes wrong on the way ends as a typed failure: a connection that is gone is a crash, a gateway's timeout is a
timeout, an error that the server answers is raised as what it says. Deadlines are the caller's (`play`). The socket is
read all the time, also while the policy thinks: a server that pings and gets no answer hangs up. Servers are reached
directly, without the proxy that HTTP_PROXY names.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from agentgym_rl.environments.agentgym.connection import TOKEN_VARIABLE
from agentgym_rl.errors import AgentGymError, ConfigurationError, EnvironmentFailed, Manner

ANSWER_BYTES = 64 * 2**20
"""Longest answer that is read."""
CLOSE_SECONDS = 2.0
"""What a server gets to end a session; it counts against the server's limit until then."""

_LOST = "the last call of this session failed or was cut off; it goes on with a new one, at the next reset"
_MANNERS = {502: Manner.CRASHED, 504: Manner.TIMED_OUT}
_UNASKED = 16
"""Answers that are kept although nobody has asked for them; the first of them ends the session."""


class ActionRefused(Exception):
    """The server answered a step with an error of validation; the message says why.

    As a rule the action was not carried out. An error that the environment's own code raises over its data comes alike.
    """


class Session:
    """One environment on a server, made by `opened`."""

    def __init__(self, http: Any, socket: Any, what: str):
        self._http, self._socket, self._what = http, socket, what
        self._answers: asyncio.Queue[Any] = asyncio.Queue(_UNASKED)
        self._reading = asyncio.get_running_loop().create_task(self._read())
        self._asking = False

    @classmethod
    async def opened(cls, base_url: str) -> tuple[Session, Any]:
        """A new session, and the JSON schema of the environment's actions, as the server gives it.

        Args:
            base_url: "http://host:port", with a path where the server has one.

        Raises:
            EnvironmentFailed: the server can't be reached, or answers with something else.
            ConfigurationError: aiohttp is not installed, the address is malformed, or the server refuses the token.
        """
        aiohttp = _aiohttp()
        token = os.environ.get(TOKEN_VARIABLE)
        http = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"} if token else None, timeout=aiohttp.ClientTimeout(total=None)
        )
        try:
            schema = await _schema(http, base_url)
            what = f"{base_url}/ws"
            try:
                closing = aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS / 2)
                socket = await http.ws_connect(what, max_msg_size=ANSWER_BYTES, timeout=closing)
            except aiohttp.ClientError as error:
                raise _failure(what, error) from error
        except BaseException:
            await http.close()
            raise
        return cls(http, socket, what), schema

    async def ask(self, kind: str, data: Mapping[str, Any]) -> Any:
        """Send a "reset" or a "step", and return the data of the observation that comes back.

        Raises:
            ActionRefused: the server does not take the action of this step.
            EnvironmentFailed: the connection broke, or the server answered with an error or no observation.
        """
        if self._asking:
            raise EnvironmentFailed(f"{kind} at {self._what}: {_LOST}")
        what = f"{kind} at {self._what}"
        self._asking = True
        if not self._answers.empty():  # said unasked: that there is no room, or that the connection is gone
            return _observation(what, self._told(what, self._answers.get_nowait()), asked=None)
        with suppress(ConnectionError):  # it is gone: what was read last says why
            await self._socket.send_str(json.dumps({"type": kind, "data": dict(data)}))
        answer = self._told(what, await self._answers.get())
        self._asking = False
        return _observation(what, answer, kind)

    async def close(self) -> None:
        """End the session, within `CLOSE_SECONDS` or soon after. May be called twice."""
        try:
            if not self._asking and not self._reading.done():
                # The server hangs up only after it has freed the session; a mere hang-up of ours would be overtaken
                # by the next session, for which there might be no room yet.
                with suppress(ConnectionError):
                    await self._socket.send_str('{"type": "close"}')
                await asyncio.wait({self._reading}, timeout=CLOSE_SECONDS)
        finally:
            self._reading.cancel()
            await self._socket.close()
            await self._http.close()

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                await self._answers.put(message)
        finally:
            with suppress(asyncio.QueueFull):
                self._answers.put_nowait(None)

    def _told(self, what: str, message: Any) -> Any:
        """The JSON value of a message."""
        if message is None or message.type.name == "ERROR":
            why = f"{message.data}" if message else f"closed with code {self._socket.close_code}"
            raise EnvironmentFailed(f"{what}: the connection is gone ({why})", Manner.CRASHED)
        try:
            return json.loads(message.data)
        except (ValueError, RecursionError) as error:
            raise EnvironmentFailed(f"{what} answered no JSON: {message.data!r:.200}") from error


def _observation(what: str, answer: Any, asked: str | None) -> Any:
    """The data of an answer that is an observation, to what was asked; None: nothing was."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, dict):
        raise EnvironmentFailed(f"{what} answered without an object 'data'; given: {answer!r:.200}")
    if answer.get("type") == "error":
        code, message = data.get("code"), _complaints(data) or data.get("message")
        if code == "VALIDATION_ERROR" and asked == "step":
            raise ActionRefused(f"Not an action: {message}")
        raise EnvironmentFailed(f"{what}: {message} (code: {code})")
    if answer.get("type") != "observation" or not asked:
        unasked = "" if asked else " although nothing had been asked"
        raise EnvironmentFailed(f"{what} answered a {answer.get('type')!r}{unasked}; allowed: observation, error")
    return data


def _complaints(data: Mapping[str, Any]) -> str:
    """What pydantic found, "field: message" each."""
    errors = data.get("errors")
    found = [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
    return "; ".join(f"{'.'.join(map(str, error.get('loc') or ()))}: {error.get('msg')}" for error in found)[:500]


async def _schema(http: Any, base_url: str) -> Any:
    what = f"{base_url}/schema"
    content = bytearray()
    try:
        async with http.get(what) as response:
            response.raise_for_status()
            async for chunk in response.content.iter_chunked(65536):
                content += chunk
                if len(content) > ANSWER_BYTES:
                    raise EnvironmentFailed(f"{what} answered more than {ANSWER_BYTES} bytes")
    except _aiohttp().ClientError as error:
        raise _failure(what, error) from error
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise EnvironmentFailed(f"{what} answered no JSON: {bytes(content[:200])!r}") from error
    if not isinstance(answer, dict) or not isinstance(answer.get("action"), dict):
        raise EnvironmentFailed(f"{what} answered without a schema of actions; given: {answer!r:.200}")
    return answer["action"]


def _failure(what: str, error: Any) -> AgentGymError:
    """The typed failure behind what the library raised."""
    aiohttp = _aiohttp()
    if isinstance(error, aiohttp.InvalidURL):
        return ConfigurationError(f"{what!r} is no address of a server")
    status = getattr(error, "status", None)
    if status in (401, 403):
        return ConfigurationError(f"{what} answered {status}; its token belongs in {TOKEN_VARIABLE}")
    if status is not None:
        return EnvironmentFailed(f"{what} answered {status}: {error.message}", _MANNERS.get(status, Manner.RAISED))
    gone = isinstance(error, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError)
    return EnvironmentFailed(f"{what}: {type(error).__name__}: {error}", Manner.CRASHED if gone else Manner.RAISED)


@cache
def _aiohttp() -> Any:
    try:
        import aiohttp
    except ModuleNotFoundError as error:
        raise ConfigurationError(f'OpenEnv needs {error.name!r}: pip install "openmanus-rl[openenv]"') from error
    return aiohttp
