"""HTTP with an environment server: whatever goes wrong on the way ends as a typed failure.

A connection that breaks is a crash, a gateway's timeout is a timeout, and an error that the server answers, with
whatever status, is raised as what it says. Deadlines are the caller's (`play`). Servers are reached directly, without
the proxy that HTTP_PROXY names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from agentgym_rl.environments.wire import decode_error
from agentgym_rl.errors import AgentGymError, ConfigurationError, EnvironmentFailed, Manner

TOKEN_VARIABLE = "OPENMANUS_SERVER_TOKEN"
"""Environment variable with the bearer token, which goes to every server that a task names. Never part of a task, which
is written into files."""
ANSWER_BYTES = 64 * 2**20
"""Longest answer that is read."""
IDLE_SECONDS = 3.0
"""A connection that was idle for longer is not used again: uvicorn closes its end after five seconds."""

_MANNERS = {502: Manner.CRASHED, 504: Manner.TIMED_OUT}
_NO_JSON = object()


class Connection:
    """One instance's connection with its server.

    Args:
        address: "http://host:port", with a path where the server has one.

    Raises:
        ConfigurationError: httpx is not installed.
    """

    def __init__(self, address: str):
        httpx = _httpx()
        token = os.environ.get(TOKEN_VARIABLE)
        self._address = address
        self._client = httpx.AsyncClient(
            headers={"Authorization": b"Bearer " + token.encode()} if token else None,
            timeout=None,
            limits=httpx.Limits(keepalive_expiry=IDLE_SECONDS),
            trust_env=False,
            verify=_certificates(),
        )

    async def post(self, route: str, body: Mapping[str, Any] | None) -> Any:
        """The answer's JSON value.

        Raises:
            EnvironmentFailed: the connection broke, or the server answered with an error or no JSON.
            ConfigurationError: the server refuses the token, or the task.
        """
        return await self._call("POST", route, json=body)

    async def get(self, route: str, query: Mapping[str, Any]) -> Any:
        """The same with GET."""
        return await self._call("GET", route, params=query)

    async def close(self) -> None:
        await self._client.aclose()

    async def _call(self, method: str, route: str, **content: Any) -> Any:
        what = f"{method} {self._address}{route}"
        httpx = _httpx()
        try:
            async with self._client.stream(method, self._address + route, **content) as response:
                return _answer(what, response.status_code, await _read(what, response))
        except httpx.InvalidURL as error:
            raise ConfigurationError(f"{self._address!r} is no address of a server: {error}") from error
        except httpx.RequestError as error:
            manner = Manner.CRASHED if isinstance(error, httpx.TransportError) else Manner.RAISED
            raise EnvironmentFailed(f"{what}: {type(error).__name__}: {error}", manner) from error


async def _read(what: str, response: Any) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > ANSWER_BYTES:
            raise EnvironmentFailed(f"{what} answered more than {ANSWER_BYTES} bytes")
    return bytes(content)


def _answer(what: str, status: int, content: bytes) -> Any:
    try:
        answer = json.loads(content)
    except ValueError:
        answer = _NO_JSON
    if status in (401, 403):
        raise ConfigurationError(f"{what} answered {status}: {_shown(content)}; its token belongs in {TOKEN_VARIABLE}")
    if isinstance(answer, dict) and answer.get("error") is not None:
        raise _error(what, status, answer)
    if status != 200:
        raise EnvironmentFailed(f"{what} answered {status}: {_shown(content)}", _manner(status))
    if answer is _NO_JSON:
        raise EnvironmentFailed(f"{what} answered no JSON: {_shown(content)}")
    return answer


def _error(what: str, status: int, answer: dict[str, Any]) -> AgentGymError:
    """AgentGym's servers answer with text alone, ours with the error itself beside it."""
    try:
        return decode_error(answer["detail"], what)
    except (KeyError, TypeError, ValueError):
        return EnvironmentFailed(f"{what}: {answer['error']}", _manner(status))


def _manner(status: int) -> Manner:
    return _MANNERS.get(status, Manner.RAISED)


def _shown(content: bytes) -> str:
    text = content.decode(errors="replace").strip()
    return repr(text if len(text) <= 200 else text[:197] + "...")


@cache
def _httpx() -> Any:
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f'an AgentGym server needs {error.name!r}: pip install "openmanus-rl[agentgym]"'
        ) from error
    return httpx


@cache
def _certificates() -> Any:
    """Read once: it takes longer than an episode's first call."""
    return _httpx().create_ssl_context()
