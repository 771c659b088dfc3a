"""tau2's telecom tickets without a customer: played through the interpreter that has the package, by one worker."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest
from doubles_tau2 import HAS_TAU2, ROAMING, Game, calling, seen, task

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.tau2 import MAX_CALLS, MAX_ERRORS, Tau2
from agentgym_rl.environments.tau2_world import DEEPEST, INSTALL
from agentgym_rl.episode import Limits
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.task import Task
from data_preprocess import tau2 as data_set

if not HAS_TAU2:
    pytest.skip(f"tau2 is not installed: {INSTALL}", allow_module_level=True)


@pytest.fixture(scope="module")
def game():
    game = Game()
    yield game
    game.close()


def test_the_first_observation_is_the_ticket_and_policy_and_tools_are_in_the_instructions(game):
    assert "phone number: 555-123-2002, current location: abroad in France." in game.reset()
    instructions = game.instructions
    assert "<policy>\n<main_policy>\n# Telecom Agent Policy" in instructions
    assert '"name": "toggle_airplane_mode"' in instructions
    assert '"name": "enable_roaming"' in instructions
    assert '"name": "done"' in instructions


def test_natively_a_server_shows_the_43_tools_and_done(game):
    game.reset(tool_format="native")
    assert len(game.tools) == 44
    assert "toggle_airplane_mode" not in game.instructions.partition("<policy>")[0]


def test_the_expert_solves_a_ticket_in_each_format(game):
    for format in ("hermes", "qwen3-coder", "llama-3", "react"):
        game.reset(tool_format=format)
        results = game.by_expert()
        # The package's list has two actions: the phone's airplane mode off, roaming on at the operator's desk.
        assert [(r.reward, r.terminated, r.success) for r in results] == [
            (0.0, False, None),
            (0.0, False, None),
            (1.0, True, True),
        ]


def test_the_expert_solves_every_eighth_ticket(game):
    splits = data_set.package_splits("telecom")
    tickets = [*splits["train"], *splits["test"]]
    assert len(tickets) == 114
    failed = []
    for ticket in tickets[::8]:
        game.reset(ticket)
        if not game.by_expert()[-1].success:
            failed.append(ticket)
    assert failed == []


def test_done_before_the_ticket_is_solved_is_no_success(game):
    game.reset()
    result = game.say(calling("toggle_airplane_mode"), calling("done"))
    assert (result.terminated, result.success, result.reward) == (True, False, 0.0)


def test_calls_beside_done_are_not_carried_out(game):
    game.reset()
    game.say(game.expert())
    assert not game.say(game.expert() + calling("done")).success


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("I have solved it.", "you can't talk to the customer, only call tools"),
        ("", "only call tools"),
        ("<tool_call>{", "call 1 is malformed"),
        (calling("toggle_airplane"), "Error: Tool 'toggle_airplane' not found"),
        (calling("toggle_airplane_mode", on=True), "Error: "),
        (calling("enable_roaming", customer_id="C1001"), "Error: "),
    ],
)
def test_a_reply_that_is_no_call_of_what_is_there_is_answered_and_the_episode_goes_on(game, reply, told):
    game.reset()
    result = game.say(reply)
    assert not result.valid
    assert told in seen(result)
    assert game.by_expert()[-1].success


def test_a_tool_that_says_no_was_called_validly(game):
    game.reset()
    result = game.say(calling("get_customer_by_id", customer_id="C0"))
    assert result.valid
    assert seen(result).startswith("<tool_response>\nError: ")


def test_a_reply_with_too_many_calls_is_refused_as_a_whole(game):
    game.reset()
    result = game.say(calling("toggle_airplane_mode") * (MAX_CALLS + 1))
    assert (result.valid, seen(result)) == (False, "a reply may have 16 calls; given: 17")
    assert game.by_expert()[-1].success


def test_hostile_arguments_fail_as_calls_and_no_verdict_stumbles_over_them(game):
    nested = []
    for _ in range(DEEPEST + 1):
        nested = [nested]
    game.reset()
    half = "\ud800"
    for arguments in ({"customer_id": nested}, {"customer_id": half}, {half: 1}, {"self": 1}, {"tool_name": "x"}):
        result = game.say(calling("get_customer_by_id", **arguments))
        assert seen(result).startswith("<tool_response>\nError: ")
    assert game.by_expert()[-1].success


def test_ten_failed_calls_end_the_episode(game):
    game.reset()
    results = [game.say(calling("get_customer_by_id", customer_id="C0")) for _ in range(MAX_ERRORS)]
    assert [result.truncated for result in results] == [False] * 9 + [True]
    assert results[-1].success is False


def test_the_limit_of_turns_cuts_off(game):
    game.reset(max_turns=1)
    assert game.say(calling("toggle_airplane_mode")).truncated


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "a tau2 task needs the argument 'task', one of the 114 of telecom; given: None"),
        ({"task": ROAMING[:-1]}, f"did you mean {ROAMING!r}?"),
        ({"task": ROAMING, "tool_format": "herms"}, "no tool format 'herms'; did you mean 'hermes'?"),
        ({"task": ROAMING, "turns": 3}, "a tau2 task has no 'turns'"),
        ({"task": "0", "domain": "airlines"}, "tau2 has no domain 'airlines'; did you mean 'airline'?"),
        ({"task": "0", "domain": "airline"}, "the tau2 domain 'airline' needs somebody who plays the customer"),
        ({"task": 0, "domain": "airline", "user": "scripted"}, "one of the 50 of airline; given: 0"),
        ({"task": ROAMING, "user": "script"}, "the argument 'user' of a tau2 task is 'scripted' or {"),
        ({"task": ROAMING, "user": {"uri": "http://x"}}, "a customer's server has no 'uri'; did you mean 'url'?"),
    ],
)
def test_wrong_arguments_are_named(game, arguments, message):
    with pytest.raises(ConfigurationError) as raised:
        game.reset_to(Task("t", "tau2", arguments))
    assert message in str(raised.value)


@pytest.mark.skipif(importlib.util.find_spec("tau2") is not None, reason="tau2 is installed for this interpreter")
def test_without_the_package_it_says_what_to_install():
    with pytest.raises(ConfigurationError) as raised:
        Tau2().reset(task())
    assert 'pip install "openmanus-rl[tau2]", or name an interpreter' in str(raised.value)


@pytest.mark.slow  # some twenty workers are started, at ten seconds each
def test_tau2_keeps_the_environment_contract():
    report = asyncio.run(
        check_environment("tau2", [task(tool_format="react")], Limits(reset_seconds=300, step_seconds=60))
    )
    report.raise_if_failed()
    assert [result.rule for result in report.results if result.passed is None] == ["listed_actions"]


# ---- the data set


def test_test_tasks_are_the_packages_test_tasks_and_validation_comes_out_of_train():
    splits = data_set.package_splits("airline")
    sizes = {"train": 20, "validation": 10, "test": 20}
    built = data_set.build("airline", sizes, {"user": "scripted"}, seed=0)
    names = {split: [one.arguments["task"] for one in tasks] for split, tasks in built.items()}
    assert sorted(names["test"]) == sorted(splits["test"])
    assert sorted(names["train"] + names["validation"]) == sorted(splits["train"])
    assert {one.split for one in built["validation"]} == {"validation"}
    assert data_set.build("airline", sizes, {}, seed=1)["train"] != built["train"]


def test_more_tasks_than_there_are_can_not_be_dealt():
    with pytest.raises(
        ConfigurationError, match="telecom has 74 tasks for train and validation and 40 for test; asked"
    ):
        data_set.build("telecom", {"train": 70, "validation": 5, "test": 1}, {}, 0)


def test_the_command_line_writes_one_file_a_split(tmp_path, capsys):
    data_set.main(["--out", str(tmp_path), "--train", "3", "--validation", "0", "--test", "2"])
    tasks = {path.stem: read_tasks(path) for path in tmp_path.glob("*.parquet")}
    assert {split: len(rows) for split, rows in tasks.items()} == {"train": 3, "test": 2}
    assert "user" not in tasks["test"][0].arguments
    assert "3 tasks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "user"),
    [("scripted", "scripted"), ("Org/M@http://h:1/v1", {"model": "Org/M", "url": "http://h:1/v1"})],
)
def test_the_command_line_takes_all_tasks_of_a_domain_with_whom_it_is_told_to(tmp_path, given, user):
    data_set.main(["--out", str(tmp_path), "--domain", "airline", "--user", given])
    tasks = {path.stem: read_tasks(path) for path in tmp_path.glob("*.parquet")}
    assert {split: len(rows) for split, rows in tasks.items()} == {"train": 20, "validation": 10, "test": 20}
    assert {str(one.arguments["user"]) for rows in tasks.values() for one in rows} == {str(user)}
    assert len({one.id for rows in tasks.values() for one in rows}) == 50


def test_the_command_line_says_that_an_airline_needs_a_customer(tmp_path):
    with pytest.raises(ConfigurationError, match="--user is 'scripted' or MODEL@URL for airline; given: None"):
        data_set.main(["--out", str(tmp_path), "--domain", "airline"])
