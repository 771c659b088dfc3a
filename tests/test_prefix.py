"""A task's prefix: it is played before the policy's first turn; it is what the policy is told, and not what it did."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from doubles import Countdown, Guess, Hangs, HangsAwaiting, HonestlyRandom, Raises, task_for
from doubles_chaos import ChangedWalk, walk
from doubles_tools import shop_task
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.beginning import Beginning
from agentgym_rl.environment import fingerprint
from agentgym_rl.environments import registry
from agentgym_rl.environments.chaos import Fault, Injected
from agentgym_rl.environments.snapshots import SnapshotRecorder
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.evaluation.chaos import SURVIVED, ended_as
from agentgym_rl.fork import fork
from agentgym_rl.messages import Message, ToolCall, assistant, user
from agentgym_rl.policy import ExpertPolicy, Reply, ScriptedPolicy
from agentgym_rl.prefix import entry, written
from agentgym_rl.reply_form import FORMS
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason

texts = st.text(max_size=8)


def said(*lines):
    return [{"role": "assistant", "content": line} for line in lines]


def after(task, *lines, **changed):
    return replace(task, prefix=said(*lines), **changed)


def played(task, policy, limits=None, **options):
    async def episode():
        async with registry.opened(task.environment) as environment:
            speaks = policy(environment) if callable(policy) else policy
            return await play(speaks, environment, task, limits, **options)

    return asyncio.run(episode())


# What a task says


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ("up", "a task's prefix must be a list of chat messages; given: 'up'"),
        (None, "a task's prefix must be a list of chat messages; given: None"),
        (["up"], "message 0 of a task's prefix: it must be a chat message; given: 'up'"),
        ([*said("up"), {"role": "user", "content": "a"}], "message 1 of a task's prefix: its role must be 'assistant'"),
        ([{"role": "assistant", "content": None}], "message 0 .* content must be text; the assistant message has None"),
        ([{"role": "assistant", "content": "a", "tool_call": []}], "it has no 'tool_call'; did you mean 'tool_calls'?"),
        ([{"role": "assistant", "content": "a", "tool_calls": 7}], "it is no chat message"),
        ([{"role": "assistant", "content": "", "tool_calls": [{}]}], "a tool call needs function.name"),
        ([{**said("a")[0], "reasoning_content": 7}], "its reasoning_content must be text; given: 7"),
    ],
)
def test_a_prefix_that_is_none_is_refused_with_its_place(prefix, message):
    with pytest.raises(DataError, match=message):
        Task.from_json(json.dumps({"id": "a", "environment": "maze", "prefix": prefix}))


def test_a_prefix_survives_json_and_a_task_without_one_reads_as_it_always_did():
    task = after(Task("a", "maze", {"size": 3}), "up", "down")
    assert Task.from_json(task.to_json()) == task
    assert json.loads(task.to_json())["prefix"] == said("up", "down")
    assert Task("a", "maze", {"size": 3}).to_json() == (
        '{"arguments": {"size": 3}, "environment": "maze", "id": "a", "prompt": "", "reference_answer": null, '
        '"reply_form": "bare", "seed": 0, "split": "train"}'
    )


@given(st.sampled_from(sorted(FORMS)), texts, texts)
def test_a_reply_that_can_be_read_is_an_entry_that_is_written_as_it_was(name, action, thought):
    form = FORMS[name]
    reply = assistant(form.write(action.strip() or "go", thought.strip()))
    if form.read(reply.content).problem:
        return
    (again,) = written([entry(reply, form)], form)
    assert again == reply
    assert "think" not in str(entry(reply, form)["content"]) or "think" in action


def test_an_entry_keeps_its_calls():
    call = assistant("so", (ToolCall("go", {"x": [1]}, "c1"),))
    assert written([json.loads(json.dumps(entry(call, FORMS["bare"])))], FORMS["bare"]) == [call]


# What is played. The secret of seed 0 is 7


def test_an_episode_goes_on_after_its_prefix():
    trajectory = played(after(task_for(Guess), "4", "5"), ScriptedPolicy(["6", "7"]))
    assert [(m.role, m.content) for m in trajectory.opening] == [
        ("system", "Find the number."),
        ("user", "Guess a number from 1 to 8."),
        ("assistant", "4"),
        ("user", "higher"),
        ("assistant", "5"),
        ("user", "higher"),
    ]
    assert [turn.reply.message.content for turn in trajectory.turns] == ["6", "7"]
    assert (trajectory.stop, trajectory.success) == (StopReason.TERMINATED, True)


def test_what_the_prefix_earned_is_not_the_policys():
    # 3 left; each turn costs 1: one of the prefix, one of the policy
    trajectory = played(after(task_for(Countdown), "1"), ScriptedPolicy(["2"]))
    assert (trajectory.success, trajectory.environment_return) == (True, -1.0)


def test_the_limit_of_turns_is_the_policys_and_the_environments_own_counts_all():
    task = after(task_for(Guess, max_turns=3), "4", "5")
    assert played(task, ScriptedPolicy(["6"] * 9), Limits(max_turns=1)).stop is StopReason.TRUNCATED
    task = after(task_for(Guess, max_turns=9), "4", "5")
    trajectory = played(task, ScriptedPolicy(["6"] * 9), Limits(max_turns=2))
    assert (trajectory.stop, len(trajectory.turns)) == (StopReason.MAX_TURNS, 2)


def test_the_fingerprint_is_that_of_all_that_was_observed():
    plain = played(task_for(Guess), ScriptedPolicy(["7"]))
    begun = played(after(task_for(Guess), "4"), ScriptedPolicy(["7"]))
    assert begun.fingerprint == fingerprint([user("Guess a number from 1 to 8."), user("higher")])
    other = played(after(task_for(Guess), "8"), ScriptedPolicy([]))
    assert len({begun.fingerprint, plain.fingerprint, other.fingerprint}) == 3
    assert played(after(task_for(Guess), "4", reply_form="tags"), ScriptedPolicy([])).fingerprint == begun.fingerprint


@given(
    st.lists(st.sampled_from(["left", "right"]), min_size=6, max_size=6),
    st.integers(0, 20),
    st.sampled_from(sorted(FORMS)),
    st.data(),
)
def test_the_rest_is_what_it_was_wherever_an_episode_is_cut(lines, seed, name, data):
    form, task = FORMS[name], replace(walk(seed), reply_form=name)
    replies = [form.write(line, "so") for line in lines]
    whole = played(task, ScriptedPolicy(replies))
    cut = data.draw(st.integers(0, len(whole.turns) - 1))
    prefix = [entry(turn.reply.message, form) for turn in whole.turns[:cut]]
    rest = played(replace(task, prefix=prefix), ScriptedPolicy(replies[cut:]))
    assert rest.messages == whole.messages
    assert [turn.reward for turn in rest.turns] == [turn.reward for turn in whole.turns[cut:]]
    assert (rest.stop, rest.success) == (whole.stop, whole.success)


def test_a_prefix_is_told_in_the_tasks_form_with_its_thought_where_that_has_one():
    thinking = {"role": "assistant", "content": "4", "reasoning_content": "the middle"}
    for name, told in [("bare", "4"), ("tags", "<action>4</action>"), ("think", "<think>the middle</think>4")]:
        task = replace(task_for(Guess), prefix=[thinking], reply_form=name)
        trajectory = played(task, ExpertPolicy)
        assert trajectory.opening[2] == assistant(told)
        assert trajectory.success


def test_calls_of_tools_are_carried_out_and_their_answers_told():
    call = assistant("", (ToolCall("buy", {"item": {"name": "tea"}, "count": 2}, "c1"),))
    trajectory = played(replace(shop_task(), prefix=[call.to_chat()]), ScriptedPolicy(["2"]))
    assert trajectory.opening[-2:] == (call, Message("tool", "bought 2", (), "c1"))
    assert (trajectory.success, trajectory.environment_return) == (True, 1.0)


# A prefix that does not fit


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["4", "7"], r"the prefix of task '.*' can't be played: turn 1 of 2 \(from 0\) ended the episode; .* 'found'"),
        (
            ["4", "6", "5"],
            r"turn 2 of 3 \(from 0\) was not understood; environment 'double-guess' answered 'Say a number",
        ),
    ],
)
def test_a_prefix_that_ends_the_episode_or_is_not_understood_is_wrong_configuration(lines, message):
    with pytest.raises(ConfigurationError, match=message):
        played(after(task_for(Guess), *lines), ScriptedPolicy(["7"]))


def test_a_prefix_that_the_environments_own_limit_cuts_off_ends_the_episode():
    with pytest.raises(ConfigurationError, match=r"turn 1 of 2 \(from 0\) ended the episode"):
        played(after(task_for(Guess, max_turns=2), "4", "5"), ScriptedPolicy(["7"]))


def test_an_environment_that_is_not_deterministic_takes_no_prefix():
    with pytest.raises(ConfigurationError, match="has a prefix, and environment '.*' is not deterministic"):
        played(after(task_for(HonestlyRandom), "4"), ScriptedPolicy(["7"]))


@pytest.mark.parametrize(
    ("double", "line", "limits", "cause"),
    [
        (Raises, "4", None, "environment_raised"),
        (Hangs, "4", Limits(step_seconds=0.1), "environment_timed_out"),
    ],
)
def test_a_fault_in_the_prefix_is_a_typed_failure_that_names_its_turn(monkeypatch, double, line, limits, cause):
    monkeypatch.setattr(registry, "CLOSE_SECONDS", 0.1)
    trajectory = played(after(task_for(double), line), ScriptedPolicy(["7"]), limits)
    assert (trajectory.stop, trajectory.success, trajectory.turns) == (StopReason.FAILED, None, ())
    assert trajectory.failure.cause == cause
    assert trajectory.failure.message.startswith(f"turn 0 of the prefix of task '{trajectory.task.id}' in environment")


def test_the_episodes_deadline_holds_in_the_prefix():
    task = after(task_for(HangsAwaiting), "1")
    trajectory = played(task, ScriptedPolicy(["1"]), Limits(step_seconds=60, turn_seconds=60, episode_seconds=0.1))
    assert (trajectory.stop, trajectory.failure) == (StopReason.EPISODE_DEADLINE, None)
    assert trajectory.opening == ()


# Going on from such an episode


@pytest.mark.parametrize("by_snapshot", [True, False])
def test_turns_are_counted_after_the_prefix_and_a_fork_goes_on_from_them(by_snapshot):
    task = after(walk(1), "left", "right")
    whole = played(task, ScriptedPolicy(["left", "left", "left"]))
    snapshot = asyncio.run(_state(task, "left")) if by_snapshot else None

    def script(environment, task, number):
        return ScriptedPolicy(["left", "left"])

    (again,) = asyncio.run(fork(script, whole, 1, 1, snapshot=snapshot))
    assert (again.messages, again.fingerprint) == (whole.messages, whole.fingerprint)
    assert len(whole.turns) == 3
    assert Beginning.of(whole, 1).turns == whole.turns[:1]


def test_a_recorder_counts_the_policys_turns_too():
    task = after(walk(1), "left", "right")

    async def recorded():
        async with registry.opened(task.environment) as environment:
            recorder = SnapshotRecorder(environment)
            trajectory = await play(ScriptedPolicy(["left", "left", "left"]), recorder, task)
            return trajectory, recorder.snapshots

    trajectory, snapshots = asyncio.run(recorded())
    assert len(trajectory.turns) == 3
    assert snapshots[:3] == tuple(asyncio.run(_state(task, *["left"] * turn)) for turn in range(3))


@pytest.mark.parametrize(
    ("turn", "ended"), [(None, SURVIVED), (1, SURVIVED), (2, SURVIVED), (4, SURVIVED), (5, "terminated")]
)
def test_what_became_of_a_fault_is_told_by_the_policys_turns(turn, ended):
    trajectory = played(after(walk(1), "left", "right"), ScriptedPolicy(["left", "left", "left"]), Limits(max_turns=3))
    assert len(trajectory.turns) == 3
    trajectory = replace(trajectory, stop=StopReason.TERMINATED)
    assert ended_as(trajectory, Injected(Fault.SLOW, 0, turn)) == ended


async def _state(task, *lines):
    """A snapshot after the prefix and these lines."""
    async with registry.opened(task.environment) as environment:
        await environment.reset(task)
        for message in [*map(Message.from_chat, task.prefix), *map(assistant, lines)]:
            await environment.step(message)
        return await environment.snapshot()


def test_a_prefix_that_leads_elsewhere_the_second_time_is_noticed_by_a_replay():
    ChangedWalk.resets = 0
    task = after(replace(walk(1), environment="ChangedWalk", arguments={"change": "opening"}), "left")
    whole = played(task, ScriptedPolicy(["left", "left"]))
    again = played(task, lambda environment: ScriptedPolicy([]), beginning=Beginning.of(whole, 1))
    assert again.failure.cause == "environment_diverged"
    assert "diverged at its first observation: it was 'place 1 at turn 0', now it is 'another" in again.failure.message


def test_a_policy_sees_the_prefix_before_its_first_reply():
    seen = []

    class Watches:
        async def reply(self, conversation):
            seen.append([message.content for message in conversation])
            return Reply(assistant("7"))

    played(after(task_for(Guess), "4"), Watches())
    assert seen == [["Find the number.", "Guess a number from 1 to 8.", "4", "higher"]]
