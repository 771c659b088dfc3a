"""tau2's telecom tickets: played through the interpreter that has the package, one worker for all tests."""

from __future__ import annotations

import asyncio
import importlib.util
import json

import pytest

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments import registry
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.interpreter import interpreter_of
from agentgym_rl.environments.tau2 import INSTALL, MAX_ERRORS, Tau2
from agentgym_rl.episode import Limits
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from data_preprocess import tau2 as data_set

if interpreter_of("tau2") is None and importlib.util.find_spec("tau2") is None:
    pytest.skip(f"tau2 is not installed: {INSTALL}", allow_module_level=True)

ROAMING = "[mobile_data_issue]airplane_mode_on|user_abroad_roaming_enabled_off[PERSONA:None]"


def task(ticket: str = ROAMING, **arguments) -> Task:
    return Task(ticket, "tau2", {"ticket": ticket, **arguments})


def calling(name: str, **arguments) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


class Game:
    """The environment without its `await`s."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._environment = self._loop.run_until_complete(self._made())

    async def _made(self):
        return registry.make("tau2")

    def reset(self, *given, **arguments) -> str:
        (opening,) = self._loop.run_until_complete(self._environment.reset(task(*given, **arguments)))
        return opening.content

    def say(self, *replies: str):
        """The result of the last reply."""
        for reply in replies:
            result = self._loop.run_until_complete(self._environment.step(assistant(reply)))
        return result

    def by_expert(self):
        """The results of all turns."""
        results = []
        while not results or not (results[-1].terminated or results[-1].truncated):
            results.append(self.say(self._loop.run_until_complete(self._environment.expert_action())))
        return results

    def close(self) -> None:
        self._loop.run_until_complete(self._environment.close())
        self._loop.close()


@pytest.fixture(scope="module")
def game():
    game = Game()
    yield game
    game.close()


def seen(result) -> str:
    return "\n".join(message.content for message in result.observation)


def test_the_first_observation_is_the_ticket_and_policy_and_tools_are_in_the_instructions(game):
    assert "phone number: 555-123-2002, current location: abroad in France." in game.reset()
    instructions = game._environment.instructions
    assert "<policy>\n<main_policy>\n# Telecom Agent Policy" in instructions
    assert '"name": "toggle_airplane_mode"' in instructions
    assert '"name": "enable_roaming"' in instructions
    assert '"name": "done"' in instructions


def test_natively_a_server_shows_the_43_tools_and_done(game):
    game.reset(tool_format="native")
    assert len(game._environment.tools) == 44
    assert "toggle_airplane_mode" not in game._environment.instructions.partition("<policy>")[0]


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
    splits = data_set.package_splits()
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
    game.say(game._loop.run_until_complete(game._environment.expert_action()))
    roaming = game._loop.run_until_complete(game._environment.expert_action())
    assert not game.say(roaming + calling("done")).success


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
        ({}, "a tau2 task needs the argument 'ticket'; given: None"),
        ({"ticket": ROAMING[:-1]}, f"did you mean {ROAMING!r}?"),
        ({"ticket": ROAMING, "tool_format": "herms"}, "no tool format 'herms'; did you mean 'hermes'?"),
        ({"ticket": ROAMING, "turns": 3}, "a tau2 task has no 'turns'"),
    ],
)
def test_wrong_arguments_are_named(game, arguments, message):
    with pytest.raises(ConfigurationError) as raised:
        game._loop.run_until_complete(game._environment.reset(Task("t", "tau2", arguments)))
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


def test_test_tasks_are_the_packages_test_tickets_and_validation_comes_out_of_train():
    splits = data_set.package_splits()
    built = data_set.build({"train": 64, "validation": 10, "test": 40}, {"tool_format": "hermes"}, seed=0)
    tickets = {split: [one.arguments["ticket"] for one in tasks] for split, tasks in built.items()}
    assert sorted(tickets["test"]) == sorted(splits["test"])
    assert sorted(tickets["train"] + tickets["validation"]) == sorted(splits["train"])
    assert {one.split for one in built["validation"]} == {"validation"}
    again = data_set.build({"train": 64, "validation": 10, "test": 40}, {"tool_format": "hermes"}, seed=1)
    assert again["train"] != built["train"]


def test_more_tickets_than_there_are_can_not_be_dealt():
    with pytest.raises(ConfigurationError, match="74 tickets for train and validation and 40 for test; asked for"):
        data_set.build({"train": 70, "validation": 5, "test": 1}, {}, 0)


def test_the_command_line_writes_one_file_a_split(tmp_path, capsys):
    data_set.main(["--out", str(tmp_path), "--train", "3", "--validation", "0", "--test", "2"])
    tasks = {path.stem: read_tasks(path) for path in tmp_path.glob("*.parquet")}
    assert {split: len(rows) for split, rows in tasks.items()} == {"train": 3, "test": 2}
    assert "3 tasks" in capsys.readouterr().out
