"""A trajectory read back equals the trajectory written."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.data.trajectory_json import append_trajectory, from_dict, read_trajectories, to_dict
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message, ToolCall, assistant, user
from agentgym_rl.policy import Reply, SampledTokens
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn

numbers = st.floats(allow_nan=False)
flat = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | numbers | st.text(), max_size=2)
calls = st.lists(st.builds(ToolCall, st.text(), flat, st.text()), max_size=2).map(tuple)
roles = st.sampled_from(["system", "user", "assistant", "tool"])
messages = st.builds(Message, roles, st.text(), calls, st.none() | st.text())
tokens = st.lists(st.tuples(st.integers(0, 10**6), numbers), max_size=4).map(
    lambda pairs: SampledTokens(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))
)
replies = st.builds(Reply, messages, st.booleans(), st.none() | tokens)
several = st.lists(messages, max_size=2).map(tuple)
turns = st.builds(Turn, replies, several, numbers, st.booleans(), numbers, numbers, flat)
trajectories = st.builds(
    Trajectory,
    st.builds(Task, id=st.text(min_size=1), environment=st.just("stairs"), arguments=flat, seed=st.integers()),
    several,
    st.lists(turns, max_size=2).map(tuple),
    st.sampled_from(StopReason),
    st.none() | st.booleans(),
    st.none() | st.builds(Failure, st.text(), st.text(), st.text()),
    st.text(),
)


@settings(max_examples=60, deadline=None)
@given(trajectory=trajectories)
def test_a_trajectory_survives_json(trajectory):
    assert from_dict(json.loads(json.dumps(to_dict(trajectory)))) == trajectory


@settings(max_examples=15, deadline=None)
@given(written=st.lists(trajectories, max_size=3))
def test_a_file_holds_trajectories_in_the_order_they_were_appended(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("lines") / "trajectories.jsonl"
    path.touch()
    for trajectory in written:
        append_trajectory(trajectory, path)
    assert read_trajectories(path) == written


def one_turn(**changes):
    turn = Turn(Reply(assistant("up")), (user("top"),), 1.0)
    return {
        **to_dict(Trajectory(Task("t", "stairs"), (user("foot"),), (turn,), StopReason.TERMINATED, True)),
        **changes,
    }


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({key: value for key, value in one_turn().items() if key != "turns"}, "a trajectory needs the field 'turns'"),
        (one_turn(colour="red"), "not a trajectory: .*'colour'"),
        (one_turn(stop="bored"), "not a trajectory: 'bored' is not a valid StopReason"),
        (one_turn(task={"id": "", "environment": "e"}), "a task needs a non-empty id"),
        (one_turn(turns=3), "not a trajectory"),
    ],
)
def test_what_is_no_trajectory_is_refused_with_the_reason(row, message):
    with pytest.raises(DataError, match=message):
        from_dict(row)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 2 of .* is no JSON"),
        ("3", r"line 2 of .*: a trajectory is a JSON object; given: int"),
        ("{}", r"line 2 of .*: a trajectory needs the field 'failure'; given: no fields"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(one_turn()) + "\n" + line + "\n")
    with pytest.raises(DataError, match=message):
        read_trajectories(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        read_trajectories(tmp_path / "none.jsonl")


def test_info_that_is_no_json_is_refused_and_nothing_is_written(tmp_path):
    turn = Turn(Reply(assistant("up")), (), 0.0, info={"grid": {1, 2}})
    trajectory = Trajectory(Task("t", "stairs"), (), (turn,), StopReason.TERMINATED)
    with pytest.raises(DataError, match="trajectory of task 't' can't be written as JSON: Object of type set"):
        append_trajectory(trajectory, tmp_path / "t.jsonl")
    assert not (tmp_path / "t.jsonl").exists()
