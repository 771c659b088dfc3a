"""One request to a chat server: its answer's text, or a `Fault` that says whether another try is worth it."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from agentgym_rl.errors import ConfigurationError, Manner

REFUSED = {401: "the key", 403: "the key", 404: "the url or the model's name"}
"""Status -> what is wrong with the settings; no other question would fare better."""
PASSES = (408, 409, 425, 429)
"""Statuses below 500 that are worth another try."""


class Said(NamedTuple):
    """What the model said, and the tokens of it."""

    text: str
    is_whole: bool
    """Not cut off by a limit of tokens."""
    prompt_tokens: int
    completion_tokens: int


class Fault(Exception):
    """A request went wrong."""

    def __init__(self, message: str, manner: Manner = Manner.RAISED, passes: bool = True, wait_seconds: float = 0.0):
        super().__init__(message)
        self.manner = manner
        self.passes = passes
        """Whether another try is worth it."""
        self.wait_seconds = wait_seconds
        """What the server asks for."""


def open_client(url: str, request_seconds: float) -> Any:
    """An `openai.AsyncOpenAI` that leaves retries to us.

    Raises:
        ConfigurationError: the package is not there.
    """
    try:
        import openai
    except ModuleNotFoundError as error:
        raise ConfigurationError(f'a judge needs {error.name!r}: pip install "openmanus-rl[server]"') from error
    key = os.environ.get("OPENAI_API_KEY", "none")
    return openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=request_seconds)


async def send(client: Any, request: dict[str, Any]) -> Said:
    """Ask once.

    Raises:
        Fault: there is no answer.
        ConfigurationError: the server refuses the key, the model or the url.
    """
    import openai

    try:
        # `chat.completions.create` posts the same after it has held each message to its type: a third of all time.
        return _said(await client.post("/chat/completions", cast_to=object, body=request))
    except openai.APITimeoutError as error:
        raise Fault(f"silence for {client.timeout:.3g} s", Manner.TIMED_OUT) from error
    except openai.APIConnectionError as error:
        raise Fault(f"no connection ({error.__cause__ or error})", Manner.CRASHED) from error
    except openai.APIStatusError as error:
        raise _status_fault(error) from error
    except (openai.APIError, ValueError) as error:
        raise Fault(f"an answer that is no chat completion ({error})") from error


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


def _status_fault(error: Any) -> Fault:
    status = error.status_code
    if status in REFUSED:
        raise ConfigurationError(
            f"the judge's server answered {status}: check {REFUSED[status]} ({error.message:.200})"
        )
    passes = status >= 500 or status in PASSES
    return Fault(f"status {status} ({error.message:.200})", passes=passes, wait_seconds=_retry_after(error))


def _retry_after(error: Any) -> float:
    """Seconds that the server asks to wait; 0 where it says nothing, or names a date."""
    try:
        return max(float(error.response.headers.get("retry-after", 0)), 0.0)
    except ValueError:
        return 0.0
