"""Any Gymnasium environment as a text game: action spaces, renderers, success rules, ends; and its data set."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason='gymnasium is not installed: pip install "openmanus-rl[gymnasium]"')

import gymnasium
from gymnasium import spaces

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.gymnasium_actions import FiniteActions, TextActions
from agentgym_rl.environments.gymnasium_adapter import Gymnasium, GymnasiumText
from agentgym_rl.environments.gymnasium_expert import value_iteration
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from data_preprocess import gymnasium_adapter as data_set

LAKE = {"id": "FrozenLake-v1", "kwargs": {"is_slippery": False}, "actions": ["left", "down", "right", "up"]}


class Script(gymnasium.Env):
    """Gives the rewards of `rewards` one after the other, and then ends as `end` says."""

    metadata = {"render_modes": []}

    def __init__(self, rewards=(0.0,), end="terminated", space=None, observation=None):
        self.action_space = space or spaces.Discrete(2)
        self.observation_space = spaces.Discrete(99)
        self.rewards, self.end, self.given = list(rewards), end, observation
        self.taken = []

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        return self.seen(), {}

    def step(self, action):
        self.taken.append(action)
        self.turn += 1
        over = self.turn == len(self.rewards)
        return (
            self.seen(),
            self.rewards[self.turn - 1],
            over and self.end != "truncated",
            over and self.end != "terminated",
            {},
        )

    def seen(self):
        return self.turn if self.given is None else self.given


class TextScript(Script):
    def __init__(self, **named):
        super().__init__(space=spaces.Text(5, charset="abc"), observation="say something", rewards=[1.0] * 3, **named)


gymnasium.register("Script-v0", Script)
gymnasium.register("LimitedScript-v0", Script, max_episode_steps=3)
gymnasium.register("TextScript-v0", TextScript)


def in_words(world, observation) -> str:
    return f"turn {observation} of {len(world.rewards)}"


def task(name="gymnasium", seed=0, **arguments) -> Task:
    return Task("t", name, arguments, seed=seed)


def started(seed=0, **arguments) -> Gymnasium:
    game = Gymnasium()
    game.reset(task(seed=seed, **arguments))
    return game


def said(result) -> str:
    return "".join(message.content for message in result.observation)


# ---- ends, rewards and success


@pytest.mark.parametrize(
    ("rewards", "success", "expected"),
    [
        ([0.0, 1.0], None, True),  # the default: the last reward is above 0
        ([1.0, 0.0], None, False),
        ([-1.0, -1.0], "terminated", True),
        ([1.0, -3.0], -2, True),  # the sum of rewards is at least -2
        ([1.0, -3.0], -1.5, False),
    ],
)
def test_success_follows_its_rule(rewards, success, expected):
    arguments = {} if success is None else {"success": success}
    game = started(id="Script-v0", kwargs={"rewards": rewards}, **arguments)
    results = [game.step(assistant("1")) for _ in rewards]
    assert [r.reward for r in results] == rewards
    assert (results[-1].terminated, results[-1].truncated, results[-1].success) == (True, False, expected)


@pytest.mark.parametrize(
    ("end", "terminated", "truncated", "success"),
    [("terminated", True, False, True), ("truncated", False, True, False), ("both", True, False, True)],
)
def test_terminated_and_truncated_stay_what_they_are_and_the_tasks_own_end_goes_first(
    end, terminated, truncated, success
):
    result = started(id="Script-v0", kwargs={"rewards": [1.0], "end": end}).step(assistant("0"))
    assert (result.terminated, result.truncated, result.success) == (terminated, truncated, success)


def test_gymnasiums_time_limit_truncates():
    game = started(id="LimitedScript-v0", kwargs={"rewards": [1.0] * 9})
    ends = [game.step(assistant("0")) for _ in range(3)]
    assert [(r.terminated, r.truncated, r.success) for r in ends[1:]] == [(False, False, None), (False, True, False)]


def test_a_turn_that_is_not_understood_counts_but_leaves_the_world_alone():
    game = started(id="Script-v0", kwargs={"rewards": [1.0] * 9}, max_turns=2)
    refused = game.step(assistant("jump"))
    assert not refused.valid
    assert said(refused) == "Not an action. Actions: 0, 1."
    assert game._world.unwrapped.taken == []
    assert game.step(assistant("1")).truncated


# ---- what is seen


def test_the_first_observation_lists_the_actions():
    opening = Gymnasium().reset(task(id="Script-v0"))[0].content
    assert opening == "Observation: 0 of Discrete(99).\nActions: 0, 1."


def test_an_id_may_name_the_module_that_registers_it():
    assert started(id=f"{__name__}:Script-v0").actions() == ("0", "1")


def test_a_renderer_of_the_user_is_given_the_world_and_the_observation():
    game = started(id="Script-v0", renderer=f"{__name__}:in_words", kwargs={"rewards": [0.0, 0.0]})
    assert said(game.step(assistant("0"))) == "turn 1 of 2"


def test_a_text_rendering_is_taken_without_colours_and_with_its_highlights():
    game = Gymnasium()
    opening = game.reset(task(**LAKE))[0].content
    assert opening == "[S]FFF\nFHFH\nFFFH\nHFFG\nActions: left, down, right, up."
    assert said(game.step(assistant("Down."))) == "(Down)\nSFFF\n[F]HFH\nFFFH\nHFFG"


# ---- action spaces


def test_discrete_actions_are_numbered_from_the_spaces_own_start():
    actions = FiniteActions(spaces.Discrete(3, start=-1), None)
    assert actions.names == ("-1", "0", "1")
    assert actions.understood("I think:\n-1") == -1
    assert actions.understood("2") is None


def test_combinations_are_named_in_the_order_of_their_numbers():
    space = spaces.MultiDiscrete([2, 3])
    actions = FiniteActions(space, None)
    assert actions.names == ("0 0", "0 1", "0 2", "1 0", "1 1", "1 2")
    assert all(space.contains(actions.understood(name)) for name in actions.names)
    assert actions.understood("1  2").tolist() == [1, 2]
    named = FiniteActions(space, ["a", "b", "c", "d", "e", "Left Up"])
    assert named.understood("left up").tolist() == [1, 2]


def test_a_grid_of_numbers_keeps_its_shape():
    space = spaces.MultiDiscrete(np.array([[2, 1], [1, 2]]))
    assert FiniteActions(space, None).understood("1 0 0 1").tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("space", "names", "message"),
    [
        (spaces.Discrete(2), ["a"], "Discrete(2) has 2 actions, and each needs a name of its own; given: a"),
        (spaces.Discrete(2), ["a", "b", "c"], "given: a, b, c"),
        (spaces.Discrete(2), ["a", "A."], "given: a, A."),
        (spaces.Discrete(2), ["a", ""], "a name of its own"),
        (spaces.MultiDiscrete([30, 30]), None, "has 900 actions; at most 512 can be listed"),
        (spaces.Box(0, 1), None, "can't be said in words; allowed: Discrete, MultiDiscrete, and Text"),
    ],
)
def test_a_space_or_names_that_can_not_work_are_named(space, names, message):
    with pytest.raises(ConfigurationError) as raised:
        FiniteActions(space, names)
    assert message in str(raised.value)


def test_a_text_space_takes_the_whole_reply():
    actions = TextActions(spaces.Text(3, min_length=2, charset="ab"))
    assert actions.told == "Answer with 2 to 3 characters out of: ab"
    assert actions.understood(" aba\n") == "aba"
    assert [actions.understood(text) for text in ("a", "abab", "abc", "")] == [None] * 4


def test_a_text_environment_is_played_and_refuses_other_text():
    game = GymnasiumText()
    opening = game.reset(task("gymnasium-text", id="TextScript-v0"))[0].content
    assert opening == "say something\nAnswer with 1 to 5 characters out of: abc"
    assert not game.step(assistant("hello")).valid
    assert game.step(assistant("cab")).reward == 1.0
    assert game._world.unwrapped.taken == ["cab"]
    for call in (game.actions, game.expert_action):
        with pytest.raises(ConfigurationError, match="a text action space"):
            call()


# ---- arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "a Gymnasium task needs the argument 'id', such as 'FrozenLake-v1'"),
        ({"id": "FrozenLak-v1"}, "Gymnasium can't make 'FrozenLak-v1' with {}: "),
        ({"id": "no_such_module:Env-v0"}, "No module named 'no_such_module'"),
        ({"id": "FrozenLake-v1", "kwargs": {"sise": 3}}, "with {'sise': 3}: "),
        ({"id": "FrozenLake-v1", "kwargs": [3]}, "'kwargs' must be an object; given: [3]"),
        ({"id": "FrozenLake-v1", "actions": "left"}, "'actions' must be a list of names; given: 'left'"),
        ({"id": "FrozenLake-v1", "actions": [1, 2, 3, 4]}, "'actions' must be a list of names; given: [1, 2, 3, 4]"),
        ({"id": "FrozenLake-v1", "renderer": "nowhere:draw"}, "the renderer 'nowhere:draw' can't be imported"),
        ({"id": "FrozenLake-v1", "renderer": "json:draw"}, "a renderer reads 'module:function'; given: 'json:draw'"),
        ({"id": "FrozenLake-v1", "renderer": ":"}, "the renderer ':' can't be imported"),
        ({"id": "FrozenLake-v1", "success": "terminate"}, "did you mean 'terminated'?"),
        ({"id": "FrozenLake-v1", "success": True}, "no success rule True"),
        ({"id": "FrozenLake-v1", "sucess": 1}, "a Gymnasium task has no 'sucess'; did you mean 'success'?"),
        ({"id": "TextScript-v0"}, "can't be said in words"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ConfigurationError) as raised:
        Gymnasium().reset(task(**arguments))
    assert message in str(raised.value)


def test_the_text_environment_refuses_other_spaces():
    with pytest.raises(ConfigurationError, match="'gymnasium-text' takes Text action spaces.*take 'gymnasium'"):
        GymnasiumText().reset(task("gymnasium-text", id="FrozenLake-v1"))


def test_importing_the_module_needs_no_gymnasium_and_using_it_without_says_what_to_install():
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "from agentgym_rl.environments.gymnasium_game import make_world\n"
        "try: make_world('FrozenLake-v1', {})\n"
        "except Exception as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "openmanus-rl[gymnasium]"' in done.stdout


# ---- the expert


def test_value_iteration_by_hand():
    # state 0: action 0 gives 1 and ends; action 1 leads to state 1, where action 0 gives 2 and ends, action 1 gives 0
    # and comes back. 0.999 * 2 > 1: first action 1, then action 0
    model = {
        0: {0: [(1.0, 0, 1.0, True)], 1: [(1.0, 1, 0.0, False)]},
        1: {0: [(1.0, 1, 2.0, True)], 1: [(1.0, 0, 0.0, False)]},
    }
    assert value_iteration(model) == [1, 0]
    # now state 1 is reached half of the time only: 0.5 * 0.999 * 2 < 1
    model[0][1] = [(0.5, 1, 0.0, False), (0.5, 0, 0.0, True)]
    assert value_iteration(model) == [0, 0]


def test_the_expert_crosses_a_slippery_lake_as_often_as_is_possible():
    # Gymnasium's registration gives 0.74 as the optimum within 100 steps; four standard deviations of 100 are 0.18
    game, solved = Gymnasium(), 0
    for seed in range(100):
        game.reset(task(seed=seed, id="FrozenLake-v1", actions=LAKE["actions"]))
        while game.turns_left:
            result = game.step(assistant(game.expert_action()))
        solved += result.success
    assert solved / 100 == pytest.approx(0.74, abs=0.18)


def test_an_environment_without_a_model_has_no_expert():
    game = started(id="Blackjack-v1", actions=["stick", "hit"])
    with pytest.raises(
        ConfigurationError, match="Blackjack-v1 has no expert: it does not expose its transitions as `P`"
    ):
        game.expert_action()


def test_actions_are_asked_for_in_an_episode_only():
    with pytest.raises(EnvironmentFailed, match="Gymnasium was asked for its actions before reset"):
        Gymnasium().actions()


# ---- seeds, contract, data set


def test_blackjack_is_played_alike_with_a_seed_and_otherwise_with_another():
    def hand(seed):
        game = Gymnasium()
        opening = game.reset(task(seed=seed, id="Blackjack-v1", actions=["stick", "hit"]))[0].content
        return opening, game.step(assistant("hit")), game.turns_left

    assert hand(3) == hand(3)
    assert len({hand(seed)[0] for seed in range(20)}) > 10


@pytest.mark.parametrize(
    "arguments",
    [
        {"id": "FrozenLake-v1"},
        {"id": "Taxi-v4"},
        {"id": "CliffWalking-v1", "success": "terminated"},
        {"id": "Blackjack-v1", "actions": ["stick", "hit"]},
    ],
)
async def test_toy_text_games_keep_the_environment_contract(arguments):
    tasks = [Task(f"t{seed}", "gymnasium", {**arguments, "max_turns": 12}, seed=seed) for seed in (1, 2)]
    (await check_environment("gymnasium", tasks)).raise_if_failed()


async def test_a_text_environment_keeps_the_environment_contract():
    tasks = [Task("t", "gymnasium-text", {"id": "TextScript-v0", "max_turns": 4})]
    (await check_environment("gymnasium-text", tasks)).raise_if_failed()


def test_tasks_of_all_splits_open_differently(tmp_path, capsys):
    arguments = json.dumps({"id": "Taxi-v4", "max_turns": 30})
    data_set.main(
        ["--out", str(tmp_path), "--arguments", arguments, "--train", "20", "--validation", "5", "--test", "5"]
    )
    tasks = [t for split in ("train", "validation", "test") for t in read_tasks(tmp_path / f"{split}.parquet")]
    game = Gymnasium()
    assert len({game.reset(t)[0].content for t in tasks}) == len({t.id for t in tasks}) == 30
    assert "20 tasks" in capsys.readouterr().out


def test_an_environment_that_always_opens_alike_needs_to_be_told_so():
    with pytest.raises(DataError, match="gymnasium-FrozenLake-v1 has no further world among 200 seeds, after 1 tasks"):
        data_set.build({"id": "FrozenLake-v1"}, {"train": 2}, seed=0)
    built = data_set.build({"id": "FrozenLake-v1"}, {"train": 2, "test": 2}, seed=0, alike=True)
    assert len({t.seed for tasks in built.values() for t in tasks}) == 4


def test_text_environments_have_a_data_set_too_and_bad_json_is_named(tmp_path):
    built = data_set.build({"id": "TextScript-v0"}, {"test": 1}, seed=0, text=True)
    assert built["test"][0].environment == "gymnasium-text"
    with pytest.raises(ConfigurationError, match="--arguments must be a JSON object; '{' is no JSON"):
        data_set.main(["--out", str(tmp_path), "--arguments", "{"])
