"""Trajectory-level rewards that compose: `Reward` and the named functions that give one.

A reward function maps a trajectory to one number per turn. A weighted sum of named functions is a reward again, and
its total is exactly the sum of its turns, so nothing is lost on the way to token-level scores.

A group reward maps all trajectories of a group, which play the same task, to one number per turn of each: what it says
of one depends on the others. It stands in the same weighted sum, of which `split` tells the two kinds apart.

A function that has to wait, for a judge say, is a coroutine function; a sum may hold both kinds.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from agentgym_rl.errors import ConfigurationError, DataError, did_you_mean
from agentgym_rl.together import all_or_cancel
from agentgym_rl.trajectory import Trajectory

RewardFunction = Callable[..., "list[float] | Awaitable[list[float]]"]
"""Trajectory of T turns -> T numbers; further arguments are the configuration's."""
GroupRewardFunction = Callable[..., "list[list[float]] | Awaitable[list[list[float]]]"]
"""Trajectories of a group of G -> for each of the G, in their order, one number a turn. See `group_reward`."""
Weights = Mapping[str, "float | Mapping[str, Any]"]
"""Reward name -> its weight, or {weight: its weight, argument: value, ...} if the function takes arguments."""
_AnyFunction = Callable[..., Any]
"""Of either kind."""
_Terms = dict[str, "tuple[float, _AnyFunction]"]
"""Reward name -> its weight, and its function with the configured arguments."""
_Marked = TypeVar("_Marked", bound=GroupRewardFunction)

_TARGETS = {
    "outcome": "agentgym_rl.rewards.outcome:outcome",
    "environment": "agentgym_rl.rewards.outcome:environment_reward",
    "format": "agentgym_rl.rewards.format:format_penalty",
    "invalid_action": "agentgym_rl.rewards.format:invalid_action",
    "overlong": "agentgym_rl.rewards.overlong:overlong",
    "judge": "agentgym_rl.rewards.judge:judge",
    "relative_judge": "agentgym_rl.rewards.judge:relative_judge",
}
_COMPARES = "_compares_a_group"
"""Attribute of a function that is a group reward."""


@dataclass(frozen=True)
class Reward:
    """What a trajectory of T turns earned."""

    per_turn_T: tuple[float, ...]
    parts: Mapping[str, float]
    """Weighted total of each named function."""

    @property
    def total(self) -> float:
        return sum(self.per_turn_T)

    def plus(self, other: Reward) -> Reward:
        """This reward and another of the same trajectory, turn by turn; their parts have different names."""
        both = zip(self.per_turn_T, other.per_turn_T, strict=True)
        return Reward(tuple(mine + theirs for mine, theirs in both), {**self.parts, **other.parts})


class Split(NamedTuple):
    """A weighted sum, by what its functions need to see."""

    alone: Weights
    """Those that score a trajectory by itself."""
    compared: Weights
    """Those that compare the trajectories of a group; often none."""


def group_reward(function: _Marked) -> _Marked:
    """Mark a function as one that compares the trajectories of a group, which are two or more with a turn each."""
    setattr(function, _COMPARES, True)
    return function


def reward_function(name: str) -> _AnyFunction:
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


def split(weights: Weights) -> Split:
    """The weights of either kind of function.

    Raises:
        ConfigurationError: as for `weighted_sum`; or each of them compares, so that a trajectory without siblings, as
            in validation, would have no reward at all.
    """
    compared = {name: given for name, given in weights.items() if _compares(name)}
    alone = {name: given for name, given in weights.items() if name not in compared}
    if compared and not alone:
        raise ConfigurationError(
            f"reward {', '.join(map(repr, compared))} compares the trajectories of a group, and one without siblings, "
            "as in validation, would have no reward: name another that scores it alone beside it, e.g. "
            "{'outcome': 1.0}, or 0.0 for it to have no weight"
        )
    weighted_sum(alone)
    if compared:
        weighted_group_sum(compared)
    return Split(alone, compared)


def weighted_sum(weights: Weights) -> Callable[[Trajectory], Awaitable[Reward]]:
    """The reward sum_k weight_k * function_k(trajectory, **arguments_k), turn by turn.

    Functions that are coroutine functions are awaited at the same time.

    Args:
        weights: at least one, e.g. {"outcome": 1.0, "overlong": {"weight": 0.5, "budget": 4096, "buffer": 512}}.

    Raises:
        ConfigurationError: no weight, a weight that is no finite number, an unknown name, an argument that the
            function does not take, or one that it needs and does not get; or a group reward.
        BoundaryError: when awaited: what a function asks has failed, a judge say; there is no reward then.
    """
    terms = _terms(weights, compares=False)

    async def reward(trajectory: Trajectory) -> Reward:
        scores = await all_or_cancel(_scores(function, trajectory) for _, function in terms.values())
        return _sum(terms, dict(zip(terms, scores, strict=True)), trajectory)

    return reward


def weighted_group_sum(weights: Weights) -> Callable[[Sequence[Trajectory]], Awaitable[list[Reward]]]:
    """The rewards of the G trajectories of a group, in their order, as `weighted_sum` has it for one.

    Args:
        weights: at least one, each of a group reward.

    Raises:
        ConfigurationError: as for `weighted_sum`; or a function that is no group reward.
        DataError: when awaited: fewer than two trajectories, or one without a turn.
        BoundaryError: when awaited: what a function asks has failed; none of the group has a reward then.
    """
    terms = _terms(weights, compares=True)

    async def rewards(trajectories: Sequence[Trajectory]) -> list[Reward]:
        turns_G = [len(trajectory.turns) for trajectory in trajectories]
        if len(turns_G) < 2 or not all(turns_G):
            raise DataError(f"a group reward compares two trajectories or more, with turns; given: of {turns_G} turns")
        scores = await all_or_cancel(_scores(function, trajectories) for _, function in terms.values())
        for name, given in zip(terms, scores, strict=True):
            if len(given) != len(turns_G):
                raise DataError(f"reward {name!r} must give {len(turns_G)} lists, one a trajectory; it gave {given!r}")
        of_each = [dict(zip(terms, of_one, strict=True)) for of_one in zip(*scores, strict=True)]
        return [_sum(terms, of_one, trajectory) for of_one, trajectory in zip(of_each, trajectories, strict=True)]

    return rewards


def longest_deadline(weights: Weights) -> float:
    """Seconds that these functions take to answer at most: the highest `deadline_seconds`, and then that of those that
    compare a group, which come after; 0: none has any."""
    alone, compared = split(weights)
    return _longest_deadline(alone) + _longest_deadline(compared)


def _longest_deadline(weights: Weights) -> float:
    """Of functions that are asked together."""
    deadlines = [0.0]
    for name, given in weights.items():
        takes = inspect.signature(reward_function(name)).parameters
        if "deadline_seconds" in takes:
            own = given.get("deadline_seconds") if isinstance(given, Mapping) else None
            deadlines.append(takes["deadline_seconds"].default if own is None else own)
    return max(deadlines)


async def _scores(function: _AnyFunction, judged: Trajectory | Sequence[Trajectory]) -> Any:
    scores = function(judged)
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


def _compares(name: str) -> bool:
    return getattr(reward_function(name), _COMPARES, False)


def _terms(weights: Weights, compares: bool) -> _Terms:
    if not weights:
        raise ConfigurationError("a reward needs at least one named function with a weight, e.g. {'outcome': 1.0}")
    for name in weights:
        if _compares(name) is not compares:
            raise ConfigurationError(
                f"reward {name!r} "
                + ("scores each trajectory alone" if compares else "compares the trajectories of a group")
                + f", and can't score {'a group' if compares else 'one alone'}"
            )
    return {name: _term(name, given) for name, given in weights.items()}


def _term(name: str, given: float | Mapping[str, Any]) -> tuple[float, _AnyFunction]:
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


def _require_arguments(name: str, function: _AnyFunction, arguments: Mapping[str, Any]) -> None:
    """Hold the arguments to what the function takes behind the trajectory, or behind those of the group."""
    takes = "no argument"
    try:
        signature = inspect.signature(function)
        takes = ", ".join(list(signature.parameters)[1:]) or takes
        signature.bind(None, **arguments)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"reward {name!r}: {error}; it takes: {takes}; given: {', '.join(arguments) or 'none'}"
        ) from error
