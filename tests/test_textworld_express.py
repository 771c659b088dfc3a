"""TextWorldExpress: its tasks, what reaches the game, rewards and ends of each game, folds, its Java, its data set."""

import asyncio
import os
import random
import subprocess
import sys

import pytest
from doubles_java import java_and

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments import contract_rules, registry
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.jvm import OPTIONS, Jvm
from agentgym_rl.environments.process import ProcessEnvironment
from agentgym_rl.environments.textworld_express import FOLDS, GAMES, TextWorldExpress
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from data_preprocess import textworld_express as data_set

pytestmark = java_and("textworld_express")

SMALL = {"numLocations": 3, "includeDoors": 0}


@pytest.fixture(scope="module")
def player():
    player = TextWorldExpress()
    yield player
    player.close()


def task(game="coin", seed=1, **arguments):
    return Task("t", "textworld-express", {"game": game, **arguments}, seed=seed)


def follow_expert(player, given):
    """Every step's result, until the end."""
    player.reset(given)
    results = []
    while player.turns_left:
        results.append(player.step(assistant(player.expert_action())))
    return results


def walk(player, given, turns=25):
    """What is seen, given and allowed at each turn of a random walk."""
    chance = random.Random(3)
    rows = [player.reset(given)[0].content]
    for _ in range(turns):
        if player.turns_left:
            allowed = player.actions()
            rows.append((allowed, player.step(assistant(chance.choice(allowed)))))
    return rows


# The games


@pytest.mark.parametrize("game", GAMES)
def test_the_expert_solves_every_game_and_its_rewards_add_up_to_one(player, game):
    results = follow_expert(player, task(game, seed=3))
    assert results[-1].success
    assert sum(result.reward for result in results) == pytest.approx(1)
    assert all(result.valid for result in results)


def test_a_sum_is_worth_half_for_reading_the_problem_and_half_for_its_answer(player):
    # Seed 1 asks to divide 32 by 32.
    results = follow_expert(player, task("arithmetic", seed=1))
    assert [result.reward for result in results[-3:]] == [0.5, 0.0, 0.5]


def test_the_wrong_answer_ends_the_game_and_takes_back_what_was_gained(player):
    player.reset(task("arithmetic", seed=1))
    for action in ("take math problem", "read math problem", "take 64 peaches"):
        player.step(assistant(action))
    result = player.step(assistant("put 64 peaches in box"))
    assert (result.reward, result.terminated, result.success) == (-1.5, True, False)  # from 0.5 to -1


def test_the_opening_tells_the_task_and_the_place(player):
    (opening,) = player.reset(task(seed=1))
    told, place = opening.content.split("\n\n")
    assert told == "Your task is to search the environment and find the coin.  Once you find the coin, take it."
    assert place.startswith("You are in the kitchen.")


# What reaches the game


@pytest.mark.parametrize("reply", ["Open Door to South.", "I try the door.\nAction: open door to south"])
def test_an_action_is_found_whatever_its_case(player, reply):
    player.reset(task(seed=1))
    assert player.step(assistant(reply)).observation[0].content == "You open the patio door, revealing the backyard."


def test_names_with_capital_letters_reach_the_game_as_it_spells_them(player):
    player.reset(task("twc", seed=18))
    assert "take TV remote control" in player.actions()
    assert player.step(assistant("take tv remote control")).observation[0].content == "You take the TV remote control."


@pytest.mark.parametrize("reply", ["", "fly", "take coin", "'; DROP TABLE", "abre la puerta", "開門", "x" * 10_000])
def test_what_is_not_allowed_now_is_refused_with_what_is_and_changes_nothing(player, reply):
    player.reset(task(seed=1))
    before = player.actions()
    result = player.step(assistant(reply))
    assert (result.valid, result.reward) == (False, 0.0)
    assert result.observation[0].content == f"That is no action here. Allowed: {', '.join(before)}."
    assert player.actions() == before


def test_a_long_list_of_allowed_actions_is_cut(player, monkeypatch):
    monkeypatch.setattr("agentgym_rl.environments.textworld_express.SHOWN_ACTIONS", 2)
    player.reset(task(seed=1))
    assert (
        player.step(assistant(""))
        .observation[0]
        .content.endswith("Allowed: close door to south, close door to west, ...")
    )


# Seeds, folds and parameters


@pytest.mark.parametrize("game", ["coin", "cookingworld", "simonsays"])
def test_a_game_is_the_same_again_also_in_another_machine_and_after_other_games(player, game):
    other = TextWorldExpress()
    once = walk(player, task(game, seed=5))
    walk(player, task("sorting", seed=6))
    assert walk(player, task(game, seed=5)) == once
    assert walk(other, task(game, seed=5)) == once
    assert walk(player, task(game, seed=6)) != once
    other.close()


def test_the_folds_have_the_packages_own_seeds_and_things_of_their_own(player):
    openings = {player.reset(task("sorting", seed=5, fold=fold))[0].content for fold in FOLDS}
    assert len(openings) == 3
    server = player._server
    own = {"train": server.getSeedsTrain(), "dev": server.getSeedsDev(), "test": server.getSeedsTest()}
    assert {fold: list(seeds) for fold, seeds in own.items()} == {fold: list(seeds) for fold, seeds in FOLDS.items()}


def test_parameters_shape_the_game_and_do_not_outlive_it(player):
    with_doors = player.reset(task(seed=1))[0].content
    without = player.reset(task(seed=1, parameters=SMALL))[0].content
    assert "closed" in with_doors.rpartition("\n")[2]
    assert "closed" not in without.rpartition("\n")[2]
    assert player.reset(task(seed=1))[0].content == with_doors


@pytest.mark.parametrize(
    ("arguments", "seed", "message"),
    [
        ({"game": "coins"}, 0, "no TextWorldExpress game 'coins'; did you mean 'coin'?"),
        ({}, 0, "no TextWorldExpress game None; known: arithmetic, coin"),
        ({"game": "coin", "fold": "tests"}, 0, "no TextWorldExpress fold 'tests'; did you mean 'test'?"),
        ({"game": "coin", "turns": 3}, 0, "a TextWorldExpress task has no 'turns'"),
        ({"game": "coin", "max_turns": 0}, 0, "'max_turns' must be a whole number of at least 1; given: 0"),
        ({"game": "coin", "parameters": {"numLoc": 3}}, 0, "Unrecognized property name (numLoc).  Known properties: "),
        ({"game": "coin", "parameters": {"numLocations": 99}}, 0, "must be less than or equal to 11"),
        ({"game": "coin", "parameters": {"numLocations": "3"}}, 0, "'numLocations' of TextWorldExpress is a whole"),
        ({"game": "mapreader", "parameters": {"numLocations": 2}}, 1, "No locations could be found that distance"),
        ({"game": "coin"}, -1, f"must be in 0..{2**31 - 1}; given: -1"),
        ({"game": "coin"}, 2**31, f"must be in 0..{2**31 - 1}; given: {2**31}"),
    ],
)
def test_wrong_arguments_are_named(player, arguments, seed, message):
    with pytest.raises(ConfigurationError) as raised:
        player.reset(Task("t", "textworld-express", arguments, seed=seed))
    assert message in str(raised.value)
    with pytest.raises(EnvironmentFailed, match="before reset"):
        player.step(assistant("look around"))


# Java


def test_a_machine_that_died_is_replaced_by_the_next_reset():
    player = TextWorldExpress()
    before = player.reset(task())
    player._jvm._process.kill()
    player._jvm._process.wait()
    with pytest.raises(Exception, match="."):
        player.step(assistant("look around"))
    assert player.reset(task()) == before
    player.close()


def test_close_ends_the_machine_and_may_be_called_twice_and_before_a_reset():
    player = TextWorldExpress()
    player.close()
    player.reset(task())
    machine = player._jvm._process
    player.close()
    player.close()
    assert machine.poll() is not None


def test_without_java_the_error_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ConfigurationError, match="^'textworld_express' needs Java, and there is no `java` on the PATH$"
    ):
        TextWorldExpress().reset(task())


def test_java_that_does_not_start_is_a_failure_that_says_how_to_see_why(monkeypatch):
    monkeypatch.setattr("agentgym_rl.environments.jvm.OPTIONS", (*OPTIONS, "-XX:NoSuchOption=1"))
    with pytest.raises(EnvironmentFailed, match="Java did not start; `java .* -XX:NoSuchOption=1 -version` says why"):
        TextWorldExpress().reset(task())


def test_a_package_that_is_not_installed_is_named_with_its_extra():
    with pytest.raises(ConfigurationError, match=r"^this environment needs 'no_such_jar': pip install .*\[no-such\]"):
        Jvm("no_such_jar", "x.jar", "x.X", "no-such").interface()


def test_importing_the_module_imports_no_package_of_the_game():
    code = "import sys, agentgym_rl.environments.textworld_express as _; assert 'py4j' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_the_registry_gives_each_instance_a_process_with_a_machine_of_its_own():
    async with registry.opened("textworld-express") as environment:
        assert isinstance(environment, ProcessEnvironment)
        opening = await environment.reset(task(seed=1))
        assert "find the coin" in opening[0].content
        assert environment.pid != os.getpid()


@pytest.mark.slow
def test_textworld_express_keeps_the_environment_contract(monkeypatch):
    monkeypatch.setattr(contract_rules, "LISTED_ACTIONS", 4)  # each has a machine of its own, which takes seconds
    tasks = [task("simonsays", seed=2, max_turns=12), task("coin", seed=3, parameters=SMALL, max_turns=12)]
    report = asyncio.run(check_environment("textworld-express", tasks))
    report.raise_if_failed()
    assert all(result.passed for result in report.results), str(report)


@pytest.mark.slow
def test_the_expert_solves_99_percent_of_all_games_and_folds(player):
    solved = [
        bool(follow_expert(player, task(game, seed=seeds[number], fold=fold))[-1].success)
        for game in GAMES
        for fold, seeds in FOLDS.items()
        for number in range(6)
    ]
    assert len(solved) == 144
    assert sum(solved) >= 0.99 * len(solved)


# The data set


def test_every_split_has_its_size_its_fold_and_games_of_its_own(player):
    sizes = {"train": 6, "validation": 3, "test": 4}
    built = data_set.build(["coin", "arithmetic"], {}, sizes, max_turns=40, seed=7)
    assert {split: len(tasks) for split, tasks in built.items()} == sizes
    for split, fold in data_set.FOLD_OF.items():
        assert all(row.seed in FOLDS[fold] and row.arguments["fold"] == fold for row in built[split])
    assert [row.arguments["game"] for row in built["validation"]] == ["coin", "arithmetic", "coin"]
    walks = {data_set.walk(player, row) for rows in built.values() for row in rows}
    assert len(walks) == 13


def test_a_seed_draws_the_same_tasks_again_and_another_seed_others():
    def seeds(seed):
        return [row.seed for row in data_set.build(["simonsays"], {}, {"train": 5}, 20, seed)["train"]]

    assert seeds(1) == seeds(1) != seeds(2)


@pytest.mark.parametrize(
    ("games", "parameters", "max_turns", "error", "message"),
    [
        ([], {}, 20, ConfigurationError, "at least one game of cookingworld"),
        (["coins"], {}, 20, ConfigurationError, "did you mean 'coin'?"),
        (["sorting"], SMALL, 20, ConfigurationError, "Unrecognized property name"),
        (["simonsays"], {}, 4, DataError, "no further world among 200 seeds, after 0 tasks"),  # each takes 5 turns
    ],
)
def test_a_data_set_that_can_not_be_built_says_why(games, parameters, max_turns, error, message):
    with pytest.raises(error) as raised:
        data_set.build(games, parameters, {"test": 1}, max_turns, 0)
    assert message in str(raised.value)


def test_the_command_line_writes_one_file_a_split(tmp_path, capsys):
    sizes = ["--train", "2", "--validation", "1", "--test", "1"]
    data_set.main(["--out", str(tmp_path), *sizes, "--parameters", "numLocations=3", "includeDoors=0"])
    tasks = {split: read_tasks(tmp_path / f"{split}.parquet") for split in ("train", "validation", "test")}
    assert {split: len(rows) for split, rows in tasks.items()} == {"train": 2, "validation": 1, "test": 1}
    assert tasks["test"][0].arguments == {"game": "coin", "fold": "test", "parameters": SMALL, "max_turns": 50}
    assert "2 tasks" in capsys.readouterr().out
