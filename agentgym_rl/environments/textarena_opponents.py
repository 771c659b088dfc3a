"""Who plays the other seat of a TextArena game: an opponent that plays any move that the game takes.

A move is tried on a copy of the game before it is played, so an opponent makes no invalid ones, whatever the rules are.
The moves to try are those that the game lists on its board, or else all that its notation can say; where a board lists
none, the turn is passed. An opponent draws from a generator of its own, and a trial leaves the game's random numbers
where they were.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from agentgym_rl.errors import EnvironmentFailed

OPPONENTS = ("random", "lookahead")
"""`random` plays any move that is taken, each with the same chance; `lookahead` one that wins at once, if one does."""
LOOKAHEAD_TRIES = 64
"""How many moves are tried to find one that wins."""

PASS = "[pass]"
"""Any text does where Othello lists no move: a seat without one is skipped on its turn."""

_LISTED = re.compile(r"\[[^\[\]\n]{1,20}\]")


def _notation(pattern: str, *values: Sequence[Any]) -> Callable[[], list[str]]:
    return lambda: [f"[{pattern.format(*given)}]" for given in product(*values)]


def _words(*words: str) -> Callable[[], list[str]]:
    return lambda: [f"[{word}]" for word in words]


_TEN = range(10)
MOVES: dict[str, Callable[[], list[str]] | None] = {
    "Battleship": _notation("{}{}", "ABCDEFGHIJKLMNOPQRST", range(20)),
    "Briscola": _notation("play {}", (1, 2, 3)),
    "Chopsticks": lambda: [
        *_notation("attack {} {}", (0, 1), (0, 1))(),
        *_notation("split {} {}", range(5), range(5))(),
    ],
    "ConnectFour": _notation("col {}", range(15)),
    "Crusade": None,
    "GameOfPureStrategy": None,
    "GermanWhist": _notation("play {}", range(1, 14)),
    "IndianPoker": lambda: [*_words("check", "call", "fold")(), *_notation("{} {}", ("bet", "raise"), (1, 2, 5, 10))()],
    "IteratedMatchingPennies": _words("heads", "tails"),
    "IteratedRockPaperScissors": _words("rock", "paper", "scissors"),
    "IteratedTwoThirdsAverage": _notation("{}", range(101)),
    "KuhnPoker": None,
    "LiarsDice": lambda: ["[Call]", *_notation("Bid: {}, {}", range(1, 11), range(1, 7))()],
    "MemoryGame": _notation("{} {} {} {}", *[range(4)] * 4),
    "Nim": _notation("{} {}", _TEN, _TEN),
    "Othello": None,
    "PigDice": None,
    "SimpleTak": None,
    "TicTacToe": None,
    "WildTicTacToe": None,
}
"""The two-player games that are played here -> the moves of their notation; None: the board lists the moves."""


class Opponent:
    """One opponent in one episode.

    Args:
        kind: of `OPPONENTS`.
        game: of `MOVES`.
        seed: of its draws.
    """

    def __init__(self, kind: str, game: str, seed: int | str):
        self._kind = kind
        self._notation = MOVES[game]
        self._chance = random.Random(seed)

    def move(self, world: Any, board: str) -> str:
        """Its move.

        Args:
            world: the game, in which it is the opponent's turn.
            board: the last one that it was shown.

        Raises:
            EnvironmentFailed: the game takes no move that is known.
        """
        moves = self._notation() if self._notation is not None else _listed(board) or [PASS]
        self._chance.shuffle(moves)
        found = None
        for tries, move in enumerate(moves, start=1):
            taken, wins = _tried(world, move)
            if wins or (taken and self._kind == "random"):
                return move
            found = found or (move if taken else None)
            if found and tries >= LOOKAHEAD_TRIES:
                break
        if found is None:
            raise EnvironmentFailed(f"the opponent knows no move that the game takes; it was shown: {board[-300:]}")
        return found


def _listed(board: str) -> list[str]:
    return list(dict.fromkeys(_LISTED.findall(board)))


def _tried(world: Any, move: str) -> tuple[bool, bool]:
    """Whether the game takes a move, and whether that wins at once."""
    before = random.getstate()
    copied = copy.deepcopy(world)
    state, seat = copied.state, copied.state.current_player_id
    done, _ = copied.step(move)
    random.setstate(before)
    taken = not refused(state, seat, world.state.error_count)
    return taken, taken and done and state.rewards[seat] >= 1


def refused(state: Any, seat: int, errors_before: int) -> bool:
    """Whether the move that `seat` just made was an invalid one."""
    return state.error_count > errors_before or state.game_info[seat]["invalid_move"]
