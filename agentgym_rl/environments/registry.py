"""Environment names -> "module:Class"; the module is imported when the first instance is made.

Where a name is asked for, "module:Class" itself will do, so that one's own environment needs no registration. A package
adds its environments by `register()`, or through the entry point group `openmanus_rl.environments`. Blocking classes
come back behind a thread of their own, so that every caller sees the asynchronous interface.

An environment runs in a worker process, whatever is asked for, where its class says `own_process = True` (a JVM, a
parser that is not thread-safe, state in globals), and where another interpreter is named for it (`interpreter`).
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from importlib.metadata import entry_points
from typing import Literal, get_args

from agentgym_rl.environment import BlockingEnvironment, Environment
from agentgym_rl.environments.interpreter import interpreter_of
from agentgym_rl.environments.process import ProcessEnvironment
from agentgym_rl.environments.threaded import ThreadedEnvironment
from agentgym_rl.errors import BoundaryError, ConfigurationError, EnvironmentFailed, boundary, did_you_mean

Isolation = Literal["thread", "process"]

CLOSE_SECONDS = 5.0
"""Deadline of an environment's close; what is not closed by then is left behind."""

_TARGETS: dict[str, str] = {
    "agentdojo": "agentgym_rl.environments.agentdojo:AgentDojo",
    "agentgym": "agentgym_rl.environments.agentgym.client:AgentGymEnvironment",
    "alfworld": "agentgym_rl.environments.alfworld:ALFWorld",
    "babyai": "agentgym_rl.environments.babyai:BabyAI",
    "bfcl": "agentgym_rl.environments.bfcl.environment:BFCL",
    "gem": "agentgym_rl.environments.gem_adapter:Gem",
    "gymnasium": "agentgym_rl.environments.gymnasium_adapter:Gymnasium",
    "gymnasium-text": "agentgym_rl.environments.gymnasium_adapter:GymnasiumText",
    "maze": "agentgym_rl.environments.maze:Maze",
    "openenv": "agentgym_rl.environments.openenv_adapter:OpenEnv",
    "reasoning-gym": "agentgym_rl.environments.reasoning_gym:ReasoningGym",
    "scienceworld": "agentgym_rl.environments.scienceworld:ScienceWorld",
    "search-qa": "agentgym_rl.environments.search_qa:SearchQA",
    "skyrl-gym": "agentgym_rl.environments.skyrl_gym:SkyRLGym",
    "tau2": "agentgym_rl.environments.tau2:Tau2",
    "textarena": "agentgym_rl.environments.textarena_adapter:TextArena",
    "textcraft": "agentgym_rl.environments.textcraft:TextCraft",
    "textworld": "agentgym_rl.environments.textworld:TextWorld",
    "textworld-express": "agentgym_rl.environments.textworld_express:TextWorldExpress",
    "toolbench": "agentgym_rl.environments.toolbench.environment:ToolBench",
    "toy-text": "agentgym_rl.environments.toy_text:ToyText",
    "wordle": "agentgym_rl.environments.wordle:Wordle",
}
_EXTRAS = {"babyai": "babyai"}
"""Which extra of this distribution installs what an environment imports."""


def register(name: str, target: str) -> None:
    """Give "module:Class" a name.

    Raises:
        ConfigurationError: the name is taken by another class, or the target is malformed.
    """
    if target.count(":") != 1:
        raise ConfigurationError(f"an environment's target reads 'module:Class'; given: {target!r}")
    if _TARGETS.get(name, target) != target:
        raise ConfigurationError(f"the environment name {name!r} is taken by {_TARGETS[name]}")
    _TARGETS[name] = target


def names() -> list[str]:
    """Every registered name, sorted."""
    _register_entry_points()
    return sorted(_TARGETS)


@cache
def _register_entry_points() -> None:
    """Once a process: it reads the metadata of every installed distribution."""
    for point in entry_points(group="openmanus_rl.environments"):
        register(point.name, point.value)


def target(name: str) -> str:
    """The "module:Class" behind a name; such a target stands for itself.

    Raises:
        ConfigurationError: no such name.
    """
    if name.count(":") == 1 and name not in _TARGETS:
        return name
    if name not in names():
        raise ConfigurationError(f"no environment {name!r}; {did_you_mean(name, _TARGETS)}")
    return _TARGETS[name]


def environment_class(name: str) -> type[Environment] | type[BlockingEnvironment]:
    """Import the class behind a name.

    Raises:
        ConfigurationError: no such name, or what it imports is not installed.
    """
    module, _, attribute = target(name).partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(name)
        install = f'pip install "openmanus-rl[{extra}]"' if extra else f"install {error.name!r}"
        raise ConfigurationError(f"environment {name!r} needs {error.name!r}: {install}") from error
    except AttributeError as error:
        raise ConfigurationError(f"environment {name!r} points at {target(name)!r}, which does not exist") from error


def make(name: str, isolation: Isolation = "thread") -> Environment:
    """A new instance behind the asynchronous interface.

    Args:
        name: of the environment.
        isolation: "thread" runs it in this process (a blocking one on a thread of its own); "process" in a worker
            process, which it may crash or hang. The second also holds where the environment asks for a process of its
            own, or has another interpreter.

    Raises:
        ConfigurationError: no such name, isolation or interpreter, or what the environment imports is not installed.
    """
    if isolation not in get_args(Isolation):
        raise ConfigurationError(f"no isolation {isolation!r}; {did_you_mean(isolation, get_args(Isolation))}")
    interpreter = interpreter_of(name)
    if interpreter is not None:
        return ProcessEnvironment(target(name), interpreter)  # whose class this process may not be able to import
    made = environment_class(name)
    if isolation == "process" or made.own_process:
        return ProcessEnvironment(target(name))
    environment = made()
    return ThreadedEnvironment(environment) if isinstance(environment, BlockingEnvironment) else environment


@asynccontextmanager
async def opened(name: str, isolation: Isolation = "thread") -> AsyncIterator[Environment]:
    """A new instance that is closed at the end, within `CLOSE_SECONDS`.

    A close that fails or hangs is left behind: it is no part of the episode that was played.
    """
    environment = make(name, isolation)
    try:
        yield environment
    finally:
        with suppress(BoundaryError):
            await boundary(environment.close(), EnvironmentFailed, f"close of environment {name!r}", CLOSE_SECONDS)
