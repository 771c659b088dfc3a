"""Which server judges, with which parameters, and how long it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from agentgym_rl.concurrency import reply_limit
from agentgym_rl.errors import ConfigurationError

AnswerFormat = Literal["json_schema", "json_object", "text"]
OURS = ("model", "messages", "response_format", "stream", "n")
"""Parameters of a request that are not the user's."""
PARAMETERS: Mapping[str, Any] = {"temperature": 0.0, "max_tokens": 1024, "seed": 0}
"""Unless others are given."""


@dataclass(frozen=True)
class JudgeSettings:
    """See each field."""

    url: str
    """Of an OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1. OPENAI_API_KEY is its key, if it asks for one."""
    model: str
    """The model's name on that server."""
    rubric: str | None = None
    """A text file; None: the one that comes with the package."""
    answer_format: AnswerFormat = "json_schema"
    """What the server is asked to hold the answer to; "text", nothing, for those that know no `response_format`."""
    parameters: Mapping[str, Any] = field(default_factory=lambda: PARAMETERS)
    """Passed to the server as they are. A `seed` is raised by one with each further try."""
    cache: str | None = None
    """Folder of answers, where the same question finds the same answer; None: every question is asked."""
    concurrency: int | str = 8
    """Verdicts under way at a time; "adaptive": as many as the server takes well."""
    tries: int = 5
    """For one verdict, the first included."""
    backoff_seconds: float = 0.5
    """Wait after the first try that failed; it doubles with each further one. A server's Retry-After may be longer."""
    request_seconds: float = 60.0
    """Longest silence of the server within one try."""
    deadline_seconds: float = 180.0
    """For one verdict, all tries and waits between them together."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ConfigurationError(f"a judge's url begins with http:// or https://; given: {self.url!r}")
        if "@" in urlsplit(self.url).netloc:
            raise ConfigurationError("a judge's url can't hold a user or password; OPENAI_API_KEY is its key")
        if not self.model:
            raise ConfigurationError("a judge needs the name of its model on the server; given: ''")
        if self.answer_format not in get_args(AnswerFormat):
            allowed = ", ".join(get_args(AnswerFormat))
            raise ConfigurationError(f"a judge's answer_format is one of {allowed}; given: {self.answer_format!r}")
        for name in self.parameters:
            if name in OURS:
                raise ConfigurationError(f"a judge's parameters can't hold {name!r}: the judge sets it itself")
        self._require_positive()
        reply_limit(self.concurrency)

    def _require_positive(self) -> None:
        if self.tries < 1:
            raise ConfigurationError(f"a judge's tries must be at least 1; given: {self.tries}")
        for name in ("deadline_seconds", "request_seconds", "backoff_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"a judge's {name} must be above 0; given: {getattr(self, name)}")
