"""Continuations of an episode: they share the turns before, go their own ways, and a replay is held to the original."""

from functools import partial

import pytest
from doubles_chaos import ChangedWalk, HangsInRestore, MoodyWalk, NoSnapshots, Walk, walk
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.beginning import Beginning
from agentgym_rl.environments import registry
from agentgym_rl.environments.snapshots import SnapshotRecorder
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.fork import fork
from agentgym_rl.messages import assistant
from agentgym_rl.policy import ExpertPolicy, Reply, ScriptedPolicy
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason
from benchmarks.rollout.virtual_clock import run

LINES = ["left", "right", "left", "left", "what?", "right"]
lines = st.lists(st.sampled_from(["left", "right", "what?"]), min_size=6, max_size=6)


@pytest.fixture(autouse=True)
def nothing_stays_open():
    Walk.open_now = ChangedWalk.resets = 0
    yield
    assert Walk.open_now == 0


async def recorded(task, policy, limits=None):
    """The episode with its snapshots."""
    async with registry.opened(task.environment) as environment:
        recorder = SnapshotRecorder(environment)
        return await play(policy, recorder, task, limits), recorder.snapshots


async def played(task, policy, limits=None):
    async with registry.opened(task.environment) as environment:
        return await play(policy, environment, task, limits)


def scripts(*scripted):
    """The policy of continuation i says the i-th lines."""
    return lambda environment, task, number: ScriptedPolicy(scripted[number])


def what_happened(trajectory):
    """All but the times."""
    turns = [(turn.reply, turn.observation, turn.reward, turn.valid, turn.info) for turn in trajectory.turns]
    return trajectory.task, trajectory.opening, turns, trajectory.stop, trajectory.success, trajectory.fingerprint


# The same again


@given(lines, st.integers(0, 20), st.data())
def test_a_fork_with_the_same_lines_reproduces_the_rest_by_snapshot_and_by_replay(lines, seed, data):
    original, snapshots = run(recorded(walk(seed), ScriptedPolicy(lines)))
    turn = data.draw(st.integers(0, len(original.turns) - 1))
    for snapshot in (snapshots[turn], None):
        (again,) = run(fork(scripts(lines[turn:]), original, turn, 1, snapshot=snapshot))
        assert what_happened(again) == what_happened(original)


@given(lines, lines, st.integers(0, 20), st.data())
def test_a_snapshot_and_a_replay_lead_to_the_same_continuation(lines, others, seed, data):
    original, snapshots = run(recorded(walk(seed), ScriptedPolicy(lines)))
    turn = data.draw(st.integers(0, len(original.turns) - 1))
    (restored,) = run(fork(scripts(others), original, turn, 1, snapshot=snapshots[turn]))
    (replayed,) = run(fork(scripts(others), original, turn, 1))
    assert what_happened(restored) == what_happened(replayed)


@given(lines, st.lists(lines, min_size=2, max_size=4), st.integers(0, 20), st.booleans(), st.data())
def test_continuations_do_not_disturb_each_other(lines, others, seed, by_snapshot, data):
    original, snapshots = run(recorded(walk(seed), ScriptedPolicy(lines)))
    before = what_happened(original)
    turn = data.draw(st.integers(0, len(original.turns) - 1))
    snapshot = snapshots[turn] if by_snapshot else None
    together = run(fork(scripts(*others), original, turn, len(others), snapshot=snapshot))
    for continuation, own in zip(together, others, strict=True):
        (alone,) = run(fork(scripts(own), original, turn, 1, snapshot=snapshot))
        assert what_happened(continuation) == what_happened(alone)
    assert what_happened(original) == before


def test_continuations_share_the_turns_before_and_the_opening():
    original = run(played(walk(), ScriptedPolicy(LINES)))
    for continuation in run(fork(scripts(*[LINES] * 3), original, 2, 3)):
        assert continuation.opening is original.opening
        assert all(mine is theirs for mine, theirs in zip(continuation.turns[:2], original.turns, strict=False))
        assert continuation.turns[2] is not original.turns[2]


def test_a_continuation_can_be_forked_again():
    original = run(played(walk(), ScriptedPolicy(LINES)))
    (branch,) = run(fork(scripts(["left"] * 6), original, 1, 1))
    (twig,) = run(fork(scripts(["right"] * 6), branch, 3, 1))
    assert [turn.reply.message.content for turn in twig.turns[:4]] == ["left", "left", "left", "right"]
    assert twig.turns[:3] == branch.turns[:3]


# What the policy and the observers are told


def test_the_policy_sees_all_that_was_said_before():
    class Attentive(ScriptedPolicy):
        async def reply(self, conversation):
            seen.append(tuple(conversation))
            return await super().reply(conversation)

    seen = []
    original = run(played(walk(), ScriptedPolicy(LINES)))
    run(fork(lambda *_: Attentive(["left"]), original, 2, 1))
    assert seen[0] == original.messages[: 2 + 2 * 2]
    assert [message.role for message in seen[0]] == ["system", "user", "assistant", "user", "assistant", "user"]


def test_only_the_turns_that_are_played_are_reported():
    async def observed():
        async with registry.opened("Walk") as environment:
            return await play(
                ScriptedPolicy(["left", "left"]),
                environment,
                walk(),
                on_turn=events.append,
                on_opening=events.append,
                beginning=Beginning.of(original, 2),
            )

    events = []
    original = run(played(walk(), ScriptedPolicy(LINES)))
    continuation = run(observed())
    assert events[0].messages == original.opening
    assert tuple(events[1:]) == continuation.turns[2:]


def test_the_limit_of_turns_counts_those_before():
    original = run(played(walk(), ScriptedPolicy(LINES)))
    (continuation,) = run(fork(scripts(["left"] * 6), original, 2, 1, Limits(max_turns=3)))
    assert (len(continuation.turns), continuation.stop) == (3, StopReason.MAX_TURNS)


def test_an_episode_that_failed_or_was_cut_off_goes_on_after_its_last_turn():
    class Breaks(ScriptedPolicy):
        async def reply(self, conversation):
            if len(conversation) > 4:
                raise OSError("refused")
            return Reply(assistant("left"))

    original = run(played(walk(), Breaks([])))
    assert original.failure.cause == "policy_raised"
    (continuation,) = run(fork(scripts(["left"] * 6), original, 2, 1))
    assert continuation.stop is StopReason.TRUNCATED
    assert continuation.turns[:2] == original.turns


# Where it can't be the same again


# place 0, left with a gust of -1: place -2; right with a gust of (2 - 2) % 3 - 1 = -1: place -2
@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("opening", "its first observation: it was 'place 0 at turn 0', now it is 'another place'"),
        ("observation", "the observation of turn 1: it was 'place -2 at turn 2', now it is 'fog'"),
        ("reward", "the reward of turn 1: it was -0.2, now it is 9.5"),
        ("end", "turn 1: it was the episode going on, now it is its end"),
    ],
)
def test_a_replay_that_diverges_is_a_typed_failure_that_says_where(change, where):
    original = run(played(walk(0, ChangedWalk, change=change), ScriptedPolicy(LINES)))
    (continuation,) = run(fork(scripts(LINES), original, 3, 1))
    assert continuation.failure.cause == "environment_diverged"
    assert continuation.failure.message == f"the replay of environment 'ChangedWalk' diverged at {where}"
    assert continuation.success is None
    assert continuation.turns == original.turns[:3]


def test_what_changes_only_later_does_no_harm():
    original = run(played(walk(0, ChangedWalk, change="observation"), ScriptedPolicy(LINES)))
    (continuation,) = run(fork(scripts(["left"]), original, 1, 1))
    assert not continuation.failed


def test_a_restore_that_hangs_ends_by_its_deadline():
    original, snapshots = run(recorded(walk(0, HangsInRestore), ScriptedPolicy(LINES)))
    (late,) = run(fork(scripts(LINES), original, 1, 1, Limits(reset_seconds=2), snapshots[1]))
    assert late.failure.cause == "environment_timed_out"
    assert late.failure.message == "restore of environment 'HangsInRestore' gave no answer within 2 s"
    assert late.turns == original.turns[:1]


def test_one_continuation_that_fails_leaves_the_others_alone():
    class Refused:
        async def reply(self, conversation):
            raise OSError("refused")

    original = run(played(walk(), ScriptedPolicy(LINES)))
    forked = run(fork(lambda e, t, number: ScriptedPolicy(LINES) if number else Refused(), original, 1, 2))
    assert [continuation.failed for continuation in forked] == [True, False]


def test_an_environment_that_is_not_deterministic_needs_a_snapshot():
    original, snapshots = run(recorded(walk(0, MoodyWalk), ScriptedPolicy(LINES)))
    with pytest.raises(ConfigurationError, match="'MoodyWalk' is not deterministic: go on from a snapshot, not by a"):
        run(fork(scripts(LINES, LINES), original, 1, 2))
    (continuation,) = run(fork(scripts(LINES[1:]), original, 1, 1, snapshot=snapshots[1]))
    assert what_happened(continuation) == what_happened(original)


def test_a_snapshot_is_of_no_use_to_an_environment_that_takes_none():
    original = run(played(walk(0, NoSnapshots), ScriptedPolicy(LINES)))
    with pytest.raises(ConfigurationError, match="^NoSnapshots can't be restored$"):
        run(fork(scripts(LINES), original, 1, 1, snapshot=b"{}"))
    with pytest.raises(ConfigurationError, match="^NoSnapshots can't be snapshot$"):
        run(recorded(walk(0, NoSnapshots), ScriptedPolicy(LINES)))


def test_there_must_be_such_a_turn():
    ended = run(played(walk(), ScriptedPolicy(LINES)))
    assert (ended.stop, len(ended.turns)) == (StopReason.TRUNCATED, 6)
    for turn in (-1, 6):
        with pytest.raises(ConfigurationError, match=f"'walk-0' can go on from turn 0 to 5; given: {turn}"):
            run(fork(scripts(LINES), ended, turn, 1))
    open_still = run(played(walk(), ScriptedPolicy(LINES[:2])))
    with pytest.raises(ConfigurationError, match="can go on from turn 0 to 2; given: 3"):
        run(fork(scripts(LINES), open_still, 3, 1))
    with pytest.raises(ConfigurationError, match="a fork has at least 1 continuation; given: 0"):
        run(fork(scripts(LINES), ended, 1, 0))


def test_an_episode_that_never_began_can_not_be_forked():
    failed = run(played(Task("t", "double-hangsinreset"), ScriptedPolicy([]), Limits(reset_seconds=1)))
    with pytest.raises(DataError, match="the trajectory of task 't' failed before its first observation"):
        run(fork(scripts([]), failed, 0, 1))


# Snapshots on the way


def test_a_recorder_keeps_the_state_before_each_turn_and_none_after_the_end():
    trajectory, snapshots = run(recorded(walk(), ScriptedPolicy(LINES)))
    assert len(snapshots) == len(trajectory.turns) == 6
    assert [b'"turn": %d' % turn in snapshot for turn, snapshot in enumerate(snapshots)] == [True] * 6


def test_after_a_restore_a_recorder_counts_from_there():
    async def recorded_again():
        async with registry.opened("Walk") as environment:
            recorder = SnapshotRecorder(environment)
            beginning = Beginning.of(original, 2, snapshots[2])
            await play(ScriptedPolicy(LINES[2:4]), recorder, walk(), beginning=beginning)
            return recorder.snapshots

    original, snapshots = run(recorded(walk(), ScriptedPolicy(LINES)))
    assert run(recorded_again()) == snapshots[2:5]


# A real environment, on threads and in worker processes


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_babyai_goes_on_from_a_snapshot_and_by_a_replay(isolation):
    pytest.importorskip("minigrid", reason='minigrid is not installed: pip install "openmanus-rl[babyai]"')
    task = Task("t", "babyai", {"level": "GoToLocal"}, seed=3)
    opened = partial(registry.opened, isolation=isolation)
    async with opened("babyai") as environment:
        recorder = SnapshotRecorder(environment)
        original = await play(ExpertPolicy(recorder), recorder, task)
    assert original.success
    for snapshot in (recorder.snapshots[2], None):
        (again,) = await fork(lambda e, t, n: ExpertPolicy(e), original, 2, 1, snapshot=snapshot, opened=opened)
        assert what_happened(again) == what_happened(original)
        assert again.turns[1] is original.turns[1]
