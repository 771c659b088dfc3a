"""Turns are counted whatever is said; the last one is cut off unless the task ended in it; actions stand last."""

from __future__ import annotations

import pytest

from agentgym_rl.environment import Facts, StepResult
from agentgym_rl.environments.turn_limited import TurnLimited, last_line, whole_number
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task


class Door(TurnLimited):
    """Opens on "open"; "stuck" is its own limit; "?" is not understood."""

    facts = Facts(reward_range=(0.0, 1.0), max_turns=3)

    def begin(self, task: Task) -> str:
        if "broken" in task.arguments:
            raise ConfigurationError("a broken door")
        return "a door"

    def act(self, text: str) -> StepResult:
        if text == "open":
            return StepResult.at_end(1.0, success=True)
        if text == "stuck":
            return StepResult.cut_off("it sticks", reward=0.25)
        return StepResult.going_on("closed", reward=0.5, valid=text != "?")


def started(**arguments) -> Door:
    door = Door()
    door.reset(Task("t", "door", arguments))
    return door


def ends(door: Door, *said: str) -> list[tuple]:
    results = [door.step(assistant(text)) for text in said]
    return [(r.reward, r.terminated, r.truncated, r.success, r.valid) for r in results]


def test_the_last_turn_is_cut_off_with_its_reward_whether_it_was_understood_or_not():
    going_on, refused = (0.5, False, False, None, True), (0.5, False, False, None, False)
    assert ends(started(), "wait", "?", "wait") == [going_on, refused, (0.5, False, True, False, True)]
    assert ends(started(max_turns=1), "?") == [(0.5, False, True, False, False)]


def test_a_task_that_ends_in_the_last_turn_is_terminated_and_a_limit_of_its_own_truncates_before_it():
    assert ends(started(max_turns=1), "open") == [(1.0, True, False, True, True)]
    assert ends(started(), "stuck") == [(0.25, False, True, False, True)]


@pytest.mark.parametrize("last", ["open", "stuck"])
def test_after_the_end_nothing_is_answered_until_the_next_reset(last):
    door = started()
    ends(door, last)
    with pytest.raises(EnvironmentFailed, match="^Door was stepped after the end of its episode$"):
        door.step(assistant("wait"))
    door.reset(Task("t", "door"))
    assert door.turns_left == 3


def test_before_a_reset_that_worked_nothing_is_answered():
    door = started()
    with pytest.raises(ConfigurationError, match="a broken door"):
        door.reset(Task("t", "door", {"broken": True}))
    for never_reset in (door, Door()):
        with pytest.raises(EnvironmentFailed, match="^Door was stepped before reset$"):
            never_reset.step(assistant("wait"))


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("north", "north"),
        ("  Pick \t UP.\n", "pick up"),
        ("I think so.\n\nAction: north", "north"),
        ("north\nbecause", "because"),
        ("action:north.", "north"),
        ("", ""),
        ("\n \n", ""),
        (".", ""),
    ],
)
def test_the_action_is_the_last_line(text, action):
    assert last_line(text) == action


@pytest.mark.parametrize(
    ("given", "most", "message"),
    [
        (0, None, "the argument 'size' must be a whole number of at least 2; given: 0"),
        (True, None, "given: True"),
        ("4", None, "given: '4'"),
        (4.0, None, "given: 4.0"),
        (9, 8, "the argument 'size' must be a whole number from 2 to 8; given: 9"),
    ],
)
def test_a_number_that_can_not_work_is_named_with_its_limits(given, most, message):
    with pytest.raises(ConfigurationError) as raised:
        whole_number({"size": given}, "size", default=5, least=2, most=most)
    assert message in str(raised.value)


def test_a_number_that_is_left_out_has_its_default():
    assert whole_number({}, "size", default=5) == 5
    assert whole_number({"size": 8}, "size", default=5, most=8) == 8
