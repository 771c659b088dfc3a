"""One request to a chat server: its answer's text, or a `Fault` that says whether another try is worth it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from agentgym_rl.errors import ConfigurationError, Manner, NoVerdict

REFUSED = {401: "the key", 403: "the key", 404: "the url or the model's name"}
"""Status -> what is wrong with the settings; no other question would fare better."""
PASSES = (408, 409, 425, 429)
"""Statuses below 500 that are worth another try."""
ABOUT_THE_QUESTION = (400, 413, 422)
"""Statuses that this very question meets each time, e.g. for its length."""


class Said(NamedTuple):
    """What the model said, and the tokens of it."""

    text: str
    is_whole: bool
    """Not cut off by a limit of tokens."""
    prompt_tokens: int
    completion_tokens: int


class Fault(Exception):
    """A request went wrong."""

    def __init__(
        self,
        message: str,
        manner: Manner = Manner.RAISED,
        passes: bool = True,
        wait_seconds: float = 0.0,
        no_verdict: NoVerdict | None = None,
    ):
        super().__init__(message)
        self.manner = manner
        self.passes = passes
        """Whether another try is worth it."""
        self.wait_seconds = wait_seconds
        """What the server asks for."""
        self.no_verdict = no_verdict
        """Why there is none, should each try end like this one; None: another day may bring one."""


class ChatClient:
    """The connections to one server; belongs to the event loop on which it is used.

    Not `openai`'s client: a request costs it five times the CPU time of a whole verdict (benchmarks/data), so that one
    core could not keep a fast server busy.

    Args:
        url: up to `/chat/completions`.
        silence_seconds: longest wait for the next bytes of an answer.

    Raises:
        ConfigurationError: the environment names a proxy of a kind that is not spoken.
    """

    def __init__(self, url: str, silence_seconds: float):
        self._url = url.rstrip("/") + "/chat/completions"
        self._silence_seconds = silence_seconds
        self._proxy = _proxy(self._url)
        self._session: Any = None

    async def send(self, request: dict[str, Any]) -> Said:
        """Ask once.

        Raises:
            Fault: there is no answer.
            ConfigurationError: the server refuses the key, the model or the url.
        """
        import aiohttp

        try:
            async with self._opened().post(self._url, json=request, proxy=self._proxy) as response:
                body = await response.read()
        except asyncio.TimeoutError as error:
            raise Fault(f"silence for {self._silence_seconds:.3g} s", Manner.TIMED_OUT) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Fault(f"no connection ({error})", Manner.CRASHED) from error
        if response.status >= 400:
            raise _status_fault(response.status, body.decode("utf-8", "replace"), response.headers)
        try:
            return _said(json.loads(body))
        except ValueError as error:
            raise Fault(f"an answer that is no chat completion ({error})") from error

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> Any:
        """The session, which is bound to the running event loop when it is made."""
        if self._session is None:
            import aiohttp

            seconds = self._silence_seconds
            self._session = aiohttp.ClientSession(
                headers=_headers(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds),
                connector=aiohttp.TCPConnector(limit=0),  # who asks keeps to a limit of their own
            )
        return self._session


def _headers() -> dict[str, str]:
    """Who asks, from the variables that `openai`'s client reads."""
    named = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
    who = {header: os.environ[name] for header, name in named.items() if os.environ.get(name)}
    return {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}", **who}


def _proxy(url: str) -> str | None:
    """What the environment names. aiohttp's `trust_env` would look into ~/.netrc as well, at every request."""
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc) or proxy_bypass(parts.hostname or ""):  # with its port, and without
        return None
    named = proxy if "://" in proxy else f"http://{proxy}"
    scheme = named.partition("://")[0]
    if scheme not in ("http", "https"):
        raise ConfigurationError(
            f"a proxy of a judge's server begins with http:// or https://; given: one with {scheme}:// "
            f"({parts.scheme.upper()}_PROXY or ALL_PROXY; NO_PROXY={parts.netloc} asks directly)"
        )
    return named


def _said(answer: Any) -> Said:
    try:
        choice = answer["choices"][0]
        text = choice["message"].get("content") or ""
        if not isinstance(text, str):
            raise TypeError("its content is no text")
        is_whole = choice.get("finish_reason") != "length"
        usage = answer.get("usage") or {}  # some servers count nothing
        return Said(text, is_whole, usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"{answer!r:.200}") from error


def _status_fault(status: int, said: str, headers: Mapping[str, str]) -> Fault:
    if status in REFUSED:
        raise ConfigurationError(f"the judge's server answered {status}: check {REFUSED[status]} ({said:.200})")
    passes = status >= 500 or status in PASSES
    no_verdict = NoVerdict.REFUSED if status in ABOUT_THE_QUESTION else None
    return Fault(
        f"status {status} ({said:.200})", passes=passes, wait_seconds=_retry_after(headers), no_verdict=no_verdict
    )


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that the server asks to wait; 0 where it says nothing, or names a date."""
    try:
        return max(float(headers.get("Retry-After", 0)), 0.0)
    except ValueError:
        return 0.0
