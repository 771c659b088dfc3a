"""What a trajectory that a limit cut off counts as."""

from __future__ import annotations

from dataclasses import fields

import pytest

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.trajectory import StopReason
from agentgym_rl.truncation import CountsAs, Truncations

NO_TRUNCATION = {StopReason.TERMINATED, StopReason.FAILED}


def test_there_is_one_choice_for_every_reason_that_cuts_off_and_for_no_other():
    assert {field.name for field in fields(Truncations)} == {stop.value for stop in set(StopReason) - NO_TRUNCATION}


@pytest.mark.parametrize(
    ("stop", "counts_as"),
    [
        (StopReason.TERMINATED, CountsAs.AS_IS),
        (StopReason.TRUNCATED, CountsAs.BOOTSTRAP),
        (StopReason.MAX_TURNS, CountsAs.BOOTSTRAP),
        (StopReason.TOKEN_BUDGET, CountsAs.BOOTSTRAP),
        (StopReason.EPISODE_DEADLINE, CountsAs.EXCLUDE),
    ],
)
def test_by_default_only_what_depends_on_the_machine_is_excluded(stop, counts_as):
    assert Truncations().counts_as(stop) is counts_as


@pytest.mark.parametrize("choice", CountsAs)
@pytest.mark.parametrize("stop", sorted(set(StopReason) - NO_TRUNCATION, key=lambda stop: stop.value))
def test_each_choice_is_for_its_own_reason_alone(stop, choice):
    given = Truncations(**{stop.value: choice.value})
    assert given.counts_as(stop) is choice
    others = set(StopReason) - {stop, StopReason.FAILED}
    assert {other: given.counts_as(other) for other in others} == {
        other: Truncations().counts_as(other) for other in others
    }


def test_the_limits_that_are_bootstrapped_are_named_by_their_stop_reasons():
    assert Truncations().bootstrapped == {"truncated", "max_turns", "token_budget"}
    chosen = Truncations("as_is", "exclude", "as_is", episode_deadline="bootstrap")
    assert chosen.bootstrapped == {StopReason.EPISODE_DEADLINE.value}


def test_the_end_of_a_task_stands_whatever_is_chosen():
    excluding = Truncations(*["exclude"] * 5)
    assert excluding.counts_as(StopReason.TERMINATED) is CountsAs.AS_IS


def test_a_failed_trajectory_is_left_to_the_failure_policy():
    with pytest.raises(ValueError, match="ask the failure policy what becomes of it"):
        Truncations().counts_as(StopReason.FAILED)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"max_turns": "bootstrapped"},
            "a trajectory that max_turns cut off can't count as 'bootstrapped'; did you mean 'bootstrap'?",
        ),
        (
            {"episode_deadline": None},
            "a trajectory that episode_deadline cut off can't count as None; known: as_is, bootstrap, exclude",
        ),
        (
            {"token_budget": 0},
            "a trajectory that token_budget cut off can't count as 0; known: as_is, bootstrap, exclude",
        ),
    ],
)
def test_a_choice_that_there_is_not_is_named_with_what_there_is(given, message):
    with pytest.raises(ConfigurationError) as error:
        Truncations(**given)
    assert str(error.value) == message
