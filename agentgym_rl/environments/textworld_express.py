"""TextWorldExpress: eight text games about cooking, tidying up, searching, maps, sums, sorting and obedience.

The games run in a Java machine of the worker's own; a game is a function of its name, its parameters, its fold and its
seed. What can be done is known at every turn, so a reply that is none of that never reaches the game.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_rl.environment import Facts
from agentgym_rl.environments.jvm import Jvm, refused_as_configuration
from agentgym_rl.environments.text_game import Outcome, TextGame
from agentgym_rl.errors import ConfigurationError, did_you_mean, require_allowed_keys
from agentgym_rl.task import Task

GAMES = ("cookingworld", "twc", "coin", "mapreader", "arithmetic", "sorting", "simonsays", "peckingorder")
FOLDS = {"train": range(1_000), "dev": range(10_000, 11_000), "test": range(20_000, 21_000)}
"""The package's own seeds of each fold. A fold also has things and places of its own."""
SHOWN_ACTIONS = 40
"""How many of the allowed actions a refusal names."""


class TextWorldExpress(TextGame):
    """Play a short text game to its end.

    Task: `arguments` holds `game` (one of `GAMES`) and, if wanted, `fold` ("train", "dev" or "test": which things and
        places there are; default "train"), `parameters` (the game's own, whole numbers: {"numLocations": 3,
        "includeDoors": 0}; a wrong name is answered with the known ones) and `max_turns` (default 150). The seed draws
        the game; the package means seeds 0-999 for training, 10000-10999 for development, 20000-20999 for tests.
    Actions: what `actions` lists, such as "open fridge", "move north", "take coin", "put coin in box", "read map", as
        the last line of the reply; case, a final dot and a leading "Action:" don't matter. Anything else is not valid,
        does not reach the game and counts as a turn.
    Observations: the game's own text; the first one opens with the task's description.
    Reward: how much the game's score rises; the scores of a solved game add up to 1. A failure sets the score of
        arithmetic, sorting, simonsays and peckingorder to -1, and leaves that of cookingworld as it is.
    End: terminated when the game says that it is solved or failed; truncated after `max_turns` turns.
    Splits: the package's folds and seeds; `data_preprocess/textworld_express.py` keeps them.
    Expert: the game's own solution, from the start only; where several lead to the end, one is drawn anew each time. It
        solves 959 of 960 games (8 games x 3 folds x 40 seeds; in peckingorder it loses seed 10022 of fold dev), in 5
        turns (arithmetic, simonsays) to 105 (cookingworld).
    Source: Jansen and Cote, TextWorldExpress, EACL 2023, https://arxiv.org/abs/2208.01174; package `textworld_express`.
    Licence: Apache-2.0.

    A played episode, `Task("t", "textworld-express", {"game": "arithmetic"}, seed=1)`:

        user: Your first task is to solve the math problem. Then, pick up the item with the same quantity as the math
            problem answer, and place it in the box. You are in the backyard. [...] You also see a patio chair that has
            13 pineapples, and 64 peaches on it. [...] You also see a math problem. [...]
        assistant: take math problem
        user: You take the math problem.
        assistant: read math problem
        user: Your task is to solve the following math problem: divide 32 by 32. [...]  (reward 0.5)
        assistant: take 1 apple
        user: You take the 1 apple.
        assistant: put 1 apple in box
        user: You put the 1 apple in the box.  (reward 0.5, terminated, success)
    """

    facts = Facts(
        reward_range=(-2.0, 1.0),
        max_turns=150,
        expert_success=0.99,
        can_snapshot=True,
        lists_actions=True,
        domain="text game",
        source="https://arxiv.org/abs/2208.01174",
        licence="Apache-2.0",
    )
    instructions = (
        "Play the game until its task is done. Answer with one action, such as: look around, inventory, move north, "
        "open fridge, open door to north, take coin, put coin in box, read map."
    )
    own_process = True

    def __init__(self) -> None:
        self._jvm = Jvm(
            "textworld_express",
            "textworld-express.jar",
            "textworldexpress.runtime.PythonInterface",
            "textworld-express",
        )

    def set_up(self, task: Task, with_solution: bool) -> str:
        game, fold, parameters = _arguments(task)
        self._server = self._jvm.interface()
        with refused_as_configuration(f"task {task.id!r} of TextWorldExpress"):
            refusal = self._server.load(game, parameters)
            if refusal:
                raise ConfigurationError(f"task {task.id!r} of TextWorldExpress: {refusal.strip()}")
            self._now = json.loads(self._server.generateNewGameJSON(task.seed, fold, with_solution))
        return f"{self._server.getTaskDescription()}\n\n{self._now['observation'].strip()}"

    def understand(self, line: str) -> str | None:
        return {action.lower(): action for action in self._now["validActions"]}.get(line)

    def do(self, command: str) -> Outcome:
        self._now = json.loads(self._server.stepJSON(command))
        ends = (bool(self._now["tasksuccess"]), bool(self._now["taskfailure"]))
        return Outcome(self._now["observation"].strip(), float(self._now["score"]), *ends)

    def actions(self) -> Sequence[str]:
        self.require_open("was asked for its actions")
        return sorted(set(self._now["validActions"]))

    def help(self) -> str:
        allowed = sorted(set(self._now["validActions"]))
        return f"Allowed: {', '.join(allowed[:SHOWN_ACTIONS])}{', ...' if len(allowed) > SHOWN_ACTIONS else '.'}"

    def solution(self) -> Sequence[str]:
        return list(self._server.getGoldActionSequence())

    def close(self) -> None:
        self._jvm.close()


def _arguments(task: Task) -> tuple[str, str, str]:
    """Game, fold, and the parameters as the package reads them."""
    given: Mapping[str, Any] = task.arguments
    require_allowed_keys(given, ("game", "fold", "parameters", "max_turns"), "a TextWorldExpress task")
    for name, known in (("game", GAMES), ("fold", tuple(FOLDS))):
        value = given.get(name, "train" if name == "fold" else None)
        if value not in known:
            raise ConfigurationError(f"no TextWorldExpress {name} {value!r}; {did_you_mean(str(value), known)}")
    if not 0 <= task.seed < 2**31:
        raise ConfigurationError(f"the seed of a TextWorldExpress task must be in 0..{2**31 - 1}; given: {task.seed}")
    parameters = given.get("parameters", {})
    for name, value in parameters.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigurationError(f"parameter {name!r} of TextWorldExpress is a whole number; given: {value!r}")
    return given["game"], given.get("fold", "train"), ",".join(f"{name}={value}" for name, value in parameters.items())
