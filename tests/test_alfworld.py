"""ALFWorld, played through its worker: drawn rooms of every type, game files, what reaches the engine, its data set.

The worker's Python is the one that OPENMANUS_PYTHON_ALFWORLD names, or this one.
"""

import asyncio
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym_rl.environments import registry
from agentgym_rl.environments.alfworld_rooms import TASK_TYPES
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.interpreter import interpreter_of
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from data_preprocess import alfworld as data_set

needs_alfworld = pytest.mark.skipif(
    interpreter_of("alfworld") is None and importlib.util.find_spec("alfworld") is None,
    reason="needs the package 'alfworld' here, or in the Python that OPENMANUS_PYTHON_ALFWORLD names",
)
ROOM_OF = {"look_at_obj_in_light": 207}
"""A living room with a lamp; every other type finds what it needs in kitchen 7."""


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory):
    """The folder of published games."""
    folder = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALFWORLD_DATA", str(folder))
        yield folder


def task(task_type="pick_and_place_simple", seed=0, **arguments):
    given = {"task_type": task_type, "room": ROOM_OF.get(task_type, 7), **arguments}
    return Task("t", "alfworld", given, seed=seed)


async def follow_expert(environment, given):
    """(action, result) of every turn, until the end."""
    await environment.reset(given)
    rows = []
    while not rows or not (rows[-1][1].terminated or rows[-1][1].truncated):
        action = await environment.expert_action()
        rows.append((action, await environment.step(assistant(action))))
    return rows


def in_alfworlds_python(code):
    """What code prints there, without the packages of this Python."""
    python = interpreter_of("alfworld") or sys.executable
    root = str(Path(__file__).parent.parent)
    done = subprocess.run([python, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout


@needs_alfworld
async def test_the_expert_does_a_task_of_every_type_in_a_drawn_room():
    async with registry.opened("alfworld") as environment:
        for task_type in TASK_TYPES:
            rows = await follow_expert(environment, task(task_type))
            assert rows[-1][1].success, task_type
            assert [result.reward for _, result in rows] == [0.0] * (len(rows) - 1) + [1.0]
            assert {result.info["origin"] for _, result in rows} == {"drawn"}


@needs_alfworld
async def test_a_seed_draws_the_same_room_again_and_another_seed_another():
    async with registry.opened("alfworld") as one, registry.opened("alfworld") as other:
        once = await follow_expert(one, task(seed=3))
        assert await follow_expert(other, task(seed=3)) == once
        assert await follow_expert(one, task(seed=4)) != once


@needs_alfworld
@pytest.mark.parametrize("reply", ["", "take kettle 1", "go to kitchen", "開門", "x" * 10**6])
async def test_what_is_not_allowed_now_is_refused_with_what_is(reply):
    async with registry.opened("alfworld") as environment:
        (opening,) = await environment.reset(task())
        result = await environment.step(assistant(reply))
        allowed = await environment.actions()
    assert opening.content.startswith("You are in the middle of a room.")
    assert "Your task is to: " in opening.content
    assert (result.valid, result.reward) == (False, 0.0)
    assert result.observation[0].content == f"That is no action here. Allowed: {', '.join(allowed)}."


@needs_alfworld
async def test_a_game_file_plays_with_the_walkthrough_that_it_brings(data):
    # A drawn game, written as the published ones are, whose walkthrough is the drawn game's solution.
    code = (
        "import json; from agentgym_rl.environments.alfworld_game import game_data\n"
        "from agentgym_rl.environments.alfworld_rooms import draw_room\n"
        "print(json.dumps(game_data(draw_room('pick_and_place_simple', 7, 0), 0)))"
    )
    game = json.loads(in_alfworlds_python(code))
    async with registry.opened("alfworld") as environment:
        drawn = await follow_expert(environment, task())
        folder = data / "json_2.1.1" / "valid_seen" / "a" / "b"
        folder.mkdir(parents=True)
        (folder / "game.tw-pddl").write_text(json.dumps({**game, "walkthrough": [action for action, _ in drawn]}))
        (row,) = data_set.published(data, {"train": 0, "validation": 1, "test": 0}, 50, 0)["validation"]
        played = await follow_expert(environment, row)
        assert [action for action, _ in played] == [action for action, _ in drawn]
        assert played[-1][1].success
        assert played[-1][1].info == {"origin": "published"}
        (folder / "game.tw-pddl").write_text(json.dumps({**game, "walkthrough": None}))
        await environment.reset(row)
        with pytest.raises(EnvironmentFailed, match="knows the way from the start only; it is at its end"):
            await environment.expert_action()


@needs_alfworld
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs `file` or `task_type`, one of them; given: {}"),
        ({"file": "x", "task_type": "y"}, "one of them"),
        ({"file": "json/game.tw-pddl"}, "there is no ALFWorld game"),
        ({"task_type": "pick", "room": 7}, "no ALFWorld task 'pick'"),
        ({"task_type": "pick_and_place_simple"}, "'room' must be a whole number of at least 1; given: 0"),
        ({"task_type": "pick_and_place_simple", "room": 99}, "ALFWorld has no room 99; known: 1-30, 201-230"),
        ({"task_type": "pick_heat_then_place_in_recep", "room": 401}, "room 401 has nothing for a task 'pick_heat"),
    ],
)
async def test_wrong_arguments_are_named(arguments, message):
    async with registry.opened("alfworld") as environment:
        with pytest.raises(ConfigurationError) as raised:
            await environment.reset(Task("t", "alfworld", arguments))
    assert message in str(raised.value)


@needs_alfworld
@pytest.mark.slow
def test_alfworld_keeps_the_environment_contract():
    tasks = [task(max_turns=12), task("pick_two_obj_and_place", max_turns=12)]
    report = asyncio.run(check_environment("alfworld", tasks))
    report.raise_if_failed()
    assert all(result.passed for result in report.results), str(report)


# The data set


@needs_alfworld
def test_test_tasks_are_in_rooms_of_their_own():
    code = (
        "import json; from data_preprocess.alfworld import TASK_TYPES, build\n"
        "built = build(TASK_TYPES, {'train': 12, 'validation': 6, 'test': 12}, 40, 1)\n"
        "print(json.dumps({split: [dict(row.arguments) for row in rows] for split, rows in built.items()}))"
    )
    built = json.loads(in_alfworlds_python(code))
    assert {split: len(rows) for split, rows in built.items()} == {"train": 12, "validation": 6, "test": 12}
    assert [row["task_type"] for row in built["validation"]] == list(TASK_TYPES)
    rooms = {split: {row["room"] for row in rows} for split, rows in built.items()}
    assert rooms["test"] <= set(data_set.TEST_ROOMS)
    assert rooms["train"] | rooms["validation"] <= set(data_set.TRAIN_ROOMS)
    assert not set(data_set.TEST_ROOMS) & set(data_set.TRAIN_ROOMS)


def test_published_games_keep_their_splits_and_come_once_each(tmp_path):
    for folder, count in (("train", 4), ("valid_seen", 2), ("valid_unseen", 3)):
        for number in range(count):
            trial = tmp_path / "json_2.1.1" / folder / f"task-{number}" / "trial"
            trial.mkdir(parents=True)
            (trial / "game.tw-pddl").write_text("{}")
    built = data_set.published(tmp_path, {"train": 4, "validation": 1, "test": 3}, 50, 0)
    assert {split: len({row.arguments["file"] for row in rows}) for split, rows in built.items()} == {
        "train": 4,
        "validation": 1,
        "test": 3,
    }
    for split, rows in built.items():
        assert all(f"/{data_set.FOLDER_OF[split]}/" in row.arguments["file"] for row in rows)
    with pytest.raises(DataError, match="has 2 different tasks; 3 were asked for"):
        data_set.published(tmp_path, {"validation": 3}, 50, 0)


def test_unknown_types_of_tasks_are_named():
    with pytest.raises(ConfigurationError, match=r"types of tasks are pick_and_place_simple, .*; given: \['fly'\]"):
        data_set.build(["fly"], {"train": 1}, 50, 0)


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    from agentgym_rl.environments.alfworld import ALFWorld

    monkeypatch.setitem(sys.modules, "alfworld", None)
    with pytest.raises(ConfigurationError, match=r'pip install "openmanus-rl\[alfworld\]"'):
        ALFWorld().reset(task())
