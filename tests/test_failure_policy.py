"""Cause x action, and the budget: worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.errors import BoundaryError, ConfigurationError, EnvironmentFailed, Manner, PolicyFailed
from agentgym_rl.failure_policy import (
    CAUSES,
    DEFAULT_ACTIONS,
    Action,
    FailedEpisode,
    FailureBudget,
    FailureBudgetSpent,
    FailurePolicy,
)


def failed(cause: str = "environment_raised", task: str = "t") -> FailedEpisode:
    return FailedEpisode("maze", task, cause, f"message of {task}")


def test_a_retry_is_an_exclusion_once_the_retries_are_used_up():
    policy = FailurePolicy({"environment_timed_out": "retry"}, retries=2)
    tries = [policy.action("environment_timed_out", number) for number in (1, 2, 3, 4)]
    assert tries == [Action.RETRY, Action.RETRY, Action.EXCLUDE, Action.EXCLUDE]


def test_a_crash_is_tried_again_and_an_exception_is_not_unless_told():
    policy = FailurePolicy()
    assert policy.action("environment_crashed", 1) is Action.RETRY
    assert policy.action("environment_raised", 1) is Action.EXCLUDE
    assert FailurePolicy({"environment_raised": "replace"}).action("environment_raised", 1) is Action.REPLACE


def test_every_cause_that_a_boundary_can_name_and_every_limit_that_can_exclude_has_an_action():
    named = {kind("m", manner).cause_name for kind in BoundaryError.__subclasses__() for manner in Manner}
    limits = {"truncated", "max_turns", "token_budget", "turn_deadline", "episode_deadline"}
    assert named | {"nothing_sampled"} | limits == set(CAUSES) == set(DEFAULT_ACTIONS)
    assert {FailurePolicy().action(limit, 1) for limit in limits} == {Action.EXCLUDE}
    assert EnvironmentFailed("m").cause_name in named
    assert PolicyFailed("m", Manner.CRASHED).cause_name in named


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"actions": {"environment_crash": "retry"}}, "no cause of failure 'environment_crash'; did you mean"),
        (
            {"actions": {"environment_crashed": "retyr"}},
            "no action 'retyr' for environment_crashed; did you mean 'retry'",
        ),
        ({"retries": -1}, "retries must be >= 0"),
        ({"step_share": 1.5}, r"step_share in \[0, 1\]"),
        ({"run_count": -1}, "run_count >= 0"),
    ],
)
def test_a_table_that_can_not_work_is_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        FailurePolicy(**arguments)


def test_the_budget_of_a_step_is_a_share_of_its_episodes():
    budget = FailureBudget(FailurePolicy(step_share=0.25))
    budget.spend([failed()] * 2, episodes=8)  # 2 of 8 is a quarter
    with pytest.raises(FailureBudgetSpent, match=r"3 of 8 episodes of one step failed; allowed: 25%"):
        budget.spend([failed()] * 3, episodes=8)


def test_the_report_names_the_worst_cause_with_its_latest_example():
    budget = FailureBudget(FailurePolicy(step_share=0))
    lost = [failed("policy_raised", "a"), failed("environment_crashed", "b"), failed("environment_crashed", "c")]
    with pytest.raises(FailureBudgetSpent, match=r"The worst cause, 2 times: environment_crashed .* 'c': message of c"):
        budget.spend(lost, episodes=100)


def test_the_budget_of_a_run_adds_up_over_steps():
    budget = FailureBudget(FailurePolicy(run_count=3))
    budget.spend([failed()] * 2, episodes=64)
    budget.spend([failed()], episodes=64)
    with pytest.raises(FailureBudgetSpent, match="4 episodes of this run failed; allowed: 3"):
        budget.spend([failed()], episodes=64)


def test_a_cause_that_stops_the_run_does_so_at_once():
    budget = FailureBudget(FailurePolicy({"judge_raised": "stop"}))
    with pytest.raises(FailureBudgetSpent, match="a cause that stops the run: judge_raised"):
        budget.spend([failed("judge_raised")], episodes=1000)


@given(st.lists(st.integers(0, 8), max_size=20))
def test_every_lost_episode_is_counted_whatever_the_steps(steps):
    budget = FailureBudget(FailurePolicy(step_share=1.0))
    for lost in steps:
        budget.spend([failed()] * lost, episodes=8)
    assert budget.lost == sum(steps)
