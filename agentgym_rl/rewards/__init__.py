"""Trajectory-level rewards that compose: `Reward` and the named functions that give one.

A reward function maps a trajectory to one number per turn. A weighted sum of named functions is a reward again, and
its total is exactly the sum of its turns, so nothing is lost on the way to token-level scores.

A function that has to wait, for a judge say, is a coroutine function; a sum may hold both kinds.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentgym_rl.errors import ConfigurationError, DataError, did_you_mean
from agentgym_rl.together import all_or_cancel
from agentgym_rl.trajectory import Trajectory

RewardFunction = Callable[..., "list[float] | Awaitable[list[float]]"]
"""Trajectory of T turns -> T numbers; further arguments are the configuration's."""
Weights = Mapping[str, "float | Mapping[str, Any]"]
"""Reward name -> its weight, or {weight: its weight, argument: value, ...} if the function takes arguments."""
_Terms = dict[str, "tuple[float, RewardFunction]"]
"""Reward name -> its weight, and its function with the configured arguments."""

_TARGETS = {
    "outcome": "agentgym_rl.rewards.outcome:outcome",
    "environment": "agentgym_rl.rewards.outcome:environment_reward",
    "format": "agentgym_rl.rewards.format:format_penalty",
    "invalid_action": "agentgym_rl.rewards.format:invalid_action",
    "overlong": "agentgym_rl.rewards.overlong:overlong",
    "judge": "agentgym_rl.rewards.judge:judge",
}


@dataclass(frozen=True)
class Reward:
    """What a trajectory of T turns earned."""

    per_turn_T: tuple[float, ...]
    parts: Mapping[str, float]
    """Weighted total of each named function."""

    @property
    def total(self) -> float:
        return sum(self.per_turn_T)


def reward_function(name: str) -> RewardFunction:
    """The function behind a short name, or behind "module:function".

    Raises:
        ConfigurationError: there is none.
    """
    target = _TARGETS.get(name, name)
    module, _, attribute = target.partition(":")
    if not attribute:
        raise ConfigurationError(f"no reward {name!r}; {did_you_mean(name, _TARGETS)} (or give 'module:function')")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"reward {name!r} can't be imported: {error}") from error


def weighted_sum(weights: Weights) -> Callable[[Trajectory], Awaitable[Reward]]:
    """The reward sum_k weight_k * function_k(trajectory, **arguments_k), turn by turn.

    Functions that are coroutine functions are awaited at the same time.

    Args:
        weights: at least one, e.g. {"outcome": 1.0, "overlong": {"weight": 0.5, "budget": 4096, "buffer": 512}}.

    Raises:
        ConfigurationError: no weight, a weight that is no finite number, an unknown name, an argument that the
            function does not take, or one that it needs and does not get.
        BoundaryError: when awaited: what a function asks has failed, a judge say; there is no reward then.
    """
    terms = _terms(weights)

    async def reward(trajectory: Trajectory) -> Reward:
        scores = await all_or_cancel(_scores(function, trajectory) for _, function in terms.values())
        return _sum(terms, dict(zip(terms, scores, strict=True)), trajectory)

    return reward


async def _scores(function: RewardFunction, trajectory: Trajectory) -> Any:
    scores = function(trajectory)
    return await scores if inspect.isawaitable(scores) else scores


def _sum(terms: _Terms, scores: Mapping[str, Any], trajectory: Trajectory) -> Reward:
    """Hold each function's scores to one finite number a turn, and add them up."""
    turns = len(trajectory.turns)
    total_T, parts = [0.0] * turns, {}
    for name, (weight, _) in terms.items():
        scores_T = scores[name]
        if len(scores_T) != turns or not all(math.isfinite(score) for score in scores_T):
            raise DataError(f"reward {name!r} must give {turns} finite numbers, one a turn; it gave {scores_T!r}")
        parts[name] = weight * sum(scores_T)
        total_T = [total + weight * score for total, score in zip(total_T, scores_T, strict=True)]
    return Reward(tuple(total_T), parts)


def _terms(weights: Weights) -> _Terms:
    if not weights:
        raise ConfigurationError("a reward needs at least one named function with a weight, e.g. {'outcome': 1.0}")
    return {name: _term(name, given) for name, given in weights.items()}


def _term(name: str, given: float | Mapping[str, Any]) -> tuple[float, RewardFunction]:
    """A weight, and the function that it belongs to with its arguments."""
    arguments = dict(given) if isinstance(given, Mapping) else {"weight": given}
    if "weight" not in arguments:
        raise ConfigurationError(f"reward {name!r} needs a weight beside its arguments; given: {dict(arguments)}")
    weight = arguments.pop("weight")
    if not isinstance(weight, (int, float)) or not math.isfinite(weight):
        raise ConfigurationError(f"the weight of reward {name!r} must be a finite number; given: {weight!r}")
    function = reward_function(name)
    _require_arguments(name, function, arguments)
    return weight, partial(function, **arguments)


def _require_arguments(name: str, function: RewardFunction, arguments: Mapping[str, Any]) -> None:
    """Hold the arguments to what the function takes behind the trajectory."""
    takes = "no argument"
    try:
        signature = inspect.signature(function)
        takes = ", ".join(list(signature.parameters)[1:]) or takes
        signature.bind(None, **arguments)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"reward {name!r}: {error}; it takes: {takes}; given: {', '.join(arguments) or 'none'}"
        ) from error
