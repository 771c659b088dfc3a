"""What a task asks for, read and checked before anything is asked of the server."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentgym_rl.environments.toolbench.apis import Api, apis_of, function_names
from agentgym_rl.environments.toolbench.verdict import Judge, judge_of
from agentgym_rl.environments.turn_limited import whole_number
from agentgym_rl.errors import ConfigurationError, require_allowed_keys
from agentgym_rl.tool_calls import ToolFormat
from agentgym_rl.tools import CALL_SECONDS

DEFAULT_MAX_TURNS = 16
DEFAULT_CHARACTERS = 1024
"""Of an answer that are shown, as in ToolBench."""
DEFAULT_RETRIES = 2
DEFAULT_JUDGE = "any_call"
JUDGE_SECONDS = 25.0
"""Below the default deadline of a step, so that the judge is named."""

_NAMES = (
    "query",
    "apis",
    "relevant",
    "url",
    "cache",
    "strip",
    "observation_characters",
    "retries",
    "call_seconds",
    "judge",
    "judge_seconds",
    "tool_format",
    "max_turns",
)


@dataclass(frozen=True)
class Setup:
    """A task's arguments; `ToolBench` says what each means."""

    query: str
    apis: tuple[Api, ...]
    relevant: frozenset[str]
    """Names of functions."""
    url: str
    cache: str
    """Folder; empty: none."""
    strip: str
    observation_characters: int
    retries: int
    call_seconds: float
    judge_name: str
    judge: Judge
    judge_seconds: float
    tool_format: ToolFormat
    max_turns: int

    @classmethod
    def of(cls, given: Mapping[str, Any], tool_format: ToolFormat) -> Setup:
        """
        Args:
            given: the arguments of a task.
            tool_format: for one that names none.

        Raises:
            ConfigurationError: one is missing, unknown, or can't work.
        """
        require_allowed_keys(given, _NAMES, "a ToolBench task")
        apis = apis_of(given.get("apis"))
        judge_name = _text(given, "judge", DEFAULT_JUDGE)
        relevant = function_names(given.get("relevant", ()), apis)
        if judge_name == "relevant_calls" and not relevant:
            raise ConfigurationError("the rule 'relevant_calls' needs the argument 'relevant'; given: none")
        return cls(
            query=_text(given, "query"),
            apis=apis,
            relevant=relevant,
            url=_url(given),
            cache=_text(given, "cache", ""),
            strip=_text(given, "strip", "truncate"),
            observation_characters=whole_number(given, "observation_characters", DEFAULT_CHARACTERS),
            retries=whole_number(given, "retries", DEFAULT_RETRIES, least=0),
            call_seconds=_seconds(given, "call_seconds", CALL_SECONDS),
            judge_name=judge_name,
            judge=judge_of(judge_name),
            judge_seconds=_seconds(given, "judge_seconds", JUDGE_SECONDS),
            tool_format=given.get("tool_format", tool_format),
            max_turns=whole_number(given, "max_turns", DEFAULT_MAX_TURNS),
        )


def _text(given: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = given.get(name, default)
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise ConfigurationError(f"a ToolBench task's {name!r} must be a text; given: {value!r:.200}")
    return value


def _url(given: Mapping[str, Any]) -> str:
    url = _text(given, "url")
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"a ToolBench task's 'url' must read 'http://host:port'; given: {url!r}")
    return url


def _seconds(given: Mapping[str, Any], name: str, default: float) -> float:
    value = given.get(name, default)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ConfigurationError(f"a ToolBench task's {name!r} must be a number above 0; given: {value!r}")
    return float(value)
