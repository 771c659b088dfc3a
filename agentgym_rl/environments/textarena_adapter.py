"""TextArena's games: those for one player, and those for two against an opponent that the task names.

The games are the package's own, with its action wrappers. Its observation wrappers, which tell the whole history each
time, are left aside: a turn tells what was said since the last one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentgym_rl.environment import Facts, StepResult
from agentgym_rl.environments.replayed import Replayed
from agentgym_rl.environments.textarena_opponents import MOVES, OPPONENTS, Opponent, refused
from agentgym_rl.environments.turn_limited import whole_number
from agentgym_rl.environments.unread import unread
from agentgym_rl.errors import ConfigurationError, did_you_mean, require_allowed_keys
from agentgym_rl.task import Task

SOLO = (
    *("2048", "Bandit", "Blackjack", "Crosswords", "FifteenPuzzle", "FrozenLake", "GuessTheNumber", "LightsOut"),
    *("LogicPuzzle", "Mastermind", "Minesweeper", "PegJump", "RushHour", "Secretary", "Set", "Sudoku", "TowerOfHanoi"),
)
"""Games for one player that need nothing but the package."""
SOLO_WITH_MORE = ("Hangman", "Klondike", "UltimateTexasHoldem", "WordLadder", "WordSearch", "Wordle")
"""Games for one player that need NLTK's words, or (Klondike, UltimateTexasHoldem) Python 3.12."""

INSTALL = (
    'pip install "openmanus-rl[textarena]", or name an interpreter that has it: '
    "OPENMANUS_PYTHON_TEXTARENA=/path/to/python"
)


class TextArena(Replayed):
    """Play one of TextArena's games.

    Task: `arguments` holds `game` ("FrozenLake-v0-random"; the package's id) and, if wanted, `max_turns` (default 100).
        Games for one player: `SOLO`, and `SOLO_WITH_MORE` where their needs are met. Games for two: `MOVES`; they take
        `opponent` ("random", the default, or "lookahead", which plays a move that wins at once where there is one) and
        `seat` (0, the default, or 1). The seed is the game's, and the opponent's.
    Actions: what the game says; mostly a move in [brackets], and a reply without brackets is put into them, as in the
        package. An invalid move is told and may be made good; the second one in a row ends the game, as in the package.
    Observations: what the game and the opponent said since the last turn, with the newest board only.
    Reward: the package's, at the end of the game: 1 won or solved, -1 lost, 0 drawn; the games for one player give the
        share that was solved, LightsOut less than 0 where more lights are on than at the start, and Set its score.
    End: terminated as the package says, which does not tell a game's own limit of turns apart; truncated after
        `max_turns` turns of the policy.
    Success: a reward of at least 1.
    Expert: `expert_action` answers in games for two, as the opponent "lookahead" does, which is no strong player;
        `facts` can't promise one for all.
    Splits: `data_preprocess/textarena.py` tells tasks apart by their first observation.
    Isolation: games draw from Python's own `random`, so each instance is a process.
    Left out: games that judges, keys or servers are needed for (Debate, GuessWho, ScenarioPlanning, TwentyQuestions),
        whose files the package lacks (Sokoban, SpellingBee, UsedCarNegotiation, ScorableGames), in which players talk
        (the negotiations, TruthAndDeception, ...), whose moves are too many to try (Alquerque, Breakthrough,
        LinesOfAction, Stratego, Tak, UltimateTicTacToe), that chance may never end (Golf, HighSociety,
        SpiteAndMalice), that 0.7.4 breaks (Countdown, Cryptarithm, Slitherlink and ThreeCardMonte mix up their
        arguments, QuantumTicTacToe knows no draw, Poker's rewards may be above 1), and games of three players or more.
    Source: Guertler et al., TextArena, 2025, https://arxiv.org/abs/2504.11442; package `textarena` 0.7.4.
    Licence: MIT.

    An episode ("TicTacToe-v0", opponent "random", seed 0; the board left out from the second turn on):
        You are Player 0 in Tic Tac Toe. ... Available Moves: '[0]', '[1]', ...
        > [4]
        Player 0 placed their symbol (O) in cell 4. / Player 1: [1] / Player 1 placed their symbol (X) in cell 1. ...
        > 0
        Player 0 placed their symbol (O) in cell 0. / Player 1: [7] / Player 1 placed their symbol (X) in cell 7. ...
        > [8]
        Player 0 placed their symbol (O) in cell 8. ... Player 0 has won! (terminated, reward 1)
    """

    facts = Facts(
        reward_range=(-24.0, 20.0),
        max_turns=100,
        can_snapshot=True,
        any_text=True,
        domain="board and card games",
        source="https://arxiv.org/abs/2504.11442",
        licence="MIT",
    )
    instructions = "Play the game. Answer with your move, in [brackets]."
    own_process = True
    task_command = ("data_preprocess.textarena", "--game", "FrozenLake-v0-random")

    def begin(self, task: Task) -> str:
        require_allowed_keys(task.arguments, ("game", "opponent", "seat", "max_turns"), "a TextArena task")
        given = task.arguments.get("game")
        self._rules = game = given.partition("-v")[0] if isinstance(given, str) else ""
        self._seat, kind = _seat_and_opponent(task, game)
        self._game = _made(given)
        self._game.reset(num_players=1 if kind is None else 2, seed=task.seed)
        self._world = self._game
        while hasattr(self._world, "env"):  # its wrappers
            self._world = self._world.env
        self._opponent = None if kind is None else Opponent(kind, game, f"opponent {task.seed}")
        self._boards = ["", ""]
        self._let_opponent_play()
        return self._told()

    def act(self, text: str) -> StepResult:
        if no_move := unread(text):
            return no_move
        state = self._world.state
        errors = state.error_count
        self._game.step(text)
        valid = not refused(state, self._seat, errors)
        self._let_opponent_play()
        if not state.done:
            return StepResult.going_on(self._told(), valid=valid)
        rewards, info = self._game.close()
        reward = float(rewards[self._seat])
        told = f"{self._told()}\n{info[self._seat].get('reason', '')}".strip()
        return replace(StepResult.at_end(reward, reward >= 1, told), valid=valid)

    def expert_action(self) -> str:
        self.require_open("was asked for its expert")
        if self._opponent is None or self._task is None:
            raise ConfigurationError("TextArena's games for one player have no expert")
        expert = Opponent("lookahead", self._rules, f"expert {self._task.seed} {len(self.played)}")
        return expert.move(self._world, self._boards[self._seat])

    def _let_opponent_play(self) -> None:
        state, other = self._world.state, 1 - self._seat
        while not state.done and self._opponent is not None and state.current_player_id != self._seat:
            self._unseen(other)
            state.logs.clear()  # of no use to a game, but copied with it
            self._world.step(self._opponent.move(self._world, self._boards[other]))

    def _told(self) -> str:
        """What the policy has not been told yet."""
        lines, board = [], ""
        for sender, message, kind in self._unseen(self._seat):
            if kind.name == "GAME_BOARD":
                board = message
            elif kind.name != "PLAYER_ACTION":
                lines.append(message)
            elif sender == 1 - self._seat:
                lines.append(f"{self._world.state.role_mapping.get(sender, sender)}: {message}")
        return "\n".join([*lines, board]).strip() or "It is your turn."

    def _unseen(self, seat: int) -> list[tuple[int, str, Any]]:
        """What was said to a seat since it was last asked for; notes the newest board."""
        state = self._world.state
        unseen, state.observations[seat] = state.observations[seat], []
        self._boards[seat] = next(
            (told for _, told, kind in reversed(unseen) if kind.name == "GAME_BOARD"), self._boards[seat]
        )
        return unseen


def _seat_and_opponent(task: Task, game: str) -> tuple[int, str | None]:
    given = task.arguments
    if game in SOLO or game in SOLO_WITH_MORE:
        for name in ("seat", "opponent"):
            if name in given:
                raise ConfigurationError(f"TextArena's {game} is for one player and takes no {name!r}")
        return 0, None
    if game not in MOVES:
        raise ConfigurationError(
            f"no TextArena game {given.get('game')!r} is played here; for one player: "
            f"{', '.join((*SOLO, *SOLO_WITH_MORE))}; for two: {', '.join(MOVES)}; each with the package's '-v0...'"
        )
    kind = given.get("opponent", OPPONENTS[0])
    if kind not in OPPONENTS:
        raise ConfigurationError(f"no opponent {kind!r}; {did_you_mean(str(kind), OPPONENTS)}")
    return whole_number(given, "seat", 0, least=0, most=1), kind


def _made(name: Any) -> Any:
    try:
        import textarena
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"TextArena needs {error.name!r}: {INSTALL}") from error
    known = textarena.envs.registration.ENV_REGISTRY
    if name not in known:
        raise ConfigurationError(f"TextArena has no game {name!r}; {did_you_mean(name, known)}")
    try:
        return textarena.make(name)
    except (LookupError, SyntaxError, ImportError) as error:
        why = " ".join(str(error).replace("*", "").split())[:200]
        raise ConfigurationError(f"TextArena's {name} can't be made here: {type(error).__name__}: {why}") from error
