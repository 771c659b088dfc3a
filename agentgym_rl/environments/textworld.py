"""TextWorld: text games that its generator makes from a seed, or game files that are there, on a Z-machine.

A generated game is compiled once (seconds) and kept in a folder, for every later reset and every other worker. What can
be done is known at every turn, so a reply that is none of that never reaches the game.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from agentgym_rl.environment import Facts
from agentgym_rl.environments.text_game import Outcome, TextGame
from agentgym_rl.errors import ConfigurationError, did_you_mean, require_allowed_keys
from agentgym_rl.task import Task

DEFAULT_FOLDER = "~/.cache/openmanus-rl/textworld"
"""Of generated games, unless the environment variable OPENMANUS_TEXTWORLD_GAMES names another."""


class TextWorld(TextGame):
    """Play a text game in rooms with doors, containers, food and treasures.

    Task: `arguments` holds either `challenge`, the name of one of the package's generators ("tw-simple", "tw-cooking",
        "tw-coin_collector", "tw-treasure_hunter"), with its `parameters` as `tw-make` takes them ({"level": 5}; a flag
        is true), or `file`, the path of a game (.z8 with its .json beside it); and, if wanted, `max_turns` (default
        100). The seed draws what is generated; only tw-cooking has the recipe drawn by its parameter `recipe-seed`.
    Actions: what `actions` lists, such as "go east", "open wooden door", "take apple from table", as the last line of
        the reply. Anything else is not valid, does not reach the game and counts as a turn.
    Observations: the game's own text; the first one opens with the objective.
    Reward: how much the score rises, as a share of the highest; the rewards of a game that is won add up to 1.
    End: terminated when the game says that it is won or lost; truncated after `max_turns` turns.
    Splits: `data_preprocess/textworld.py` draws seeds that are all different.
    Expert: the generator's own solution, from the start only; it won 8 of 8 games (2 seeds of each challenge).
    Source: Cote et al., TextWorld, 2018, https://arxiv.org/abs/1806.11532; package `textworld`.
    Licence: MIT; it needs `jericho` (GPL-2.0 or later) and brings Inform 7 (Artistic-2.0).

    A played episode, `Task("t", "textworld", {"challenge": "tw-coin_collector", "parameters": {"level": 2}}, seed=1)`:

        user: Who's got a virtual machine and is about to play [...] First thing I need you to do is to make an effort
            to move south. And then, retrieve the coin from the floor of the spare room. Alright, thanks!
            -= Studio =- You've just shown up in a studio. [...] You should try going south.
        assistant: go south
        user: -= Spare Room =- [...] There is an exit to the north. There is a coin on the floor.
        assistant: take coin
        user: You pick up the coin from the ground. Your score has just gone up by one point.
            *** The End *** [...]  (reward 1, terminated, success)
    """

    facts = Facts(
        reward_range=(-1.0, 1.0),
        max_turns=100,
        expert_success=0.99,
        can_snapshot=True,
        lists_actions=True,
        domain="text game",
        source="https://arxiv.org/abs/1806.11532",
        licence="MIT (needs GPL-2.0-or-later packages)",
    )
    instructions = (
        "Play the game until its objective is reached. Answer with one action, such as: look, inventory, go east, "
        "open chest, take apple from table, put apple on stove."
    )
    own_process = True
    host_arguments = frozenset({"file"})

    _engine: Any = None

    def set_up(self, task: Task, with_solution: bool) -> str:
        textworld = _textworld()
        self.close()
        file = game_file(task)
        wanted = textworld.EnvInfos(
            objective=True,
            description=True,
            admissible_commands=True,
            won=True,
            lost=True,
            score=True,
            max_score=True,
            policy_commands=with_solution,
        )
        self._engine = textworld.start(str(file), wanted)
        self._now = self._engine.reset()
        self._plan = list(self._now["policy_commands"]) if with_solution else []
        return f"{self._now['objective'].strip()}\n\n{_cleaned(self._now['description'])}".strip()

    def solution(self) -> Sequence[str]:
        return self._plan

    def understand(self, line: str) -> str | None:
        return {command.lower(): command for command in self._now["admissible_commands"]}.get(line)

    def do(self, command: str) -> Outcome:
        self._now, score, _ = self._engine.step(command)
        won = bool(self._now["won"])
        share = 1.0 if won else score / max(self._now["max_score"], 1)
        return Outcome(_cleaned(self._now["feedback"]) or "Done.", share, won, bool(self._now["lost"]) and not won)

    def actions(self) -> Sequence[str]:
        self.require_open("was asked for its actions")
        return list(self._now["admissible_commands"])

    def help(self) -> str:
        return f"Allowed: {', '.join(self._now['admissible_commands'])}."

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def _cleaned(text: str) -> str:
    """Without the prompt and status line that end each answer, the last words of a game, and empty lines."""
    told = text.partition("\n>")[0].partition("Would you like to RESTART")[0]
    return "\n".join(line.strip() for line in told.splitlines() if line.strip())


def game_file(task: Task) -> Path:
    """The game of a task, which is generated unless it is there.

    Raises:
        ConfigurationError: the task's arguments can't work.
    """
    given = task.arguments
    require_allowed_keys(given, ("challenge", "parameters", "file", "max_turns"), "a TextWorld task")
    if ("file" in given) == ("challenge" in given):
        raise ConfigurationError(f"a TextWorld task needs `file` or `challenge`, one of them; given: {dict(given)}")
    if "file" in given:
        file = Path(given["file"]).expanduser()
        if not file.is_file():
            raise ConfigurationError(f"there is no TextWorld game {str(file)!r}")
        return file
    if not 0 <= task.seed < 2**32:
        raise ConfigurationError(f"the seed of a TextWorld task must be in 0..{2**32 - 1}; given: {task.seed}")
    root = Path(os.environ.get("OPENMANUS_TEXTWORLD_GAMES") or DEFAULT_FOLDER).expanduser()
    return _generated(given["challenge"], given.get("parameters", {}), task.seed, root)


def _generated(challenge: str, parameters: Mapping[str, Any], seed: int, root: Path) -> Path:
    from textworld.challenges import CHALLENGES

    if challenge not in CHALLENGES:
        raise ConfigurationError(f"no TextWorld challenge {challenge!r}; {did_you_mean(str(challenge), CHALLENGES)}")
    key = json.dumps([_textworld().__version__, challenge, dict(parameters), seed], sort_keys=True)
    folder = root / f"{challenge}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if not folder.exists():
        _, make, add_arguments = CHALLENGES[challenge]
        _move_whole(_compiled(make, _settings(challenge, parameters, add_arguments), seed, root), folder)
    return folder / "game.z8"


def _compiled(make: Any, settings: Mapping[str, Any], seed: int, root: Path) -> Path:
    """A new folder with the game."""
    from textworld.generator import compile_game
    from textworld.generator.game import GameOptions

    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=root))
    options = GameOptions()
    options.seeds = seed
    options.path = str(folder / "game.z8")
    try:
        compile_game(make(settings, options), options)
    except ValueError as error:  # the generator's own checks of its settings
        shutil.rmtree(folder)
        raise ConfigurationError(f"TextWorld can't make a game of {dict(settings)}: {error}") from error
    return folder


def _move_whole(made: Path, folder: Path) -> None:
    """A folder is there with all its files or not at all; another worker may have been faster."""
    try:
        made.rename(folder)
    except OSError:
        if not folder.exists():
            raise
        shutil.rmtree(made)


def _settings(challenge: str, parameters: Mapping[str, Any], add_arguments: Any) -> dict[str, Any]:
    """The generator's settings with its defaults, read by its own command line."""

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise ConfigurationError(f"parameters of TextWorld's {challenge!r}: {message}")

    parser = Parser(prog=challenge, add_help=False, allow_abbrev=False)
    add_arguments(parser)
    words = [word for name, value in parameters.items() for word in _words(name, value)]
    return vars(parser.parse_args(words))


def _words(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}"] if value else []
    return [f"--{name}", str(value)]


def _textworld() -> Any:
    try:
        import textworld
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f'TextWorld needs {error.name!r}: pip install "openmanus-rl[textworld]", or into an environment of its own '
            "(see `agentgym_rl.environments.interpreter`)"
        ) from error
    return textworld
