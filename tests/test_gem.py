"""GEM's games, played through the interpreter that has the package: rewards, ends, what is refused, its data set.

The worker's Python is the one that OPENMANUS_PYTHON_GEM names, or this one.
"""

from __future__ import annotations

import asyncio
import importlib.util
from itertools import permutations

import pytest

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments import registry
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.gem_adapter import GAMES, GAMES_WITH_WORDS, INSTALL, Gem
from agentgym_rl.environments.interpreter import interpreter_of
from agentgym_rl.environments.process import ProcessEnvironment
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from data_preprocess import gem as data_set

needs_gem = pytest.mark.skipif(
    interpreter_of("gem") is None and importlib.util.find_spec("gem") is None, reason=f"gem is not installed: {INSTALL}"
)


def task(game, seed=0, **arguments):
    return Task(f"{game}-{seed}", "gem", {"id": f"game:{game}", **arguments}, seed=seed)


class Played:
    """One worker for the tests of this file, without its `await`s."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._environment = self._loop.run_until_complete(self._made())

    async def _made(self):
        return registry.make("gem")

    def reset(self, game, seed=0, **arguments):
        return self._call(self._environment.reset(task(game, seed, **arguments)))[0].content

    def boxed(self, *moves):
        """The results of these moves."""
        return [self.say(f"I try \\boxed{{{move}}}.") for move in moves]

    def say(self, reply):
        return self._call(self._environment.step(assistant(reply)))

    def close(self):
        self._call(self._environment.close())
        self._loop.close()

    def _call(self, awaited):
        return self._loop.run_until_complete(awaited)


@pytest.fixture(scope="module")
def game():
    played = Played()
    yield played
    played.close()


def said(result):
    return "\n".join(message.content for message in result.observation)


def ends(result):
    return result.reward, result.terminated, result.truncated, result.success


@needs_gem
def test_a_puzzle_is_solved_by_its_known_moves(game):
    opening = game.reset("TowerofHanoi-v0-easy")
    assert "A: [3, 2, 1]" in opening
    *moves, last = game.boxed("A C", "A B", "C B", "A C", "B A", "B C", "A C")
    assert [ends(r) for r in moves] == [(0.0, False, False, None)] * 6
    assert ends(last) == (1.0, True, False, True)
    assert said(last) == "Congratulations! You solved the Tower of Hanoi Puzzle"


@needs_gem
def test_the_seed_draws_the_game_and_a_turn_tells_what_gem_says_with_its_suffix(game):
    # random.seed(1) and random.randint(1, 10) give 3
    game.reset("GuessTheNumber-v0-easy", seed=1)
    far, found = game.boxed(5, 3)
    assert said(far) == "At turn 1, you guessed 5, and the target number is lower than 5.\nEnter your next guess."
    assert (ends(found), found.valid) == ((1.0, True, False, True), True)


@needs_gem
def test_the_games_own_limit_of_turns_is_a_truncation_with_gems_share_as_reward(game):
    game.reset("GuessTheNumber-v0-easy", seed=1)
    *_, last = game.boxed(10, 9, 8, 7)
    assert ends(last) == (pytest.approx(1 - 4 / 9), False, True, False)  # 7 is 4 off, of 9
    assert said(last) == "You have reached the maximum number of turns."


@needs_gem
def test_the_tasks_own_limit_cuts_off_before_that(game):
    game.reset("GuessTheNumber-v0-easy", seed=1, max_turns=2)
    assert ends(game.boxed(10, 9)[1]) == (0.0, False, True, False)


@needs_gem
def test_rewards_of_progress_that_add_up_to_1_are_a_success(game):
    # a code of two different numbers from 1 to 6; each place that is right for the first time is worth a half
    def rewards(*codes):
        game.reset("Mastermind-v0-easy", seed=4)
        return [(r.reward, r.success) for r in game.boxed(*codes)]

    codes = [f"{a} {b}" for a, b in permutations(range(1, 7), 2)]
    first = {code: rewards(code)[0] for code in codes}
    (secret,) = [code for code, one in first.items() if one == (1.0, True)]
    half = next(code for code, one in first.items() if one == (0.5, None))
    assert rewards(half, secret) == [(0.5, None), (0.5, True)]


@needs_gem
def test_a_reply_without_a_move_ends_the_game_with_gems_penalty_and_a_wrong_move_goes_on(game):
    game.reset("GuessTheNumber-v0-easy")
    (wrong,) = game.boxed(11)
    assert (ends(wrong), "outside the range" in said(wrong)) == ((0.0, False, False, None), True)
    over = game.say("It must be 7.")
    assert (ends(over), over.valid) == ((-0.1, True, False, False), False)


@needs_gem
@pytest.mark.parametrize(
    "name", ["GuessTheNumber-v0-easy", "Minesweeper-v0-easy", "TowerofHanoi-v0-easy", "Sudoku-v0-easy"]
)
def test_no_reply_breaks_a_game(game, name):
    moves = ["", "0", "-1", "0 0", "²", "reveal ² 1", "١ ١ ١", "\x00", "\ud800", "}{", "9 9 9", "A A", "flag 9 9"]
    for reply in ("", "\\boxed", "\\boxed{", *[f"\\boxed{{{move}}}" for move in moves]):
        game.reset(name)
        assert game.say(reply).success is not True


@needs_gem
@pytest.mark.parametrize("reply", ["x" * 10_001, "\\boxed{9999999999999}"])
def test_a_reply_that_no_game_is_to_see_costs_a_turn_alone(game, reply):
    game.reset("GuessTheNumber-v0-easy")
    refused = game.say(reply)
    assert (refused.valid, ends(refused)) == (False, (0.0, False, False, None))
    assert said(refused) == "Not a move: more than 10000 characters, or a number of more than 12 digits."


@needs_gem
@pytest.mark.parametrize("name", [game for game in GAMES if game != "game:Sokoban-v0-hard"])  # it takes seconds
def test_each_game_opens_by_its_seed_whatever_was_played_before(game, name):
    name = name.removeprefix("game:")
    opening = game.reset(name, seed=1)
    game.say("\\boxed{up}")
    game.reset(name, seed=2)
    assert game.reset(name, seed=1) == opening


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "no game None of GEM's is played here; known: game:FifteenPuzzle-v0-easy, "),
        ({"id": "game:Sokoban-v0-esy"}, "did you mean 'game:Sokoban-v0-easy'?"),
        ({"id": "rg:ab"}, "no game 'rg:ab' of GEM's is played here"),
        ({"id": "game:FifteenPuzzle-v0-random"}, "is played here; did you mean 'game:"),
        ({"id": "game:Sokoban-v0-easy", "level": 1}, "a GEM task has no 'level'"),
    ],
)
def test_wrong_arguments_are_named_without_the_package(arguments, message):
    with pytest.raises(ConfigurationError) as raised:
        Gem().reset(Task("t", "gem", arguments))
    assert message in str(raised.value)


def test_there_are_24_ids_that_need_nothing_but_the_package():
    assert (len(GAMES), len(GAMES_WITH_WORDS)) == (24, 9)


@needs_gem
async def test_it_runs_in_a_process_of_its_own():
    assert isinstance(registry.make("gem"), ProcessEnvironment)


@needs_gem
@pytest.mark.slow
async def test_the_contract_holds():
    tasks = [task(name, seed, max_turns=6) for seed, name in enumerate(("GuessTheNumber-v0-easy", "Game2048-v0-easy"))]
    (await check_environment("gem", tasks)).raise_if_failed()


@needs_gem
def test_tasks_of_all_splits_open_differently_or_have_seeds_of_their_own(tmp_path):
    arguments = ["--out", str(tmp_path), "--train", "6", "--validation", "2", "--test", "2"]
    data_set.main([*arguments, "--id", "game:Game2048-v0-easy"])
    tasks = [t for split in ("train", "validation", "test") for t in read_tasks(tmp_path / f"{split}.parquet")]
    assert len({t.seed for t in tasks}) == 10
    assert tasks[0].arguments == {"id": "game:Game2048-v0-easy", "max_turns": 100}
    data_set.main([*arguments, "--id", "game:TowerofHanoi-v0-easy", "--max-turns", "12", "--alike"])
    assert read_tasks(tmp_path / "test.parquet")[0].arguments["max_turns"] == 12
