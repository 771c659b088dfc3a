"""The maze is perfect whatever its size and seed, told as it is, and its expert takes a shortest way."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.maze import DIRECTIONS, Maze, Plan, plan_of, shortest_way
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from data_preprocess import maze as data_set


def task(seed: int = 0, **arguments) -> Task:
    return Task("t", "maze", arguments, seed=seed)


def said(result) -> str:
    return "".join(message.content for message in result.observation)


# A maze of 2 by 2 cells, drawn:    S |
#                                   .   .      from S south, then east, then north to the goal
CORNER = Plan(
    2,
    frozenset(pair for a, b in [((0, 0), (1, 0)), ((1, 0), (1, 1)), ((1, 1), (0, 1))] for pair in [(a, b), (b, a)]),
    start=(0, 0),
    goal=(0, 1),
)


@pytest.fixture
def corner(monkeypatch) -> Maze:
    monkeypatch.setattr("agentgym_rl.environments.maze.plan_of", lambda task: CORNER)
    maze = Maze()
    maze.reset(task())
    return maze


def test_every_turn_tells_place_goal_and_walls(corner):
    opening = corner.reset(task())[0].content
    assert opening.endswith("You are at row 1, column 1. The goal is at row 1, column 2. Walls: north, east, west.")
    assert said(corner.step(assistant("South."))) == (
        "You are at row 2, column 1. The goal is at row 1, column 2. Walls: south, west."
    )
    assert said(corner.step(assistant("west"))).startswith("A wall stops you. You are at row 2, column 1.")
    corner.step(assistant("east"))
    end = corner.step(assistant("north"))
    assert (end.reward, end.terminated, end.truncated, end.success) == (1.0, True, False, True)


def test_a_wall_is_no_mistake_and_a_word_that_is_no_direction_is_one(corner):
    assert corner.step(assistant("north")).valid
    refused = corner.step(assistant("up"))
    assert not refused.valid
    assert said(refused) == "Not an action. Allowed: north, east, south, west."


def test_a_shortest_way_by_hand():
    assert shortest_way(CORNER, (0, 0)) == ["south", "east", "north"]
    assert shortest_way(CORNER, (1, 1)) == ["north"]
    assert shortest_way(CORNER, (0, 1)) == []


@given(st.integers(2, 9), st.integers(0, 2**31))
def test_there_is_exactly_one_way_between_any_two_cells(size, seed):
    plan = plan_of(task(seed, size=size))
    reached, waiting = {plan.start}, [plan.start]
    for cell in waiting:
        beside = {other for d in DIRECTIONS if (other := plan.neighbour(cell, d)) is not None} - reached
        reached |= beside
        waiting += beside
    assert len(reached) == size * size  # connected,
    assert len(plan.open_ways) == 2 * (size * size - 1)  # and a tree: one way fewer than cells, in both orders
    assert all((b, a) in plan.open_ways for a, b in plan.open_ways)
    assert plan.start != plan.goal


@given(st.integers(2, 7), st.integers(0, 2**31))
def test_the_expert_reaches_the_goal_in_as_many_turns_as_the_way_is_long(size, seed):
    maze, turns = Maze(), 0
    maze.reset(task(seed, size=size))
    while maze.turns_left:
        result, turns = maze.step(assistant(maze.expert_action())), turns + 1
    assert result.success
    plan = plan_of(task(seed, size=size))
    assert turns == len(shortest_way(plan, plan.start))


def test_what_is_told_agrees_with_what_can_be_done():
    for seed in range(20):
        for direction in DIRECTIONS:
            maze = Maze()
            walls = re.search("Walls: (.*)\\.$", maze.reset(task(seed))[0].content)[1].split(", ")
            result = maze.step(assistant(direction))
            assert said(result).startswith("A wall") == (direction in walls)


def test_a_seed_draws_the_same_maze_again_and_another_seed_another():
    assert plan_of(task(3)) == plan_of(task(3))
    assert len({plan_of(task(seed)) for seed in range(20)}) == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 1}, "'size' must be a whole number from 2 to 100; given: 1"),
        ({"size": 101}, "given: 101"),
        ({"sise": 4}, "a maze task has no 'sise'; did you mean 'size'?"),
        ({"max_turns": 0}, "'max_turns' must be a whole number of at least 1; given: 0"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ConfigurationError) as raised:
        Maze().reset(task(**arguments))
    assert message in str(raised.value)


def test_the_expert_is_asked_in_an_episode_only():
    with pytest.raises(EnvironmentFailed, match="Maze was asked for its expert before reset"):
        Maze().expert_action()


async def test_maze_keeps_the_environment_contract():
    (await check_environment("maze", [task(seed, size=4, max_turns=20) for seed in (1, 2)])).raise_if_failed()


# ---- the data set


def test_the_mazes_of_all_splits_differ_and_can_be_solved_in_time():
    built = data_set.build(size=3, sizes={"train": 20, "validation": 3, "test": 5}, max_turns=4, seed=1)
    assert {split: len(tasks) for split, tasks in built.items()} == {"train": 20, "validation": 3, "test": 5}
    tasks = [t for tasks in built.values() for t in tasks]
    assert len({plan_of(t) for t in tasks}) == len({t.id for t in tasks}) == 28
    assert max(len(shortest_way(plan_of(t), plan_of(t).start)) for t in tasks) <= 4
    assert built == data_set.build(3, {"train": 20, "validation": 3, "test": 5}, 4, seed=1)
    assert built != data_set.build(3, {"train": 20, "validation": 3, "test": 5}, 4, seed=2)


def test_too_few_mazes_are_said():
    # a walk through 2 by 2 cells goes round one way or the other: 2 mazes with 4 * 3 pairs of start and goal each
    with pytest.raises(DataError, match="maze has no further world among 200 seeds, after 24 tasks"):
        data_set.build(size=2, sizes={"train": 25}, max_turns=8, seed=0)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [({"train": -1}, "at least 0 tasks; given for 'train': -1"), ({"train": 0}, "given: {'train': 0}")],
)
def test_sizes_that_can_not_work_are_named(sizes, message):
    with pytest.raises(ConfigurationError) as raised:
        data_set.build(3, sizes, 8, 0)
    assert message in str(raised.value)


def test_the_command_line_writes_one_file_a_split_and_none_for_an_empty_one(tmp_path, capsys):
    data_set.main(["--out", str(tmp_path), "--train", "3", "--validation", "0", "--test", "2", "--size", "4"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test.parquet", "train.parquet"]
    assert read_tasks(tmp_path / "test.parquet")[0].arguments == {"size": 4, "max_turns": 32}
    assert "3 tasks" in capsys.readouterr().out
