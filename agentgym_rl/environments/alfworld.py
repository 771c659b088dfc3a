"""ALFWorld's text engine: household tasks in a room, in the published games or in rooms that are drawn here.

What can be done is known at every turn, so a reply that is none of that never reaches the engine. Its parser is not
safe with threads; each instance has a process of its own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentgym_rl.environment import Facts, StepResult
from agentgym_rl.environments.alfworld_game import game_data, solution_of
from agentgym_rl.environments.alfworld_rooms import TASK_TYPES, draw_room
from agentgym_rl.environments.text_game import Outcome, TextGame
from agentgym_rl.environments.turn_limited import whole_number
from agentgym_rl.errors import ConfigurationError, did_you_mean, require_allowed_keys
from agentgym_rl.messages import Message
from agentgym_rl.task import Task


class ALFWorld(TextGame):
    """Find a thing in a household, maybe clean, heat or cool it, and put it somewhere.

    Task: `arguments` holds either `file`, the path of a published game (`game.tw-pddl`, below the folder that the
        environment variable ALFWORLD_DATA names), or `task_type` (one of `TASK_TYPES`) and `room` (1-30 kitchens,
        201-230 living rooms, 301-330 bedrooms, 401-430 bathrooms), in which the seed draws where things lie and what is
        to be done. If wanted, `max_turns` (default 50). Drawn rooms are this project's, not the published 3,553 + 140
        + 134 games: their success rates can't be compared. `info["origin"]` of each step says which it is.
    Actions: what `actions` lists, such as "go to cabinet 1", "open drawer 2", "take apple 1 from countertop 1", "move
        apple 1 to fridge 1", "heat egg 1 with microwave 1", "use desklamp 1", as the last line of the reply. Anything
        else is not valid, does not reach the engine and counts as a turn.
    Observations: the engine's own text.
    Reward: 1 when the task is done, else 0.
    End: terminated when the task is done; truncated after `max_turns` turns.
    Splits: of drawn rooms, `data_preprocess/alfworld.py` keeps the package's own rooms for tests apart.
    Expert: the walkthrough that a published game brings; of a drawn room, the way to where things were put. From the
        start only. It does 60 of 60 drawn tasks of all types, in 3 to 10 turns.
    Source: Shridhar et al., ALFWorld, ICLR 2021, https://arxiv.org/abs/2010.03768; package `alfworld`.
    Licence: MIT; it needs `fast-downward-textworld` (GPL-3.0) and `jericho` (GPL-2.0 or later).

    A played episode, `Task("t", "alfworld", {"task_type": "pick_and_place_simple", "room": 7})`:

        user: You are in the middle of a room. Looking quickly around you, you see a cabinet 4, a cabinet 3, [...] a
            sinkbasin 1, a stoveburner 1, and a toaster 1. Your task is to: put some kettle on diningtable.
        assistant: go to shelf 2
        user: You arrive at shelf 2. On the shelf 2, you see a kettle 1.
        assistant: take kettle 1 from shelf 2
        user: You pick up the kettle 1 from the shelf 2.
        assistant: go to diningtable 1
        user: You arrive at diningtable 1. On the diningtable 1, you see nothing.
        assistant: move kettle 1 to diningtable 1
        user: You move the kettle 1 to the diningtable 1.  (reward 1, terminated, success)
    """

    facts = Facts(
        reward_range=(0.0, 1.0),
        max_turns=50,
        expert_success=0.99,
        can_snapshot=True,
        lists_actions=True,
        domain="household",
        source="https://arxiv.org/abs/2010.03768",
        licence="MIT (needs GPL-3.0 packages)",
    )
    instructions = (
        "Do the household task. Answer with one action, such as: look, inventory, go to cabinet 1, open cabinet 1, "
        "take apple 1 from cabinet 1, clean apple 1 with sinkbasin 1, heat apple 1 with microwave 1, cool apple 1 with "
        "fridge 1, move apple 1 to fridge 1, use desklamp 1."
    )
    own_process = True
    host_arguments = frozenset({"file"})

    def step(self, action: Message) -> StepResult:
        result = super().step(action)
        assert self._task is not None
        return replace(result, info={"origin": "published" if "file" in self._task.arguments else "drawn"})

    def set_up(self, task: Task, with_solution: bool) -> str:
        given = task.arguments
        require_allowed_keys(given, ("file", "task_type", "room", "max_turns"), "an ALFWorld task")
        if ("file" in given) == ("task_type" in given):
            raise ConfigurationError(f"an ALFWorld task needs `file` or `task_type`, one of them; given: {dict(given)}")
        self._engine = _engine()
        if "file" in given:
            self._set_up_published(published_game(given["file"]))
        else:
            self._set_up_drawn(task)
        self._now = self._engine.reset()
        return _cleaned(self._now["feedback"])

    def solution(self) -> Sequence[str]:
        return self._solution

    def understand(self, line: str) -> str | None:
        return {command.lower(): command for command in self._now["admissible_commands"]}.get(line)

    def do(self, command: str) -> Outcome:
        self._now, _, _ = self._engine.step(command)
        won = bool(self._now["won"])
        return Outcome(_cleaned(self._now["feedback"]), float(won), won)

    def actions(self) -> Sequence[str]:
        self.require_open("was asked for its actions")
        return list(self._now["admissible_commands"])

    def help(self) -> str:
        return f"Allowed: {', '.join(self._now['admissible_commands'])}."

    def _set_up_published(self, file: Path) -> None:
        game = json.loads(file.read_text())
        self._engine.load(str(file))
        self._solution = list(game.get("walkthrough") or ())

    def _set_up_drawn(self, task: Task) -> None:
        task_type = task.arguments["task_type"]
        if task_type not in TASK_TYPES:
            raise ConfigurationError(f"no ALFWorld task {task_type!r}; {did_you_mean(str(task_type), TASK_TYPES)}")
        room = draw_room(task_type, whole_number(task.arguments, "room", 0), task.seed)
        self._engine.load(game_data(room, task.seed))
        names = {info.id: info.name.strip() for info in self._engine._entity_infos.values()}
        self._solution = [" ".join(names.get(word, word) for word in step.split()) for step in solution_of(room)]


def published_game(file: str) -> Path:
    """The path of a published game; a relative one lies below the folder that ALFWORLD_DATA names.

    Raises:
        ConfigurationError: it is not there.
    """
    path = Path(os.environ.get("ALFWORLD_DATA", "~/.cache/alfworld")).expanduser() / file
    if not path.is_file():
        raise ConfigurationError(
            f"there is no ALFWorld game {str(path)!r}; ALFWORLD_DATA names the folder of the published games, and "
            "`task_type` with `room` draws a room instead"
        )
    return path


def _engine() -> Any:
    """The package's own engine, which neither shuffles names nor asks a planner."""
    try:
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
        from textworld import EnvInfos
        from textworld.envs import PddlEnv
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f'ALFWorld needs {error.name!r}: pip install "openmanus-rl[alfworld]", or into an environment of its own '
            "(see `agentgym_rl.environments.interpreter`)"
        ) from error
    return AlfredInfos(AlfredDemangler(PddlEnv(EnvInfos(admissible_commands=True, won=True)), shuffle=False))


def _cleaned(text: str) -> str:
    """Without the engine's banner and doubled spaces."""
    told = text.replace("-= Welcome to TextWorld, ALFRED! =-", "")
    return re.sub(r" +(?=[ .,])", "", told).strip()
