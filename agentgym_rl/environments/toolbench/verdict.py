"""Whether a query was met: by a rule, or by a judge that the task names.

Both see an `Attempt` that ended with an answer; one that was given up is not met, and nobody is asked. What a judge
says is not guessed: one that fails, is late or gives no number from 0 to 1 is the typed failure of a judge.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentgym_rl.environments.toolbench.answers import Answer
from agentgym_rl.errors import ConfigurationError, JudgeFailed, boundary, did_you_mean
from agentgym_rl.own_thread import OwnThread
from agentgym_rl.tools import ToolSchema


@dataclass(frozen=True)
class Called:
    """One call that the server answered."""

    function: str
    arguments: Mapping[str, Any]
    answer: Answer


@dataclass(frozen=True)
class Attempt:
    """What a policy did about a query until its final answer."""

    query: str
    functions: tuple[ToolSchema, ...]
    relevant: frozenset[str]
    """The functions of the APIs that the query was written for; empty: not known."""
    calls: tuple[Called, ...]
    """Without those that were refused."""
    final_answer: str


Judge = Callable[[Attempt], Any]
"""Gives how well the query was met, from 0 to 1, where 1 is success. May be `async`, else it runs on a thread."""


def any_call(attempt: Attempt) -> bool:
    """At least one call brought a result: no error, and a response that is not empty."""
    return any(called.answer.is_result for called in attempt.calls)


def relevant_calls(attempt: Attempt) -> bool:
    """Every API that the query was written for brought a result at least once."""
    return attempt.relevant <= {called.function for called in attempt.calls if called.answer.is_result}


RULES: Mapping[str, Judge] = {"any_call": any_call, "relevant_calls": relevant_calls}


def judge_of(name: str) -> Judge:
    """The rule, or the function behind "module:function".

    Raises:
        ConfigurationError: there is none.
    """
    if name in RULES:
        return RULES[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigurationError(f"no rule {name!r}; {did_you_mean(name, RULES)} (or give 'module:function')")
    try:
        judge = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"judge {name!r} can't be imported: {error}") from error
    if not callable(judge):
        raise ConfigurationError(f"judge {name!r} must be a function; it is a {type(judge).__name__}")
    return judge


async def judged(judge: Judge, name: str, attempt: Attempt, timeout_seconds: float) -> float:
    """
    Raises:
        JudgeFailed: the judge raised, was late, or gave no number from 0 to 1.
    """
    return await boundary(_asked(judge, attempt), JudgeFailed, f"judge {name!r}", timeout_seconds)


async def _asked(judge: Judge, attempt: Attempt) -> float:
    value = await (judge(attempt) if inspect.iscoroutinefunction(judge) else _on_a_thread(judge, attempt))
    if not isinstance(value, (bool, int, float)) or not 0 <= value <= 1:
        raise ValueError(f"a judge says how well a query was met, from 0 to 1; it said {value!r:.200}")
    return float(value)


async def _on_a_thread(judge: Judge, attempt: Attempt) -> Any:
    thread = OwnThread("judge", JudgeFailed)
    try:
        return await thread.run(partial(judge, attempt))
    finally:
        thread.stop()
