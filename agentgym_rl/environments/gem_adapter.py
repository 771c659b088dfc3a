"""GEM's language games, played over many turns.

GEM says that an episode is terminated and truncated at once where a game's own limit of turns ended it; here that is
truncated alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentgym_rl.environment import Facts, StepResult
from agentgym_rl.environments.replayed import Replayed
from agentgym_rl.environments.unread import unread
from agentgym_rl.errors import ConfigurationError, did_you_mean, require_allowed_keys
from agentgym_rl.task import Task

GAMES = tuple(
    f"game:{game}-v0-{level}"
    for game, levels in {
        "FifteenPuzzle": ("easy", "hard"),
        "Game2048": ("easy", "hard", "extreme-hard", "random"),
        "GuessTheNumber": ("easy", "hard", "random"),
        "Mastermind": ("easy", "hard", "random"),
        "Minesweeper": ("easy", "hard", "random"),
        "Sokoban": ("easy", "hard", "random"),
        "Sudoku": ("easy", "hard", "random"),
        "TowerofHanoi": ("easy", "hard", "random"),
    }.items()
    for level in levels
)
"""The ids that need nothing but the package."""
GAMES_WITH_WORDS = tuple(
    f"game:{game}-v0-{level}" for game in ("Hangman", "WordSearch", "Wordle") for level in ("easy", "hard", "random")
)
"""The ids that need NLTK's corpus `words`."""

INSTALL = 'pip install "openmanus-rl[gem]", or name an interpreter that has it: OPENMANUS_PYTHON_GEM=/path/to/python'
_FORMAT_ERROR = -0.1
"""GEM's reward of a reply that holds no \\boxed{} move, which ends the game."""


class Gem(Replayed):
    """Play one of GEM's language games.

    Task: `arguments` holds `id` (of `GAMES`, or of `GAMES_WITH_WORDS` where NLTK has the words; "game:Sokoban-v0-easy")
        and, if wanted, `max_turns` (default 100, as long as the longest of theirs lasts). The seed is the game's.
    Actions: what the game says, always in \\boxed{}; the last one counts. A reply without ends the game, as in GEM.
    Observations: GEM's, with what it calls the suffix: board and question.
    Reward: GEM's, of each step: those of a solved game add up to 1; a share of that for progress or, in some games, at
        their own limit of turns; -0.1 for a reply without a move.
    End: terminated as GEM says, truncated where its limit of turns ended the game, and after `max_turns` turns.
    Success: of a game that terminated: the rewards add up to 1.
    Splits: `data_preprocess/gem.py` tells tasks apart by their first observation.
    Isolation: games draw from the random numbers of Python and NumPy, so each instance is a process.
    Left out: GEM's questions of one turn, which are reasoning-gym's (`rg:`) or a hub's (`math:`, `code:`, `qa:`,
        `logic:`, `eval:`), and two that 0.1.0 breaks (Crosswords, which imports what is not required;
        FifteenPuzzle-v0-random, which fails over its own defaults).
    Source: Liu et al., GEM, 2025, https://arxiv.org/abs/2510.01051; package `gem-llm` 0.1.0.
    Licence: Apache-2.0.

    An episode ("game:GuessTheNumber-v0-easy", seed 1):
        You are playing Guess The Number. You have to guess the number between 1 and 10 (inclusive) within 4 turns. ...
        > \\boxed{5}
        At turn 1, you guessed 5, and the target number is lower than 5. Enter your next guess.
        > \\boxed{3}
        Congratulations! You guessed the correct number 3 in 2 turns. (terminated, reward 1)
    """

    facts = Facts(
        reward_range=(_FORMAT_ERROR, 1.0),
        max_turns=100,
        can_snapshot=True,
        any_text=True,
        domain="text game",
        source="https://arxiv.org/abs/2510.01051",
        licence="Apache-2.0",
    )
    instructions = "Play the game. Put your move into \\boxed{}."
    own_process = True
    task_command = ("data_preprocess.gem", "--id", "game:Sokoban-v0-easy")

    _game: Any = None
    _id: str | None = None

    def begin(self, task: Task) -> str:
        require_allowed_keys(task.arguments, ("id", "max_turns"), "a GEM task")
        if self._id != (given := _id_of(task)):
            self._game, self._id = _made(given), given
        self._earned = 0.0
        seen, info = self._game.reset(seed=task.seed)
        return _told(seen, info)

    def act(self, text: str) -> StepResult:
        if refused := unread(text):
            return refused
        seen, reward, terminated, truncated, info = self._game.step(text)
        reward = float(reward)
        self._earned += reward
        if truncated:
            return StepResult.cut_off(str(seen), reward, valid=reward != _FORMAT_ERROR)
        if terminated:
            ended = StepResult.at_end(reward, self._earned > 1 - 1e-6, str(seen))
            return replace(ended, valid=reward != _FORMAT_ERROR)
        return StepResult.going_on(_told(seen, info), reward)


def _told(seen: Any, info: Any) -> str:
    return f"{seen}\n{info.get('suffix', '')}".strip()


def _id_of(task: Task) -> str:
    given = task.arguments.get("id")
    known = (*GAMES, *GAMES_WITH_WORDS)
    if given not in known:
        raise ConfigurationError(f"no game {given!r} of GEM's is played here; {did_you_mean(str(given), known)}")
    return str(given)


def _made(identity: str) -> Any:
    try:
        import gem
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"GEM needs {error.name!r}: {INSTALL}") from error
    try:
        return gem.make(identity)
    except LookupError as error:
        raise ConfigurationError(f"GEM's {identity} needs NLTK's corpus: python -m nltk.downloader words") from error
