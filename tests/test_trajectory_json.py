"""A trajectory read back equals the trajectory written."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import trajectories

from agentgym_rl.data.trajectory_json import from_dict, read_trajectories, to_dict, to_line
from agentgym_rl.errors import DataError
from agentgym_rl.messages import assistant, user
from agentgym_rl.policy import Reply, SampledTokens
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason, Trajectory, Turn


@settings(max_examples=60, deadline=None)
@given(trajectory=trajectories)
def test_a_trajectory_survives_json(trajectory):
    assert from_dict(json.loads(json.dumps(to_dict(trajectory)))) == trajectory


@settings(max_examples=15, deadline=None)
@given(written=st.lists(trajectories, max_size=3))
def test_a_file_of_lines_holds_the_trajectories_in_their_order(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("lines") / "trajectories.jsonl"
    path.write_text("".join(map(to_line, written)), encoding="utf-8")
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


def test_the_ids_and_log_probs_of_a_reply_survive_bit_for_bit(tmp_path):
    sampled = SampledTokens((151644, 7, 0), (-0.1, -1.1754943508222875e-38, float("-inf")))
    turn = Turn(Reply(assistant("up"), False, sampled), (), 0.0)
    (tmp_path / "t.jsonl").write_text(to_line(Trajectory(Task("t", "stairs"), (), (turn,), StopReason.TOKEN_BUDGET)))
    (read,) = read_trajectories(tmp_path / "t.jsonl")
    assert read.turns[0].reply == Reply(assistant("up"), False, sampled)


def test_info_that_is_no_json_is_refused():
    turn = Turn(Reply(assistant("up")), (), 0.0, info={"grid": {1, 2}})
    trajectory = Trajectory(Task("t", "stairs"), (), (turn,), StopReason.TERMINATED)
    with pytest.raises(DataError, match="trajectory of task 't' can't be written as JSON: Object of type set"):
        to_line(trajectory)
