"""ScienceWorld: its tasks and variations, what it understands, its rewards and ends, its order, its data set."""

import asyncio
import random

import pytest
from doubles_java import java_and

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments import contract_rules, registry
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.process import ProcessEnvironment
from agentgym_rl.environments.scienceworld import FORMS, TASKS, ScienceWorld
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from data_preprocess import scienceworld as data_set

pytestmark = java_and("scienceworld")

SHORT = "lifespan-longest-lived"
"""Solved in five turns: look for the animals, focus on the one that lives longest."""


@pytest.fixture(scope="module")
def simulator():
    simulator = ScienceWorld()
    yield simulator
    simulator.close()


def task(name=SHORT, variation=0, **arguments):
    return Task("t", "scienceworld", {"task": name, "variation": variation, **arguments})


def follow_expert(simulator, given):
    """(action, result) of every turn, until the end."""
    simulator.reset(given)
    rows = []
    while simulator.turns_left:
        action = simulator.expert_action()
        rows.append((action, simulator.step(assistant(action))))
    return rows


def said(result):
    return result.observation[0].content


def test_the_opening_tells_the_task_and_the_place(simulator):
    (opening,) = simulator.reset(task("boil"))
    told, place = opening.content.split("\n\n")
    assert told.startswith("Your task is to boil water.")
    assert place.startswith("This room is called the hallway. In it, you see:")


def test_the_expert_solves_a_task_and_its_rewards_add_up_to_one(simulator):
    rows = follow_expert(simulator, task())
    assert rows[-1][1].terminated
    assert rows[-1][1].success
    assert sum(result.reward for _, result in rows) == pytest.approx(1)
    assert all(result.valid for _, result in rows)


def test_focusing_on_the_wrong_thing_fails_the_task(simulator):
    simulator.reset(task("find-animal"))
    result = simulator.step(assistant("focus on air"))
    assert (result.reward, result.terminated, result.success) == (-1.0, True, False)
    with pytest.raises(EnvironmentFailed, match="after the end"):
        simulator.step(assistant("look around"))


def test_the_limit_of_turns_cuts_off(simulator):
    rows = follow_expert(simulator, task("boil", max_turns=3))
    assert len(rows) == 3
    assert (rows[-1][1].truncated, rows[-1][1].success) == (True, False)


@pytest.mark.parametrize("reply", ["Inventory", "I look what I have.\nAction: inventory."])
def test_an_action_is_understood_whatever_its_case(simulator, reply):
    simulator.reset(task("boil"))
    assert said(simulator.step(assistant(reply))).startswith("In your inventory, you see:")


@pytest.mark.parametrize(
    "reply", ["", "fly to the moon", "open", "abre la puerta", "開門", "open\x00door", "x" * 10**6]
)
def test_anything_else_is_invalid_and_answered_with_the_forms_of_actions(simulator, reply):
    simulator.reset(task("boil"))
    result = simulator.step(assistant(reply))
    assert (result.valid, result.reward) == (False, 0.0)
    assert said(result).endswith(f"Forms of actions: {FORMS}.")


def test_where_an_action_may_mean_several_things_the_number_of_one_is_the_next_action(simulator):
    simulator.reset(task("boil"))
    question = simulator.step(assistant("close door"))
    assert question.valid
    assert said(question).startswith("Ambiguous request: Please enter the number")
    answer = simulator.step(assistant("0"))
    assert answer.valid
    assert said(answer).endswith("is now closed.")


def test_listed_actions_are_sorted_and_without_duplicates(simulator):
    simulator.reset(task("boil"))
    listed = simulator.actions()
    assert listed == sorted(set(listed))
    assert {"inventory", "look around", "close door to kitchen"} <= set(listed)


def test_what_is_in_a_closed_cupboard_is_neither_listed_nor_understood_until_it_is_open(simulator):
    simulator.reset(task("find-plant", 228))
    pour = "pour tin cup into counter"
    assert pour in simulator._server.getValidActionObjectCombinations()
    assert not [action for action in simulator.actions() if "tin cup" in action]
    assert not simulator.step(assistant(pour)).valid
    simulator.step(assistant("open cupboard"))
    assert pour in simulator.actions()
    assert simulator.step(assistant(pour)).valid


def test_what_is_carried_other_places_and_the_answers_to_a_question_are_listed(simulator):
    simulator.reset(task("find-plant", 228))
    assert {"put down orange in inventory", "go to hallway", "teleport to foundry"} <= set(simulator.actions())
    simulator.reset(task("boil"))
    simulator.step(assistant("close door"))
    assert simulator.actions() == [str(number) for number in range(6)]


def test_whatever_is_listed_on_a_walk_is_valid(simulator):
    simulator.reset(task("boil", 2))
    chance = random.Random(3)
    for _ in range(15):
        action = chance.choice(simulator.actions())
        result = simulator.step(assistant(action))
        assert result.valid, action
        if result.terminated:
            break


def test_what_is_seen_keeps_its_order_in_every_machine_and_whatever_was_played_before(simulator):
    # Of this room's three cups of paint, Java's own order of sets would tell each time in another order.
    def paints(simulator):
        simulator.reset(task("find-animal", 1))
        return [said(simulator.step(assistant(action))) for action in ("teleport to art studio", "look around")]

    once = paints(simulator)
    assert once[1].count("wood cup") == 3
    follow_expert(simulator, task())
    other = ScienceWorld()
    assert paints(simulator) == paints(other) == once
    other.close()


def test_without_simplifications_doors_are_closed_and_nobody_teleports(simulator):
    (opening,) = simulator.reset(task("boil", simplifications=[]))
    assert "A door to the kitchen (that is closed)" in opening.content
    assert not simulator.step(assistant("teleport to kitchen")).valid


def test_the_tasks_are_the_packages_own(simulator):
    simulator.reset(task())
    assert sorted(simulator._server.getTaskNames()) == sorted(TASKS)


def test_variations_are_split_as_the_package_splits_them(simulator):
    splits = [set(simulator.variations("boil", split)) for split in ("train", "dev", "test")]
    assert [len(split) for split in splits] == [14, 7, 9]
    assert set.union(*splits) == set(range(30))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "boi", "variation": 0}, "no ScienceWorld task 'boi'; did you mean 'boil'?"),
        ({"variation": 0}, "no ScienceWorld task None; known: boil"),
        ({"task": "boil"}, "variation of a ScienceWorld task is a whole number from 0; given: None"),
        ({"task": "boil", "variation": -1}, "from 0; given: -1"),
        ({"task": "boil", "variation": 2**31}, f"from 0; given: {2**31}"),
        ({"task": "boil", "variation": 9999}, "(9999) exceeds the total number of variations (30)"),
        ({"task": "boil", "variation": 0, "simplifications": ["eazy"]}, "did you mean 'easy'?"),
        ({"task": "boil", "variation": 0, "easy": True}, "a ScienceWorld task has no 'easy'"),
    ],
)
def test_wrong_arguments_are_named(simulator, arguments, message):
    with pytest.raises(ConfigurationError) as raised:
        simulator.reset(Task("t", "scienceworld", arguments))
    assert message in str(raised.value)


async def test_the_registry_gives_each_instance_a_process_of_its_own():
    assert isinstance(registry.make("scienceworld"), ProcessEnvironment)


@pytest.mark.slow
def test_scienceworld_keeps_the_environment_contract(monkeypatch):
    monkeypatch.setattr(contract_rules, "LISTED_ACTIONS", 4)  # each has a machine of its own, which takes seconds
    report = asyncio.run(check_environment("scienceworld", [task(max_turns=12)]))
    report.raise_if_failed()
    assert all(result.passed for result in report.results), str(report)


@pytest.mark.slow
def test_the_expert_solves_variation_0_of_a_sample_of_tasks(simulator):
    for name in ("boil", "find-animal", "find-plant", "power-component", "chemistry-mix", "identify-life-stages-1"):
        assert follow_expert(simulator, task(name))[-1][1].success, name


# The data set


@pytest.mark.slow
def test_every_split_has_its_size_and_the_packages_own_variations(simulator):
    sizes = {"train": 3, "validation": 2, "test": 2}
    built = data_set.build([SHORT, "lifespan-shortest-lived"], sizes, max_turns=20, seed=1)
    assert {split: len(tasks) for split, tasks in built.items()} == sizes
    assert [row.arguments["task"] for row in built["train"]] == [SHORT, "lifespan-shortest-lived", SHORT]
    for split, rows in built.items():
        for row in rows:
            own = simulator.variations(row.arguments["task"], data_set.SPLIT_OF[split])
            assert row.arguments["variation"] in own
            assert len(simulator.solution_of(row)) <= 20


@pytest.mark.parametrize(
    ("names", "sizes", "max_turns", "error", "message"),
    [
        ([], {"test": 1}, 20, ConfigurationError, "at least one task of boil"),
        (["boi"], {"test": 1}, 20, ConfigurationError, "did you mean 'boil'?"),
        ([SHORT], {"test": -1}, 20, ConfigurationError, "-1"),
        pytest.param(
            *([SHORT], {"test": 1}, 1, DataError, "split 'test' has 0 tasks with solutions of at most 1 turns; 1 were"),
            marks=pytest.mark.slow,  # it makes the solution of every variation
        ),
    ],
)
def test_a_data_set_that_can_not_be_built_says_why(names, sizes, max_turns, error, message):
    with pytest.raises(error) as raised:
        data_set.build(names, sizes, max_turns, 0)
    assert message in str(raised.value)


def test_the_command_line_writes_one_file_a_split(tmp_path, capsys):
    data_set.main(["--out", str(tmp_path), "--train", "2", "--validation", "0", "--test", "1", "--tasks", SHORT])
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["test.parquet", "train.parquet"]
    (row,) = read_tasks(tmp_path / "test.parquet")
    assert (row.environment, row.arguments["task"], row.arguments["max_turns"]) == ("scienceworld", SHORT, 100)
    assert "2 tasks" in capsys.readouterr().out
