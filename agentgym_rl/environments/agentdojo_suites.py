"""AgentDojo's suites: their worlds as they are at the start, with or without an injected attack.

Importing the package takes seconds (it brings the clients of four vendors), so it is imported when a suite is asked
for. Invariant: with the same arguments a world is the same, wherever and whenever: the clock that its tools read
stands still.
"""

from __future__ import annotations

import datetime
import importlib
from collections.abc import Mapping
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

from agentgym_rl.errors import ConfigurationError, did_you_mean
from agentgym_rl.inline_schema import inlined
from agentgym_rl.tools import ToolSchema

VERSION = "v1.2.2"
SUITES = ("workspace", "travel", "banking", "slack")

NOW = datetime.datetime(2024, 5, 15, 12, 0)
"""On the day that the office calls today. Mails are sent and files are changed at this time."""

_READ_THE_CLOCK = ("email_client", "cloud_drive_client")
"""The tools' modules that ask for the time."""


def suite(name: str) -> Any:
    """
    Raises:
        ConfigurationError: no such suite, or the package is not installed.
    """
    if name not in SUITES:
        raise ConfigurationError(f"no AgentDojo suite {name!r}; {did_you_mean(str(name), SUITES)}")
    return _suites()[name]


def task_of(kind: str, suite_name: str, identifier: str) -> Any:
    """A suite's task.

    Args:
        kind: "user" or "injection".
        suite_name: of the suite.
        identifier: of the task, such as "user_task_3".

    Raises:
        ConfigurationError: the suite has no such task.
    """
    tasks = getattr(suite(suite_name), f"{kind}_tasks")
    if identifier not in tasks:
        what = f"the AgentDojo suite {suite_name!r} has no {kind} task {identifier!r}"
        raise ConfigurationError(f"{what}; {did_you_mean(str(identifier), tasks)}")
    return tasks[identifier]


@cache
def schemas(suite_name: str) -> tuple[ToolSchema, ...]:
    """A suite's tools."""
    return tuple(
        ToolSchema(tool.name, tool.description, inlined(tool.parameters.model_json_schema(), tool.name))
        for tool in suite(suite_name).tools
    )


@lru_cache(maxsize=64)
def fresh_world(suite_name: str, user_task: str, injection_task: str | None, attack: str) -> Any:
    """The world before a user task; of use as the source of deep copies only.

    Args:
        suite_name: of the suite.
        user_task: which the attack knows; it writes where the right solution of this task reads.
        injection_task: what the attack wants done; None: no attack.
        attack: how it says so.

    Raises:
        ConfigurationError: no such task or attack, or the right solution reads nothing that an attack can write.
    """
    if injection_task is None:
        return _default_world(suite_name)
    texts = _injected_texts(suite_name, user_task, injection_task, attack)
    return suite(suite_name).load_and_inject_default_environment(texts)


def attacks() -> dict[str, Any]:
    """Name -> attack, of those that want an injection task done and ask nobody for their words."""
    _suites()
    importlib.import_module("agentdojo.attacks")
    known = importlib.import_module("agentdojo.attacks.attack_registry").ATTACKS
    return {name: attack for name, attack in known.items() if not attack.is_dos_attack and name != "manual"}


def result_text(value: Any) -> str:
    """A tool's result as the package shows it to a model."""
    return importlib.import_module("agentdojo.agent_pipeline.tool_execution").tool_result_to_str(value)


def _injected_texts(suite_name: str, user_task: str, injection_task: str, attack: str) -> Mapping[str, str]:
    """Place in the world -> what stands there."""
    known = attacks()
    if attack not in known:
        raise ConfigurationError(f"no AgentDojo attack {attack!r}; {did_you_mean(str(attack), known)}")
    attacker = known[attack](suite(suite_name), SimpleNamespace(name="local"))  # some address the model by its name
    goal = task_of("injection", suite_name, injection_task)
    try:
        return attacker.attack(task_of("user", suite_name, user_task), goal)
    except ValueError as error:  # "user_task_1 is not injectable."
        raise ConfigurationError(f"attack {attack!r} in the AgentDojo suite {suite_name!r}: {error}") from error


@cache
def _default_world(suite_name: str) -> Any:
    return suite(suite_name).load_and_inject_default_environment({})


@cache
def _suites() -> Mapping[str, Any]:
    try:
        loaded = importlib.import_module("agentdojo.task_suite.load_suites").get_suites(VERSION)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        raise ConfigurationError(f'AgentDojo needs {missing!r}: pip install "openmanus-rl[agentdojo]"') from error
    for name in _READ_THE_CLOCK:
        vars(importlib.import_module(f"agentdojo.default_suites.v1.tools.{name}"))["datetime"] = _stopped()
    return loaded


def _stopped() -> SimpleNamespace:
    """The module `datetime` at `NOW`."""

    class Stopped(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
            return NOW  # of the class that YAML can write

    return SimpleNamespace(**{**vars(datetime), "datetime": Stopped})
