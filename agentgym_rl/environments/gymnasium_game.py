"""What a task asks of Gymnasium: which environment, how its actions are called, how it is told, and what is success."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym_rl.environments.gymnasium_actions import require_names
from agentgym_rl.errors import ConfigurationError, did_you_mean, require_allowed_keys
from agentgym_rl.task import Task

SUCCESS_RULES = ("positive_reward", "terminated")

Renderer = Callable[[Any, Any], str]
"""Environment (unwrapped) and observation -> what the agent is told."""


@dataclass(frozen=True)
class Game:
    """How a Gymnasium environment is made and played."""

    id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    actions: Sequence[str] | None = None
    renderer: Renderer | None = None
    success: str | float = SUCCESS_RULES[0]

    @classmethod
    def of(cls, task: Task) -> Game:
        """What a task asks for.

        Raises:
            ConfigurationError: an unknown or wrong argument, or no such renderer.
        """
        known = ("id", "kwargs", "actions", "renderer", "success", "max_turns")
        require_allowed_keys(task.arguments, known, "a Gymnasium task")
        given = task.arguments
        if not isinstance(given.get("id"), str):
            raise ConfigurationError(
                f"a Gymnasium task needs the argument 'id', such as 'FrozenLake-v1'; given: {given}"
            )
        renderer = given.get("renderer")
        return cls(
            given["id"],
            _kwargs(given.get("kwargs", {})),
            require_names(given.get("actions")),
            None if renderer is None else _renderer(renderer),
            _success(given.get("success", SUCCESS_RULES[0])),
        )

    def succeeded(self, last_reward: float, sum_of_rewards: float) -> bool:
        """Of an episode that terminated: whether the task was solved."""
        if self.success == "terminated":
            return True
        if self.success == "positive_reward":
            return last_reward > 0
        return sum_of_rewards >= float(self.success)


def make_world(name: str, kwargs: Mapping[str, Any]) -> Any:
    """A Gymnasium environment, which renders to text if it can.

    Raises:
        ConfigurationError: gymnasium is not installed, or it can't make such an environment.
    """
    try:
        import gymnasium
        from gymnasium.envs.registration import load_env_creator
    except ModuleNotFoundError as error:
        raise ConfigurationError(f'Gymnasium needs {error.name!r}: pip install "openmanus-rl[gymnasium]"') from error
    module, _, own_name = name.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        entry = gymnasium.spec(own_name).entry_point
        metadata = getattr(load_env_creator(entry) if isinstance(entry, str) else entry, "metadata", {})
        mode = {"render_mode": "ansi"} if "ansi" in metadata.get("render_modes", ()) else {}
        return gymnasium.make(own_name, disable_env_checker=True, **(mode | dict(kwargs)))
    except (gymnasium.error.Error, ImportError, TypeError, ValueError, KeyError) as error:
        raise ConfigurationError(f"Gymnasium can't make {name!r} with {dict(kwargs)}: {error}") from error


def _kwargs(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"the argument 'kwargs' must be an object; given: {given!r}")
    return given


def _renderer(target: Any) -> Renderer:
    module, _, name = str(target).partition(":")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(f"the renderer {target!r} can't be imported: {error}") from error
    if not callable(found):
        raise ConfigurationError(f"a renderer reads 'module:function'; given: {target!r}")
    return found


def _success(given: Any) -> str | float:
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return float(given)
    if given not in SUCCESS_RULES:
        raise ConfigurationError(
            f"no success rule {given!r}; {did_you_mean(str(given), SUCCESS_RULES)} or the least sum of rewards"
        )
    return given
