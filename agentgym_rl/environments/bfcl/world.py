"""The stateful classes that an entry plays on: instances of one episode's own, called with literal arguments.

The package's own executor keeps its instances in module globals and evaluates the call as Python code; here a call is
a method's name and values. Its results are the package's, to the letter, as its checkers compare them.
"""

from __future__ import annotations

import copy
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import signature
from typing import Any, NamedTuple

from agentgym_rl.environments.bfcl.entries import INSTALL, Entry, functions_of
from agentgym_rl.environments.bfcl.python_calls import Call
from agentgym_rl.errors import ConfigurationError, did_you_mean

_TURNS = "bfcl_eval.eval_checker.multi_turn_eval"


class Answer(NamedTuple):
    """What a call came to."""

    text: str
    understood: bool
    """False: there is no such function, or it does not take such arguments."""


class World:
    """Fresh instances of an entry's classes.

    Raises:
        ConfigurationError: a package is not installed.
    """

    def __init__(self, entry: Entry):
        self.instances = {name: _instance(name, entry) for name in entry.classes}
        """By class, in the entry's order."""

    def call(self, call: Call, allowed: Mapping[str, str]) -> Answer:
        """Carry a call out.

        Args:
            call: by name.
            allowed: function -> its class.
        """
        if call.name not in allowed:
            why = f"no function {call.name!r} is available; {did_you_mean(call.name, allowed)}"
            return Answer(f"Error during execution: {why}", understood=False)
        return _called(getattr(self.instances[allowed[call.name]], call.name), call)


def function_classes(entry: Entry) -> dict[str, str]:
    """Function -> its class, of every function that an entry's classes offer."""
    return {function.name: kind for kind in entry.classes for function in functions_of(kind)}


def disagreement(played: World, reference: World, results: Sequence[str], expected: Sequence[str]) -> str:
    """What the package's checkers find wrong after a request; empty: nothing.

    Args:
        played: the policy's world.
        reference: the world after the ground truth.
        results: of every call of the policy so far.
        expected: of the ground truth's calls for this request; all must be among `results`, in any order.
    """
    checkers = importlib.import_module(f"{_TURNS}.multi_turn_checker")
    state = checkers.state_checker(played.instances, reference.instances)
    if not state["valid"]:
        return state["error_type"]
    response = checkers.response_checker(list(results), list(expected), 0)
    return "" if response["valid"] else response["error_type"]


def _called(method: Callable[..., Any], call: Call) -> Answer:
    try:
        signature(method).bind(*call.positional, **call.named)
        understood = True
    except TypeError:
        understood = False
    try:
        return Answer(_text(method(*copy.deepcopy(call.positional), **copy.deepcopy(dict(call.named)))), understood)
    except Exception as error:  # the classes are foreign code, and this is their boundary
        return Answer(f"Error during execution: {error}", understood)


def _text(value: Any) -> str:
    """As the package's executor writes a result."""
    if isinstance(value, dict):
        try:
            return json.dumps(value)
        except (TypeError, ValueError):  # it holds an object, or refers to itself
            pass
    return str(value)


def _instance(name: str, entry: Entry) -> Any:
    made = _class(name)()
    if hasattr(made, "_load_scenario"):  # the calculator has no state
        made._load_scenario(copy.deepcopy(entry.initial.get(name, {})), long_context=entry.long_context)
    return made


@cache
def _class(name: str) -> type:
    try:
        paths = importlib.import_module("bfcl_eval.constants.executable_backend_config").CLASS_FILE_PATH_MAPPING
        return getattr(importlib.import_module(paths[name]), name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"BFCL needs {error.name!r}: {INSTALL}") from error
