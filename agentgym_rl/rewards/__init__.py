"""Trajectory-level rewards that compose: `Reward` and the named functions that give one.

A reward function maps a trajectory to one number per turn. A weighted sum of named functions is a reward again, and
its total is exactly the sum of its turns, so nothing is lost on the way to token-level scores.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agentgym_rl.errors import ConfigurationError, DataError, did_you_mean
from agentgym_rl.trajectory import Trajectory

RewardFunction = Callable[[Trajectory], "list[float]"]
"""Trajectory of T turns -> T numbers."""

_TARGETS = {
    "outcome": "agentgym_rl.rewards.outcome:outcome",
    "environment": "agentgym_rl.rewards.outcome:environment_reward",
    "format": "agentgym_rl.rewards.format:format_penalty",
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


def weighted_sum(weights: Mapping[str, float]) -> Callable[[Trajectory], Reward]:
    """The reward sum_k weights[k] * function_k, turn by turn.

    Args:
        weights: reward name -> weight; at least one.

    Raises:
        ConfigurationError: no weight, a weight that is no finite number, an unknown name.
    """
    if not weights:
        raise ConfigurationError("a reward needs at least one named function with a weight, e.g. {'outcome': 1.0}")
    for name, weight in weights.items():
        if not isinstance(weight, (int, float)) or not math.isfinite(weight):
            raise ConfigurationError(f"the weight of reward {name!r} must be a finite number; given: {weight!r}")
    functions = {name: reward_function(name) for name in weights}

    def reward(trajectory: Trajectory) -> Reward:
        turns = len(trajectory.turns)
        total_T, parts = [0.0] * turns, {}
        for name, function in functions.items():
            scores_T = function(trajectory)
            if len(scores_T) != turns or not all(math.isfinite(score) for score in scores_T):
                raise DataError(f"reward {name!r} must give {turns} finite numbers, one a turn; it gave {scores_T!r}")
            parts[name] = weights[name] * sum(scores_T)
            total_T = [total + weights[name] * score for total, score in zip(total_T, scores_T, strict=True)]
        return Reward(tuple(total_T), parts)

    return reward
