"""Asking StableToolBench's virtual API server: whatever goes wrong on the way ends as a typed `ToolFailed`.

An error that an API answers is an answer. A connection that breaks is tried again, and so is a server that says that it
is busy: a question changes nothing, so asking twice does no harm. Deadlines are the caller's. The server is reached
directly, without the proxy that HTTP_PROXY names.
"""

from __future__ import annotations

import asyncio
import json
from functools import cache
from typing import Any

from agentgym_rl.environments.toolbench.answers import Answer, Request
from agentgym_rl.errors import ConfigurationError, Manner, ToolFailed

ANSWER_BYTES = 8 * 2**20
"""Longest answer that is read."""
PAUSE_SECONDS = 0.1
"""Before the second try; doubled before each further one."""

_BUSY = (429, 502, 503)
_MANNERS = {502: Manner.CRASHED, 503: Manner.CRASHED, 504: Manner.TIMED_OUT}


class _MayPass(Exception):
    """Another try may do better."""

    def __init__(self, message: str, manner: Manner):
        super().__init__(message)
        self.manner = manner


class VirtualServer:
    """A connection with the server.

    Args:
        url: "http://host:port", to which "/virtual" is added.
        retries: how often a request is tried again, at least 0.

    Raises:
        ConfigurationError: httpx is not installed.
    """

    def __init__(self, url: str, retries: int):
        self._url = f"{url.rstrip('/').removesuffix('/virtual')}/virtual"
        self._retries = retries
        self._client = _httpx().AsyncClient(timeout=None, trust_env=False, verify=_certificates())

    async def ask(self, request: Request) -> Answer:
        """
        Raises:
            ToolFailed: the server can't be reached, or answered with a status other than 200 or with no answer.
            ConfigurationError: the address is malformed.
        """
        tries = 1
        while True:
            try:
                return await self._ask_once(request)
            except _MayPass as error:
                if tries > self._retries:
                    raise ToolFailed(f"{error} (tried {tries} times)", error.manner) from error
            await asyncio.sleep(PAUSE_SECONDS * 2 ** (tries - 1))
            tries += 1

    async def close(self) -> None:
        await self._client.aclose()

    async def _ask_once(self, request: Request) -> Answer:
        what = f"POST {self._url}"
        httpx = _httpx()
        # Not httpx's own JSON: it can't write lone surrogates, which a policy may put into an argument.
        content, headers = json.dumps(dict(request)).encode(), {"Content-Type": "application/json"}
        try:
            async with self._client.stream("POST", self._url, content=content, headers=headers) as response:
                return _answer(what, response.status_code, await _read(what, response))
        except httpx.InvalidURL as error:
            raise ConfigurationError(f"{self._url!r} is no address of a server: {error}") from error
        except httpx.TransportError as error:
            raise _MayPass(f"{what}: {type(error).__name__}: {error}", Manner.CRASHED) from error
        except httpx.RequestError as error:
            raise ToolFailed(f"{what}: {type(error).__name__}: {error}") from error


async def _read(what: str, response: Any) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > ANSWER_BYTES:
            raise ToolFailed(f"{what} answered more than {ANSWER_BYTES} bytes")
    return bytes(content)


def _answer(what: str, status: int, content: bytes) -> Answer:
    shown = repr(content.decode(errors="replace").strip()[:200])
    if status != 200:
        message, manner = f"{what} answered {status}: {shown}", _MANNERS.get(status, Manner.RAISED)
        raise _MayPass(message, manner) if status in _BUSY else ToolFailed(message, manner)
    try:
        return Answer.of(json.loads(content))
    except (ValueError, RecursionError) as error:
        raise ToolFailed(f"{what} answered {shown}, which can't be read: {error}") from error


@cache
def _httpx() -> Any:
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise ConfigurationError(f'ToolBench needs {error.name!r}: pip install "openmanus-rl[toolbench]"') from error
    return httpx


@cache
def _certificates() -> Any:
    """Read once: it takes longer than an episode's first call."""
    return _httpx().create_ssl_context()
