"""TextArena's games, played through the interpreter that has the package: ends, opponents, refusals, its data set.

The worker's Python is the one that OPENMANUS_PYTHON_TEXTARENA names, or this one.
"""

from __future__ import annotations

import asyncio
import importlib.util
import random
from types import SimpleNamespace

import pytest

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments import registry
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.interpreter import interpreter_of
from agentgym_rl.environments.process import ProcessEnvironment
from agentgym_rl.environments.textarena_adapter import INSTALL, SOLO, TextArena
from agentgym_rl.environments.textarena_opponents import MOVES, OPPONENTS, PASS, Opponent
from agentgym_rl.episode import play
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.policy import ScriptedPolicy
from agentgym_rl.task import Task
from data_preprocess import textarena as data_set

needs_textarena = pytest.mark.skipif(
    interpreter_of("textarena") is None and importlib.util.find_spec("textarena") is None,
    reason=f"textarena is not installed: {INSTALL}",
)


def task(game, seed=0, **arguments):
    return Task(f"{game}-{seed}", "textarena", {"game": game, **arguments}, seed=seed)


class Played:
    """One worker for the tests of this file, without its `await`s."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._environment = self._loop.run_until_complete(self._made())

    async def _made(self):
        return registry.make("textarena")

    def reset(self, game, seed=0, **arguments):
        return self.call(self._environment.reset(task(game, seed, **arguments)))[0].content

    def say(self, *replies):
        """The result of the last reply."""
        for reply in replies:
            result = self.call(self._environment.step(assistant(reply)))
        return result

    def episode(self, game, lines, seed=0, **arguments):
        return self.call(play(ScriptedPolicy(lines), self._environment, task(game, seed, **arguments)))

    def call(self, awaited):
        return self._loop.run_until_complete(awaited)

    def expert(self):
        return self.call(self._environment.expert_action())

    def close(self):
        self.call(self._environment.close())
        self._loop.close()


@pytest.fixture(scope="module")
def game():
    played = Played()
    yield played
    played.close()


def said(result):
    return "\n".join(message.content for message in result.observation)


def ends(result):
    return result.reward, result.terminated, result.truncated, result.success


# ---- one player


@needs_textarena
def test_a_puzzle_is_solved_by_its_known_moves_with_and_without_brackets(game):
    opening = game.reset("TowerOfHanoi-v0")
    assert "A: [3, 2, 1]" in opening
    moves = ["[A C]", "A B", "I take the small one: [C B]", "[A C]", "[B A]", "[B C]"]
    results = [game.say(move) for move in moves]
    assert {(ends(r), r.valid) for r in results} == {((0.0, False, False, None), True)}
    last = game.say("A C")
    assert ends(last) == (1.0, True, False, True)
    assert said(last).endswith("Congratulations! You solved the Tower of Hanoi puzzle.")


@needs_textarena
def test_a_turn_tells_what_is_new_with_the_newest_board_only(game):
    game.reset("TowerOfHanoi-v0")
    told = said(game.say("[A C]"))
    assert told == "You moved disk 1 from A to C.\nCurrent Board: \nA: [3, 2]\nB: []\nC: [1]\n."


@needs_textarena
def test_an_invalid_move_is_told_and_the_second_in_a_row_ends_the_game(game):
    game.reset("GuessTheNumber-v0")
    refused = game.say("I have no idea")
    assert (refused.valid, ends(refused)) == (False, (0.0, False, False, None))
    assert "You attempted an invalid move. Reason: Invalid move format." in said(refused)
    assert game.say("[3]").valid
    assert not game.say("[3]").valid  # guessed before, and the first again
    over = game.say("[99]")
    assert (over.valid, over.terminated, over.success) == (False, True, False)


@needs_textarena
def test_the_seed_draws_the_game_and_a_partial_reward_is_no_success(game):
    # random.seed(0) and random.randint(1, 20) give 13; the package ends the game after 11 guesses, the last is 2 off
    far = game.episode("GuessTheNumber-v0", [f"[{n}]" for n in range(1, 13)])
    assert (len(far.turns), far.turns[-1].reward, far.success) == (11, pytest.approx(1 - 2 / 19), False)
    assert game.episode("GuessTheNumber-v0", ["[13]"]).success
    assert not game.episode("GuessTheNumber-v0", ["[13]"] * 2, seed=1).turns[0].reward


@needs_textarena
def test_a_policy_that_never_comes_to_an_end_is_cut_off(game):
    trajectory = game.episode("TowerOfHanoi-v0", ["[A C]", "[C A]"] * 2, max_turns=3)
    assert (len(trajectory.turns), trajectory.stop.value, trajectory.success) == (3, "truncated", False)


# ---- two players


@needs_textarena
def test_the_opponent_has_moved_before_the_policy_is_asked_again(game):
    game.reset("TicTacToe-v0")
    told = said(game.say("[4]"))
    assert told.count("Player 1: [") == 1
    assert told.count("Current Board:") == 1
    assert told.count("X") == told.count("(X)") + 1
    assert "'[4]'" not in told


@needs_textarena
def test_in_the_second_seat_the_opponent_opens(game):
    opening = game.reset("TicTacToe-v0", seat=1)
    assert opening.startswith("You are Player 1 in Tic Tac Toe.")
    assert "Player 0: [" in opening
    assert opening.partition("Available Moves:")[2].count("'[") == 8


@needs_textarena
def test_the_seed_draws_the_opponents_moves(game):
    def moves(seed):
        game.reset("TicTacToe-v0", seed)
        return said(game.say("[4]"))

    assert moves(3) == moves(3)
    assert len({moves(seed) for seed in range(12)}) > 4


@needs_textarena
def test_winning_losing_and_drawing_give_1_minus_1_and_0(game):
    def rewards(seed):
        game.reset("IteratedMatchingPennies-v0", seed)
        while not (result := game.say("[heads]")).terminated:
            pass
        return result.reward, result.success

    assert {rewards(seed) for seed in range(30)} == {(1.0, True), (-1.0, False), (0.0, False)}


@needs_textarena
@pytest.mark.parametrize("two", MOVES)
def test_each_game_for_two_is_played_to_its_end(game, two):
    game.reset(f"{two}-v0", seat=1, max_turns=200)
    while not (result := game.say(game.expert())).terminated:
        assert result.valid
    assert result.reward in (-1.0, 0.0, 1.0)
    assert result.success is (result.reward == 1)


@needs_textarena
def test_a_seat_without_a_move_passes_and_the_game_goes_on(game):
    passes = 0
    for seed in range(6):
        game.reset("Othello-v0", seed, max_turns=60)
        while not (result := game.say(game.expert())).terminated:
            passes += "has no valid moves and must skip" in said(result)
        assert result.reward in (-1.0, 0.0, 1.0)
    assert passes


@needs_textarena
def test_a_game_for_one_player_has_no_expert(game):
    game.reset("2048-v0")
    with pytest.raises(ConfigurationError, match="TextArena's games for one player have no expert"):
        game.expert()


# ---- the opponent, on a double of a game


class Pile:
    """A double of TextArena's games for two: take 1 to 3 of a pile; whoever takes the last one wins."""

    def __init__(self, left, may_pass=False):
        info = {seat: {"invalid_move": False} for seat in (0, 1)}
        self.state = SimpleNamespace(error_count=0, game_info=info, current_player_id=1, rewards=None)
        self.left, self.may_pass = left, may_pass

    def step(self, move):
        random.random()  # as games that roll dice do
        if move == PASS and self.may_pass:
            return False, {}
        number = int(move[1:-1]) if move[1:-1].isdecimal() else 0
        if not 1 <= number <= min(3, self.left):
            self.state.error_count += 1
            return False, {}
        self.left -= number
        if self.left == 0:
            self.state.rewards = {1: 1, 0: -1}
        return self.left == 0, {}


def moves_of(kind, left, board="Moves: '[0]' [1], [2] [3] [4]"):
    return [Opponent(kind, "TicTacToe", seed).move(Pile(left), board) for seed in range(60)]


def test_any_move_that_the_game_takes_is_played_by_chance():
    assert set(moves_of("random", 9)) == {"[1]", "[2]", "[3]"}
    assert set(moves_of("random", 2)) == {"[1]", "[2]"}


def test_a_move_that_wins_at_once_is_played_by_who_looks_ahead_and_any_other_where_none_does():
    assert set(moves_of("lookahead", 2)) == {"[2]"}
    assert set(moves_of("lookahead", 9)) == {"[1]", "[2]", "[3]"}


def test_trying_moves_changes_neither_the_game_nor_its_random_numbers():
    pile, before = Pile(2), random.getstate()
    Opponent("lookahead", "TicTacToe", 0).move(pile, "[0] [1] [2]")
    assert (pile.left, pile.state.error_count, pile.state.rewards) == (2, 0, None)
    assert random.getstate() == before


def test_an_opponent_without_a_move_is_a_failure_that_shows_the_board():
    with pytest.raises(EnvironmentFailed, match=r"knows no move that the game takes; it was shown: Moves: \[7\]"):
        Opponent("random", "TicTacToe", 0).move(Pile(2), "Moves: [7]")


@pytest.mark.parametrize("kind", OPPONENTS)
def test_an_opponent_whose_board_lists_no_move_passes_where_the_game_lets_it(kind):
    opponent = Opponent(kind, "TicTacToe", 0)
    assert opponent.move(Pile(2, may_pass=True), "No valid moves - you may have to skip.") == PASS
    with pytest.raises(EnvironmentFailed, match="knows no move that the game takes"):
        opponent.move(Pile(2), "No valid moves - you may have to skip.")


# ---- hostile and wrong


HOSTILE = ["", " ", "[", "[]", "[[]]", "]0[", "[0 0]", "[-1]", "[0.5]", "[nan]", "[²]", "[١]", "[\x00]", "[\ud800]"]


@needs_textarena
@pytest.mark.parametrize(
    "name", ["TowerOfHanoi", "Minesweeper", "Bandit", "Nim", "TicTacToe", "ConnectFour", "LiarsDice"]
)
def test_no_reply_breaks_a_game(game, name):
    for reply in (*HOSTILE, "[" + "9" * 5000 + "]", "x" * 200_000):
        game.reset(f"{name}-v0")
        result = game.say(reply)
        assert result.success is not True
        assert said(result)


@needs_textarena
@pytest.mark.parametrize("reply", ["x" * 10_001, "[9999999999999]"])
def test_a_reply_that_no_game_is_to_see_costs_a_turn_alone(game, reply):
    game.reset("GuessTheNumber-v0")
    for _ in range(3):  # two invalid moves would have ended the game
        refused = game.say(reply)
        assert (refused.valid, refused.terminated) == (False, False)
        assert said(refused) == "Not a move: more than 10000 characters, or a number of more than 12 digits."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "no TextArena game None is played here; for one player: 2048, Bandit, "),
        ({"game": 2048}, "no TextArena game 2048 is played here"),
        ({"game": "Chess-v0"}, "no TextArena game 'Chess-v0' is played here"),
        ({"game": "Diplomacy-v0"}, "for two: Battleship, Briscola, "),
        ({"game": "Nim-v0", "seat": 2}, "'seat' must be a whole number from 0 to 1; given: 2"),
        ({"game": "Nim-v0", "opponent": "look"}, "no opponent 'look'; did you mean 'lookahead'?"),
        ({"game": "2048-v0", "opponent": "random"}, "TextArena's 2048 is for one player and takes no 'opponent'"),
        ({"game": "2048-v0", "level": 1}, "a TextArena task has no 'level'"),
    ],
)
def test_wrong_arguments_are_named_without_the_package(arguments, message):
    with pytest.raises(ConfigurationError) as raised:
        TextArena().reset(Task("t", "textarena", arguments))
    assert message in str(raised.value)


@needs_textarena
@pytest.mark.parametrize(
    ("name", "message"),
    [("Nim-v9", "TextArena has no game 'Nim-v9'; did you mean 'Nim-v0'?"), ("Nim", "TextArena has no game 'Nim'")],
)
def test_an_id_that_the_package_does_not_have_is_named(game, name, message):
    with pytest.raises(ConfigurationError, match=message):
        game.reset(name)


@needs_textarena
def test_the_games_for_one_player_that_are_named_can_be_made(game):
    for name in SOLO:
        assert game.reset(f"{name}-v0")


# ---- contract, data set


@needs_textarena
async def test_it_runs_in_a_process_of_its_own():
    assert isinstance(registry.make("textarena"), ProcessEnvironment)


@needs_textarena
@pytest.mark.slow
async def test_the_contract_holds_for_one_player_and_for_two():
    tasks = [
        task("GuessTheNumber-v0", 1, max_turns=8),
        task("TicTacToe-v0", 2, max_turns=8),
        task("KuhnPoker-v0", 3, opponent="lookahead", seat=1, max_turns=8),
    ]
    report = await check_environment("textarena", tasks)
    assert report.broken == ()


@needs_textarena
def test_tasks_of_all_splits_open_differently_or_have_seeds_of_their_own(tmp_path):
    arguments = ["--out", str(tmp_path), "--train", "6", "--validation", "2", "--test", "2"]
    data_set.main([*arguments, "--game", "LightsOut-v0"])
    tasks = [t for split in ("train", "validation", "test") for t in read_tasks(tmp_path / f"{split}.parquet")]
    assert len({t.seed for t in tasks}) == 10
    assert tasks[0].arguments == {"game": "LightsOut-v0", "max_turns": 100}
    data_set.main([*arguments, "--game", "Nim-v0", "--opponent", "lookahead", "--seat", "1", "--alike"])
    assert read_tasks(tmp_path / "test.parquet")[0].arguments["opponent"] == "lookahead"
