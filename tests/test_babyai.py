"""BabyAI: observations by hand, the ends of an episode, the expert, snapshots, and its data set."""

import asyncio
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("minigrid", reason='minigrid is not installed: pip install "openmanus-rl[babyai]"')

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments import babyai_expert
from agentgym_rl.environments.babyai import ACTIONS, BabyAI, _in_words, level_id, levels
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from data_preprocess import babyai as data_set

NO_PLAN = {"BabyAI-KeyInBox-v0"}
"""Levels whose very first action the planner can't give."""


def task(level="GoToLocal", seed=0, **arguments):
    return Task("t", "babyai", {"level": level, **arguments}, seed=seed)


def started(*given, **named):
    game = BabyAI()
    game.reset(task(*given, **named))
    return game


def play(game, choose, turns=10_000):
    """(action, observation, reward, terminated, truncated, success) of each turn, until the end."""
    rows = []
    for _ in range(turns):
        action = choose()
        result = game.step(assistant(action))
        text = " ".join(m.content for m in result.observation)
        rows.append((action, text, result.reward, result.terminated, result.truncated, result.success))
        if result.terminated or result.truncated:
            break
    return rows


# ---- levels and arguments


def test_all_96_levels_are_listed_and_a_short_name_finds_its_id():
    assert len(levels()) == 96
    assert level_id("GoToLocal") == level_id("BabyAI-GoToLocal-v0") == "BabyAI-GoToLocal-v0"
    assert level_id("GoToObjS6") == "BabyAI-GoToObjS6-v1"


@pytest.mark.parametrize("level", levels())
def test_every_level_resets_and_takes_five_expert_steps(level):
    game = BabyAI()
    (opening,) = game.reset(task(level, seed=1))
    assert opening.content.startswith("Mission: ")
    assert opening.content.endswith(tuple("abcdefghijklmnopqrstuvwxyz"))
    if level in NO_PLAN:
        with pytest.raises(EnvironmentFailed, match="finds no way to 'open the door'"):
            game.expert_action()
        return
    for row in play(game, game.expert_action, turns=5):
        assert row[0] in ACTIONS
        assert 0 <= row[2] <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs the argument 'level'"),
        ({"level": "GoToLocl"}, "no BabyAI level 'GoToLocl'; did you mean 'GoToLocal'?"),
        ({"level": "BabyAI-GoToLocal-v9"}, "did you mean 'BabyAI-GoToLocal-v0'?"),
        ({"level": "GoToLocal", "max_turn": 3}, "no 'max_turn'; did you mean 'max_turns'?"),
        ({"level": "GoToLocal", "max_turns": 0}, "above 0; given: 0"),
        ({"level": "GoToLocal", "max_turns": True}, "above 0; given: True"),
        ({"level": "GoToLocal", "max_turns": "8"}, "above 0; given: '8'"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ConfigurationError, match=".*") as raised:
        BabyAI().reset(Task("t", "babyai", arguments))
    assert message in str(raised.value)


def test_importing_the_module_needs_no_minigrid_and_using_it_without_says_what_to_install():
    code = (
        "import sys; sys.modules['minigrid'] = None\n"
        "from agentgym_rl.environments.babyai import levels\n"
        "assert 'gymnasium' not in sys.modules\n"
        "try: levels()\n"
        "except Exception as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "openmanus-rl[babyai]"' in done.stdout


# ---- observations


def view(**cells):
    """A 7 x 7 view of empty floor; `cells` maps "xCyR" to (type, colour, state)."""
    image = np.zeros((7, 7, 3), dtype=np.uint8)
    image[:, :, 0] = 1
    for name, cell in cells.items():
        image[int(name[1]), int(name[3])] = cell
    return image


def test_a_view_is_told_by_steps_ahead_and_to_the_side_nearest_first():
    # The agent stands at column 3, row 6. Types: wall 2, door 4, key 5,
    # ball 6, box 7. Colours: red 0, blue 2, yellow 4.
    image = view(
        x0y0=(6, 0, 0),  # 3 columns left, 6 rows ahead: 9 steps
        x5y6=(5, 2, 0),  # 2 right in the agent's row: 2 steps
        x3y4=(7, 4, 0),  # 2 straight ahead: 2 steps
        x2y3=(4, 0, 2),  # 1 left, 3 ahead: 4 steps; door state 2 = locked
        x3y1=(2, 5, 0),  # wall 5 straight ahead
        x1y5=(2, 5, 0),  # a wall that is not straight ahead
    )
    assert _in_words(image, None) == (
        "blue key two right, yellow box two ahead, locked red door three ahead one left, "
        "red ball six ahead three left, wall five ahead"
    )


def test_an_empty_view_says_nothing_and_a_carried_object_is_named_but_not_seen():
    class Ball:
        color, type = "red", "ball"

    assert _in_words(view(), None) == "nothing"
    assert _in_words(view(x3y6=(6, 0, 0)), Ball) == "carrying red ball"


def test_doors_say_whether_they_are_open():
    for state, word in enumerate(("open", "closed", "locked")):
        assert _in_words(view(x3y5=(4, 4, state)), None) == f"{word} yellow door one ahead"


def test_walls_and_objects_agree_with_minigrids_own_grid():
    game = started("GoToLocal", seed=4)
    world = game._world
    (opening,) = game.reset(task("GoToLocal", seed=4))
    seen = {
        f"{cell.color} {cell.type}"
        for column in range(world.width)
        for row in range(world.height)
        if (cell := world.grid.get(column, row)) and cell.type != "wall" and world.agent_sees(column, row)
    }
    assert seen
    assert all(name in opening.content for name in seen)


# ---- actions


@pytest.mark.parametrize(
    "said", ["turn left", " Turn  Left.\n", "I see nothing useful.\nAction: turn left", "Thought: no.\n\nturn left"]
)
def test_the_last_line_is_the_action(said):
    by_word, by_reply = started(), started()
    assert by_reply.step(assistant(said)).observation == by_word.step(assistant("turn left")).observation
    assert by_reply.snapshot() == by_word.snapshot()


@pytest.mark.parametrize("said", ["", "left", "turn left, move forward", "turn left\nbecause", "done"])
def test_anything_else_is_refused_leaves_the_world_alone_and_counts_as_a_turn(said):
    game = started(max_turns=2)
    before = game._world.hash()
    result = game.step(assistant(said))
    assert not result.valid
    assert not result.truncated
    assert all(action in result.observation[0].content for action in ACTIONS)
    assert game._world.hash() == before
    assert game._world.step_count == 0
    assert game.step(assistant(said)).truncated


def test_the_six_actions_are_minigrids_own_in_order():
    from minigrid.core.actions import Actions

    names = {"left": "turn left", "right": "turn right", "forward": "move forward", "pickup": "pick up"}
    assert [names.get(a.name, a.name) for a in Actions][:6] == list(ACTIONS)


# ---- ends and rewards


def test_success_is_terminated_with_minigrids_reward_for_the_steps_taken():
    game = started("GoToLocal", seed=1)
    rows = play(game, game.expert_action)
    steps = len(rows)
    assert rows[-1][2:] == (pytest.approx(1 - 0.9 * steps / 64), True, False, True)  # 8 x 8 cells: max_steps 64
    assert [row[2:] for row in rows[:-1]] == [(0.0, False, False, None)] * (steps - 1)


def test_the_tasks_max_turns_cuts_off_without_success():
    game = started("GoToLocal", seed=1, max_turns=3)
    rows = play(game, lambda: "drop")
    assert [row[2:] for row in rows] == [(0.0, False, False, None)] * 2 + [(0.0, False, True, False)]


def test_the_levels_own_limit_cuts_off_too():
    game = started("GoToObjS4", max_turns=1000)  # 4 x 4 cells: max_steps 16
    assert len(play(game, lambda: "drop")) == 16


def test_a_mission_that_can_no_longer_be_done_is_terminated_without_success():
    game = started("OpenDoorsOrderN4Debug", seed=0, max_turns=1000)
    rows = play(game, game.expert_action)
    assert rows[-1][2:] == (0.0, True, False, False)


def test_steps_before_reset_and_after_the_end_are_errors():
    with pytest.raises(EnvironmentFailed, match="before reset"):
        BabyAI().step(assistant("drop"))
    with pytest.raises(EnvironmentFailed, match="before reset"):
        BabyAI().snapshot()
    game = started(max_turns=1)
    game.step(assistant("drop"))
    for call in (lambda: game.step(assistant("drop")), game.expert_action):
        with pytest.raises(EnvironmentFailed, match="after"):
            call()


# ---- determinism and snapshots


@pytest.mark.parametrize("level", ["GoToLocal", "PutNextLocal", "BossLevel", "UnlockPickup"])
def test_a_seed_gives_the_same_episode_again_and_another_seed_another(level):
    def episode(seed):
        game = BabyAI()
        (opening,) = game.reset(task(level, seed))
        return [opening.content, *play(game, game.expert_action, turns=12)]

    assert episode(3) == episode(3)
    assert episode(3) != episode(4)


@pytest.mark.parametrize("level", ["GoToLocalS8N4", "UnlockPickup", "MiniBossLevel"])
@pytest.mark.parametrize("expert_before", [True, False])
def test_the_same_continuation_follows_a_snapshot_in_another_instance(level, expert_before):
    game = started(level, seed=5)
    for number, action in enumerate(["turn left", "?", "move forward", "turn right", "move forward"]):
        if expert_before and number == 1:
            game.expert_action()
        assert not game.step(assistant(action)).terminated
    snapshot, world = game.snapshot(), game._world.hash()
    continuation = play(game, game.expert_action)

    other = BabyAI()
    other.restore(snapshot)
    assert other._world.hash() == world
    assert play(other, other.expert_action) == continuation
    game.restore(snapshot)
    assert play(game, game.expert_action) == continuation


def test_a_snapshot_taken_after_the_end_restores_the_end():
    game = started(max_turns=1)
    game.step(assistant("drop"))
    other = BabyAI()
    other.restore(game.snapshot())
    with pytest.raises(EnvironmentFailed, match="after its end"):
        other.step(assistant("drop"))


# ---- the expert


def test_the_expert_solves_every_task_of_a_sample_of_levels():
    sample = ["GoToLocal", "GoToRedBallGrey", "PickupLoc", "OpenDoor", "PutNextLocal", "UnlockPickup", "GoToSeqS5R2"]
    for level in sample:
        for seed in range(6):
            game = started(level, seed=seed, max_turns=1000)
            assert play(game, game.expert_action)[-1][-1], (level, seed)


def test_the_expert_takes_account_of_what_was_done_instead_of_its_advice():
    for seed in range(8):
        game = started("UnlockPickup", seed=seed, max_turns=1000)
        others = ["turn left", "move forward", "pick up", "turn right", "drop"]

        for other in others:
            game.step(assistant(game.expert_action()))
            game.step(assistant(other))
        assert play(game, game.expert_action)[-1][-1], seed


def test_an_expert_who_is_asked_late_has_followed_from_the_start():
    early, late = started("UnlockPickup", seed=2), started("UnlockPickup", seed=2)
    for _ in range(8):
        action = early.expert_action()
        early.step(assistant(action))
        late.step(assistant(action))
    assert play(late, late.expert_action) == play(early, early.expert_action)


def test_a_planner_that_goes_round_in_circles_is_stopped_and_says_so():
    game = started("GoToLocal", seed=1)
    game.expert_action()
    game._expert._searches = 0
    searching = game._expert._counted(lambda: "found")
    for _ in range(babyai_expert.SEARCHES_PER_ACTION):
        assert searching() == "found"
    with pytest.raises(babyai_expert._NoPlan):
        searching()


def test_level_generation_prints_nothing(capfd):
    for seed in range(5):
        BabyAI().reset(task("PutNextLocalS6N4", seed))  # rejects many draws
        BabyAI().reset(task("GoToRedBlueBall", seed))
    assert capfd.readouterr().out == ""


def test_babyai_keeps_the_environment_contract():
    tasks = [
        Task(f"{level}-{seed}", "babyai", {"level": level, "max_turns": 40}, seed=seed)
        for level in ("GoToLocal", "PickupLoc", "UnlockPickup")
        for seed in (1, 2)
    ]
    report = asyncio.run(check_environment("babyai", tasks))
    report.raise_if_failed()
    assert all(result.passed for result in report.results), str(report)


# ---- the data set

SIZES = {"train": 12, "validation": 4, "test": 6}


def test_every_split_has_its_size_its_levels_in_turn_and_its_own_worlds():
    built = data_set.build(["GoToLocalS8N4", "PickupLoc"], SIZES, max_turns=16, seed=7)
    assert {split: len(tasks) for split, tasks in built.items()} == SIZES
    tasks = [task for tasks in built.values() for task in tasks]
    assert len({task.id for task in tasks}) == len({data_set.world_of(task) for task in tasks}) == 22
    assert [t.arguments["level"] for t in built["validation"]] == [
        "BabyAI-GoToLocalS8N4-v0",
        "BabyAI-PickupLoc-v0",
    ] * 2
    assert {(t.split, t.arguments["max_turns"]) for t in built["test"]} == {("test", 16)}


def test_the_expert_solves_every_built_task_in_time():
    for task in data_set.build(["GoToLocalS8N4"], {"test": 10}, max_turns=5, seed=0)["test"]:
        game = BabyAI()
        game.reset(task)
        rows = play(game, game.expert_action)
        assert rows[-1][-1]
        assert len(rows) <= 5


def test_a_seed_draws_the_same_tasks_again_and_another_seed_others():
    def seeds(seed):
        return [task.seed for task in data_set.build(["GoToLocal"], {"train": 5}, 16, seed)["train"]]

    assert seeds(1) == seeds(1)
    assert not set(seeds(1)) & set(seeds(2))


@pytest.mark.parametrize(
    ("levels", "sizes", "error", "message"),
    [
        ([], {"test": 1}, ConfigurationError, "at least one level"),
        (["GoToLocl"], {"test": 1}, ConfigurationError, "did you mean 'GoToLocal'?"),
        (["GoToLocal"], {"test": 0}, ConfigurationError, "'test': 0"),
        (["KeyInBox"], {"test": 1}, DataError, "KeyInBox-v0 has no further world among"),
    ],
)
def test_a_data_set_that_can_not_be_built_says_why(levels, sizes, error, message):
    with pytest.raises(error) as raised:
        data_set.build(levels, sizes, 16, 0)
    assert message in str(raised.value)


def test_the_same_world_in_two_splits_is_found():
    one = Task("a", "babyai", {"level": "BabyAI-GoToLocal-v0"}, seed=5)
    again = Task("b", "babyai", {"level": "BabyAI-GoToLocal-v0"}, seed=5)
    with pytest.raises(DataError, match="'a' and 'b' are the same"):
        data_set.require_disjoint({"train": [one], "test": [again]})


def test_the_command_line_writes_one_file_a_split(tmp_path, capsys):
    data_set.main(["--out", str(tmp_path), "--train", "3", "--validation", "1", "--test", "2", "--levels", "PickupLoc"])
    tasks = {split: read_tasks(tmp_path / f"{split}.parquet") for split in ("train", "validation", "test")}
    assert {split: len(rows) for split, rows in tasks.items()} == {"train": 3, "validation": 1, "test": 2}
    assert tasks["test"][0].arguments == {"level": "BabyAI-PickupLoc-v0", "max_turns": 8}
    assert "3 tasks" in capsys.readouterr().out
