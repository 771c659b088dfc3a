"""Gymnasium's toy-text games with a model, told in words: FrozenLake, Taxi and CliffWalking, each with an expert.

The general adapter plays them too; here their observations are words, every frozen lake is a map of its own, and an
expert is promised. Slippery ice and slippery cliffs are left to the general adapter: there no expert always succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agentgym_rl.environments.gymnasium_adapter import Gymnasium
from agentgym_rl.environments.gymnasium_game import Game
from agentgym_rl.environments.turn_limited import whole_number
from agentgym_rl.errors import ConfigurationError, did_you_mean, require_allowed_keys
from agentgym_rl.task import Task

COMPASS = ("south", "north", "east", "west")
"""In the order of Taxi's own numbers."""

_FROZEN_SHARE = 0.8
"""Of a lake's cells, as in Gymnasium's own maps; a way to the goal is ensured."""


class ToyText(Gymnasium):
    """Cross a frozen lake, bring a passenger to a hotel, or walk along a cliff.

    Task: `arguments` holds `game` ("frozen-lake", "taxi" or "cliff-walking"), for frozen lakes if wanted `size` (cells
        a side, 3 to 20; default 4), and `max_turns` (default 100). The seed draws the lake's map, or where taxi,
        passenger and hotel are; the cliff is always the same.
    Actions: "left", "down", "right", "up"; for the taxi "south", "north", "east", "west", "pick up", "drop off".
    Observations: where everything is; rows and columns count from 1.
    Reward: Gymnasium's. Lake: 1 at the goal. Taxi: 20 at the hotel, -10 for a wrong pick up or drop off, else -1.
        Cliff: -1 a step, -100 for a fall, which leads back to the start.
    End: terminated at the goal, and in a hole of the lake without success; truncated after `max_turns` turns, or by
        Gymnasium's own limit.
    Splits: `data_preprocess/toy_text.py`: lakes and taxi rides that are all different.
    Expert: value iteration; it solves every task.
    Source: package `gymnasium`; taxi: Dietterich, JAIR 2000, https://arxiv.org/abs/cs/9905014; cliff: Sutton and
        Barto, 2018, example 6.6.
    Licence: MIT.

    An episode (taxi, seed 5):
        The taxi is at row 5, column 1. The passenger waits at row 1, column 1. The hotel is at row 5, column 1. Walls:
            south, east, west. / Actions: south, north, east, west, pick up, drop off.
        > north
        The taxi is at row 4, column 1. The passenger waits at row 1, column 1. The hotel is at row 5, column 1. Walls:
            east, west.
        (three times north, pick up, four times south)
        > drop off
        (terminated, reward 20)
    """

    facts = replace(
        Gymnasium.facts, reward_range=(-100.0, 20.0), expert_success=1.0, domain="toy problem", licence="MIT"
    )
    instructions = "Play the game. Answer with one of its actions."
    host_arguments = frozenset()
    task_command = ("data_preprocess.toy_text",)

    def game_of(self, task: Task) -> Game:
        known = ("game", "size", "max_turns")
        require_allowed_keys(task.arguments, known, "a toy-text task")
        name: Any = task.arguments.get("game")
        if name not in GAMES:
            raise ConfigurationError(f"toy-text has no game {name!r}; {did_you_mean(str(name), GAMES)}")
        if "size" in task.arguments and name != "frozen-lake":
            raise ConfigurationError(f"only frozen lakes have a size; given: {task.arguments['size']!r} for {name!r}")
        return GAMES[name](task)


def _frozen_lake(task: Task) -> Game:
    size = whole_number(task.arguments, "size", 4, least=3, most=20)
    kwargs = {"desc": _lake(size, task.seed), "is_slippery": False}
    return Game("FrozenLake-v1", kwargs, ("left", "down", "right", "up"), _lake_in_words)


def _lake(size: int, seed: int) -> list[str]:
    try:
        from gymnasium.envs.toy_text.frozen_lake import generate_random_map
    except ModuleNotFoundError as error:
        raise ConfigurationError(f'toy-text needs {error.name!r}: pip install "openmanus-rl[gymnasium]"') from error
    return generate_random_map(size, _FROZEN_SHARE, seed)


def _taxi(task: Task) -> Game:
    return Game("Taxi-v4", {}, (*COMPASS, "pick up", "drop off"), _taxi_in_words)


def _cliff(task: Task) -> Game:
    return Game("CliffWalking-v1", {}, ("up", "right", "down", "left"), _cliff_in_words, "terminated")


GAMES: Mapping[str, Callable[[Task], Game]] = {"frozen-lake": _frozen_lake, "taxi": _taxi, "cliff-walking": _cliff}


def _lake_in_words(world: Any, state: Any) -> str:
    rows = [bytes(row).decode() for row in world.desc]
    lake = "\n".join(rows)
    return f"S start, F frozen, H hole, G goal:\n{lake}\nYou are at {_place(divmod(int(state), world.ncol))}."


def _taxi_in_words(world: Any, state: Any) -> str:
    state = int(state)
    row, column, passenger, hotel = world.decode(state)
    stands = [_place(place) for place in world.locs]
    waiting = f"waits at {stands[passenger]}" if passenger < len(stands) else "is in the taxi"
    blocked = [name for move, name in enumerate(COMPASS) if world.P[state][move][0][1] == state]
    return (
        f"The taxi is at {_place((row, column))}. The passenger {waiting}. The hotel is at {stands[hotel]}. "
        f"Walls: {', '.join(blocked) or 'none'}."
    )


def _cliff_in_words(world: Any, state: Any) -> str:
    rows, columns = world.shape
    return (
        f"You are at {_place(divmod(int(state), columns))}. The goal is at row {rows}, column {columns}. "
        f"The cliff is row {rows}, columns 2 to {columns - 1}."
    )


def _place(cell: tuple[int, int]) -> str:
    return f"row {cell[0] + 1}, column {cell[1] + 1}"
