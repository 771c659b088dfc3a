"""FrozenLake, Taxi and CliffWalking in words: observations by hand, the expert on every task, and the data set."""

from __future__ import annotations

import pytest

pytest.importorskip("gymnasium", reason='gymnasium is not installed: pip install "openmanus-rl[gymnasium]"')

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.toy_text import ToyText
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from data_preprocess import toy_text as data_set


def task(game: str, seed: int = 0, **arguments) -> Task:
    return Task("t", "toy-text", {"game": game, **arguments}, seed=seed)


def started(*given, **named) -> ToyText:
    game = ToyText()
    game.reset(task(*given, **named))
    return game


def solved(game: ToyText) -> tuple[bool, float]:
    total = 0.0
    while game.turns_left:
        result = game.step(assistant(game.expert_action()))
        total += result.reward
    return bool(result.success), total


def said(result) -> str:
    return "".join(message.content for message in result.observation)


def test_a_lake_in_words_by_hand(monkeypatch):
    monkeypatch.setattr("agentgym_rl.environments.toy_text._lake", lambda size, seed: ["SFF", "FHF", "FFG"])
    game = ToyText()
    assert game.reset(task("frozen-lake", size=3))[0].content == (
        "S start, F frozen, H hole, G goal:\nSFF\nFHF\nFFG\nYou are at row 1, column 1.\n"
        "Actions: left, down, right, up."
    )
    assert said(game.step(assistant("down"))).endswith("You are at row 2, column 1.")
    drowned = game.step(assistant("right"))
    assert (drowned.reward, drowned.terminated, drowned.success) == (0.0, True, False)


def test_a_taxi_ride_in_words_by_hand():
    game = started("taxi")
    # Taxi's own number of: taxi at row 4, column 1 from 0; passenger at Red (0, 0); hotel at Blue (4, 3)
    world = game._world.unwrapped
    world.s = world.encode(4, 1, 0, 3)
    assert said(game.step(assistant("west"))) == (  # the wall there keeps it where it is
        "The taxi is at row 5, column 2. The passenger waits at row 1, column 1. The hotel is at row 5, column 4. "
        "Walls: south, west."
    )
    world.s = world.encode(0, 0, 0, 3)
    assert "The passenger is in the taxi." in said(game.step(assistant("pick up")))
    world.s = world.encode(2, 2, 4, 3)
    assert game.step(assistant("drop off")).reward == -10.0
    world.s = world.encode(4, 3, 4, 3)
    there = game.step(assistant("drop off"))
    assert (there.reward, there.terminated, there.success) == (20.0, True, True)


def test_a_fall_from_the_cliff_costs_100_and_leads_back_to_the_start():
    game = started("cliff-walking")
    fall = game.step(assistant("right"))
    assert fall.reward == -100.0
    assert not fall.terminated
    assert said(fall) == (
        "You are at row 4, column 1. The goal is at row 4, column 12. The cliff is row 4, columns 2 to 11."
    )


def test_the_expert_walks_along_the_cliff_in_thirteen_steps():
    assert solved(started("cliff-walking")) == (True, -13.0)


@pytest.mark.parametrize(("game", "arguments"), [("frozen-lake", {}), ("frozen-lake", {"size": 8}), ("taxi", {})])
def test_the_expert_solves_every_task(game, arguments):
    for seed in range(25):
        assert solved(started(game, seed, **arguments))[0], seed


def test_a_taxi_ride_of_the_expert_has_no_wrong_stop():
    assert all(solved(started("taxi", seed))[1] > 0 for seed in range(10))


@pytest.mark.parametrize("game", ["frozen-lake", "taxi"])
def test_a_seed_draws_the_same_world_again_and_another_seed_another(game):
    def opening(seed):
        return ToyText().reset(task(game, seed))[0].content

    assert opening(3) == opening(3)
    assert len({opening(seed) for seed in range(20)}) > 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "toy-text has no game None"),
        ({"game": "taxy"}, "toy-text has no game 'taxy'; did you mean 'taxi'?"),
        ({"game": "taxi", "size": 4}, "only frozen lakes have a size; given: 4 for 'taxi'"),
        ({"game": "frozen-lake", "size": 2}, "'size' must be a whole number from 3 to 20; given: 2"),
        ({"game": "taxi", "turns": 4}, "a toy-text task has no 'turns'"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ConfigurationError) as raised:
        ToyText().reset(Task("t", "toy-text", arguments))
    assert message in str(raised.value)


async def test_toy_text_keeps_the_environment_contract():
    games = ("frozen-lake", "taxi", "cliff-walking")
    tasks = [Task(game, "toy-text", {"game": game, "max_turns": 40}, seed=1) for game in games]
    (await check_environment("toy-text", tasks)).raise_if_failed()


# ---- the data set


def test_the_lakes_of_all_splits_differ(tmp_path, capsys):
    data_set.main(["--out", str(tmp_path), "--train", "12", "--validation", "3", "--test", "4", "--size", "5"])
    tasks = [t for split in ("train", "validation", "test") for t in read_tasks(tmp_path / f"{split}.parquet")]
    assert len({ToyText().reset(t)[0].content for t in tasks}) == 19
    assert {t.arguments["size"] for t in tasks} == {5}
    assert "12 tasks" in capsys.readouterr().out


def test_there_is_one_cliff_only():
    with pytest.raises(DataError, match="toy-text-cliff-walking has no further world among 200 seeds, after 1 tasks"):
        data_set.build("cliff-walking", {"train": 1, "test": 1}, max_turns=20, seed=0)
