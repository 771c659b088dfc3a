"""`play()` gives a trajectory for every episode, by its deadline, whatever the environment and the policy do."""

import asyncio
from dataclasses import replace

import pytest
from doubles import (
    CancelsItself,
    Countdown,
    Guess,
    Hangs,
    HangsAwaiting,
    HangsInReset,
    IgnoresCancellation,
    NanReward,
    NeverEnds,
    Raises,
    RaisesAwaiting,
    RaisesInReset,
    ReturnsNothing,
    ReturnsNothingFromReset,
    name_of,
    task_for,
)
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.environment import StepResult, opening
from agentgym_rl.environments import registry
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed
from agentgym_rl.messages import Message, assistant, user
from agentgym_rl.policy import ExpertPolicy, Reply, ScriptedPolicy
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason

RESET_SOON = Limits(reset_seconds=0.1)
STEP_SOON = Limits(step_seconds=0.1)
REPLY_SOON = Limits(reply_seconds=0.1)


@pytest.fixture(autouse=True)
def leave_hung_ones_soon(monkeypatch):
    monkeypatch.setattr(registry, "CLOSE_SECONDS", 0.1)


class Says:
    """Says the same for ever, or fails as it is told."""

    def __init__(self, line="0", error=None, hang=False, reply=None):
        self.line, self.error, self.hang, self.given = line, error, hang, reply
        self.seen = []

    async def reply(self, conversation):
        self.seen.append(tuple(conversation))
        if self.error:
            raise self.error
        if self.hang:
            await asyncio.Event().wait()
        return self.given or Reply(assistant(self.line))


async def played(double, policy, limits=None, **arguments):
    task = task_for(double, **arguments)
    async with registry.opened(task.environment) as environment:
        return await play(policy, environment, task, limits)


# Every stop reason


async def test_a_task_that_comes_to_its_own_end_is_terminated():
    # the secret of seed 0 is 7
    trajectory = await played(Guess, ScriptedPolicy(["4", "6", "7"]))
    assert trajectory.stop is StopReason.TERMINATED
    assert trajectory.success is True
    assert trajectory.failure is None
    assert [turn.reward for turn in trajectory.turns] == [0.0, 0.0, 1.0]
    assert trajectory.environment_return == 1.0
    assert [(m.role, m.content) for m in trajectory.messages] == [
        ("system", "Find the number."),
        ("user", "Guess a number from 1 to 8."),
        ("assistant", "4"),
        ("user", "higher"),
        ("assistant", "6"),
        ("user", "higher"),
        ("assistant", "7"),
        ("user", "found"),
    ]


async def test_a_task_may_end_without_success():
    # 3 left, minus 2, minus 2
    trajectory = await played(Countdown, ScriptedPolicy(["2", "2"]))
    assert (trajectory.stop, trajectory.success) == (StopReason.TERMINATED, False)
    assert trajectory.environment_return == -2.0


async def test_a_limit_of_the_environment_truncates():
    trajectory = await played(Guess, Says("0"), max_turns=2)
    assert (trajectory.stop, trajectory.success) == (StopReason.TRUNCATED, False)
    assert [turn.valid for turn in trajectory.turns] == [False, False]


async def test_the_limit_of_turns_stops_an_environment_that_never_ends():
    trajectory = await played(NeverEnds, Says("0"), Limits(max_turns=3))
    assert (trajectory.stop, trajectory.success) == (StopReason.MAX_TURNS, False)
    assert len(trajectory.turns) == 3


async def test_a_policy_without_tokens_left_is_out_of_budget_and_did_not_fail():
    trajectory = await played(Guess, ScriptedPolicy(["4"]))
    assert (trajectory.stop, trajectory.success) == (StopReason.TOKEN_BUDGET, False)
    assert len(trajectory.turns) == 1
    assert not trajectory.failed


async def test_the_episodes_own_deadline_is_a_truncation_and_no_failure():
    trajectory = await played(HangsAwaiting, Says("1"), Limits(step_seconds=60, episode_seconds=0.1))
    assert (trajectory.stop, trajectory.success) == (StopReason.EPISODE_DEADLINE, False)
    assert trajectory.failure is None
    assert trajectory.turns == ()


@pytest.mark.parametrize("limits", [Limits(step_seconds=60, episode_seconds=20), Limits(turn_seconds=20)])
async def test_a_deadline_that_the_environment_kept_itself_is_its_failure_and_no_truncation(limits):
    trajectory = await played(Raises, Says("1"), limits, error="ToolFailed")
    assert (trajectory.stop, trajectory.success) == (StopReason.FAILED, None)
    assert trajectory.failure.cause == "tool_timed_out"


async def test_a_turns_own_deadline_is_a_truncation_and_no_failure():
    trajectory = await played(HangsAwaiting, Says("1"), Limits(step_seconds=60, turn_seconds=0.1))
    assert (trajectory.stop, trajectory.success, trajectory.failure) == (StopReason.TURN_DEADLINE, False, None)


async def test_a_calls_own_deadline_within_the_turns_is_a_failure():
    trajectory = await played(HangsAwaiting, Says("1"), Limits(step_seconds=0.1, turn_seconds=60))
    assert trajectory.failure is not None
    assert trajectory.failure.cause == "environment_timed_out"


async def test_the_episodes_deadline_also_holds_while_the_environment_resets():
    trajectory = await played(HangsInReset, Says(), Limits(reset_seconds=60, episode_seconds=0.1))
    assert trajectory.stop is StopReason.EPISODE_DEADLINE
    assert trajectory.opening == ()


# Faults of the environment


@pytest.mark.parametrize(
    ("double", "line", "limits", "cause", "message"),
    [
        (RaisesInReset, "4", None, "environment_raised", "reset of .* raised ValueError: the level file is broken"),
        (HangsInReset, "4", RESET_SOON, "environment_timed_out", "reset of .* gave no answer within 0.1 s"),
        (
            ReturnsNothingFromReset,
            "4",
            None,
            "environment_raised",
            "reset of .* raised TypeError: 'NoneType' object is not",
        ),
        (Raises, "4", None, "environment_raised", "step of .* raised ValueError: seven"),
        (Hangs, "4", STEP_SOON, "environment_timed_out", "step of .* gave no answer within 0.1 s"),
        (HangsAwaiting, "1", STEP_SOON, "environment_timed_out", "step of .* gave no answer within 0.1 s"),
        (CancelsItself, "1", None, "environment_raised", "step of .* cancelled itself"),
        (
            ReturnsNothing,
            "4",
            None,
            "environment_raised",
            "step of .* the answer must be a StepResult; given: NoneType",
        ),
        (NanReward, "4", None, "environment_raised", "step of .* a reward is a finite number; given: nan"),
        (RaisesAwaiting, "SystemExit", None, "environment_raised", "step of .* SystemExit: 7"),
        (RaisesAwaiting, "StopIteration", None, "environment_raised", "step of .* StopIteration"),
        (RaisesAwaiting, "ToolFailed", None, "tool_timed_out", "seven"),
    ],
)
async def test_a_fault_of_the_environment_ends_as_its_typed_failure(double, line, limits, cause, message):
    trajectory = await played(double, Says(line), limits)
    assert trajectory.stop is StopReason.FAILED
    assert trajectory.success is None
    assert trajectory.failure.cause == cause
    with pytest.raises(EnvironmentFailed, match=message):
        raise EnvironmentFailed(trajectory.failure.message)
    assert "Traceback" in trajectory.failure.traceback


@pytest.mark.parametrize("observation", [None, ("higher",)])
async def test_an_observation_that_holds_no_messages_is_the_environments_failure(observation):
    class Mumbles(Guess):
        def step(self, action):
            return StepResult(observation, 0.0, False, False)

    environment = registry.ThreadedEnvironment(Mumbles())
    trajectory = await play(Says("4"), environment, task_for(Guess))
    assert trajectory.failure.cause == "environment_raised"
    await environment.close()


async def test_an_observation_may_hold_lone_surrogates_as_json_lets_them_through():
    class Garbled(Guess):
        def reset(self, task):
            super().reset(task)
            return [user("a \ud800 b")]

    environment = registry.ThreadedEnvironment(Garbled())
    trajectory = await play(ScriptedPolicy(["7"]), environment, task_for(Guess))
    assert (trajectory.success, len(trajectory.fingerprint)) == (True, 16)
    await environment.close()


async def test_a_failure_keeps_the_turns_before_it():
    class RaisesLater(Guess):
        def step(self, action):
            if self.turns == 1:
                raise ValueError("later")
            return super().step(action)

    environment = registry.ThreadedEnvironment(RaisesLater())
    trajectory = await play(Says("4"), environment, task_for(Guess))
    assert [turn.reply.message.content for turn in trajectory.turns] == ["4"]
    assert trajectory.failure.cause == "environment_raised"
    assert "later" in trajectory.failure.traceback
    await environment.close()


async def test_an_environment_that_ignores_cancellation_is_left_behind():
    try:
        trajectory = await played(IgnoresCancellation, Says("1"), STEP_SOON)
        assert trajectory.failure is not None, trajectory
        assert trajectory.failure.cause == "environment_timed_out"
    finally:
        await IgnoresCancellation.release()


# Faults of the policy


@pytest.mark.parametrize(
    ("policy", "cause", "message"),
    [
        (Says(error=OSError("refused")), "policy_raised", "reply of the policy raised OSError: refused"),
        (Says(hang=True), "policy_timed_out", "reply of the policy gave no answer within 0.1 s"),
        (Says(reply="4"), "policy_raised", "the answer must be a Reply; given: str"),
    ],
)
async def test_a_fault_of_the_policy_ends_as_its_typed_failure(policy, cause, message):
    trajectory = await played(Guess, policy, REPLY_SOON if policy.hang else None)
    assert trajectory.failure.cause == cause
    assert message in trajectory.failure.message
    assert trajectory.opening[-1] == user("Guess a number from 1 to 8.")


@pytest.mark.parametrize("error", [EnvironmentFailed("the planner gave up"), LookupError("the planner gave up")])
async def test_an_expert_that_fails_is_the_environments_failure(error):
    class LostExpert(Guess):
        def expert_action(self):
            raise error

    environment = registry.ThreadedEnvironment(LostExpert())
    trajectory = await play(ExpertPolicy(environment), environment, task_for(Guess))
    assert trajectory.failure.cause == "environment_raised"
    assert "the planner gave up" in trajectory.failure.message
    await environment.close()


# Wrong configuration is no failure


async def test_a_task_that_can_not_work_raises_at_once():
    with pytest.raises(ConfigurationError, match="max_turns must be at least 1; given: 0"):
        await played(Guess, Says(), max_turns=0)


@pytest.mark.parametrize("error", [ConfigurationError, DataError])
async def test_wrong_configuration_and_data_go_through(error):
    with pytest.raises(error, match="seven"):
        await played(Raises, Says("4"), error=error.__name__)
    with pytest.raises(error, match="eight"):
        await played(Guess, Says(error=error("eight")))


@pytest.mark.parametrize("name", ["max_turns", "reset_seconds", "step_seconds", "reply_seconds", "episode_seconds"])
def test_a_limit_of_zero_is_refused(name):
    with pytest.raises(ConfigurationError, match=f"^{name} must be above 0; given: 0$"):
        Limits(**{name: 0})


async def test_cancelling_an_episode_cancels_it():
    policy = Says(hang=True)
    playing = asyncio.ensure_future(played(Guess, policy))
    while not policy.seen:
        await asyncio.sleep(0.01)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing


# What the policy sees, and what observers are told


async def test_the_policy_sees_the_whole_conversation_which_ends_with_the_environment():
    policy = Says("1")
    await played(Guess, policy, Limits(max_turns=3))
    assert [len(seen) for seen in policy.seen] == [2, 4, 6]
    assert all(seen[-1].role == "user" for seen in policy.seen)
    assert policy.seen[2][:4] == policy.seen[1]


async def test_each_turn_and_the_opening_are_reported_as_they_happen():
    events = []
    async with registry.opened(name_of(Guess)) as environment:
        trajectory = await play(
            ScriptedPolicy(["4", "7"]),
            environment,
            task_for(Guess),
            on_turn=events.append,
            on_opening=events.append,
        )
    assert events[0].messages == trajectory.opening
    assert events[0].fingerprint == trajectory.fingerprint
    assert tuple(events[1:]) == trajectory.turns


async def test_the_tasks_own_prompt_replaces_the_environments_instructions():
    async with registry.opened(name_of(Guess)) as environment:
        task = Task("t", name_of(Guess), prompt="Play well.")
        trajectory = await play(ScriptedPolicy([]), environment, task)
        within = await play(ScriptedPolicy([]), environment, replace(task, prompt="Play well.\n{{instructions}}\nGo."))
    assert trajectory.opening[0] == Message("system", "Play well.")
    assert within.opening[0] == Message("system", f"Play well.\n{Guess.instructions}\nGo.")
    assert Guess.instructions


def test_the_fingerprint_tells_observations_apart_and_ignores_the_prompt():
    task = Task("t", "maze")
    one = opening(task, "do it", [user("ab"), user("c")])
    assert opening(task, "do it otherwise", [user("ab"), user("c")]).fingerprint == one.fingerprint
    assert opening(task, "do it", [user("a"), user("bc")]).fingerprint != one.fingerprint
    assert opening(task, "", [user("ab")]).messages == (user("ab"),)


@given(st.lists(st.sampled_from(["0", "1", "3", "5", "8", "none"]), max_size=8), st.integers(0, 20))
def test_a_trajectory_is_in_order_whatever_is_said(lines, seed):
    trajectory = asyncio.run(played(Guess, ScriptedPolicy(lines), seed=seed))
    assert [turn.reply.message.content for turn in trajectory.turns] == lines[: len(trajectory.turns)]
    assert trajectory.environment_return == sum(turn.reward for turn in trajectory.turns)
    expected = list(trajectory.opening)
    for turn in trajectory.turns:
        expected += [turn.reply.message, *turn.observation]
    assert list(trajectory.messages) == expected
    assert (trajectory.success is True) == (trajectory.environment_return == 1.0)
