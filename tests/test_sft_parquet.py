"""Which trajectories and which replies are written to be imitated."""

from __future__ import annotations

import logging

import pyarrow.parquet
import pytest

from agentgym_rl.data.sft_parquet import ROWS_AT_ONCE, can_be_imitated, write_sft
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message, ToolCall, assistant, system, user
from agentgym_rl.policy import Reply, SampledTokens
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn

NO_CALLS = {"tool_calls": None, "tool_call_id": None}


def turn(said: str, seen: str = "", valid: bool = True, complete: bool = True) -> Turn:
    return Turn(Reply(assistant(said), complete), (user(seen),) if seen else (), 0.0, valid)


def trajectory(*turns: Turn, failure: Failure | None = None, id: str = "t1") -> Trajectory:
    stop = StopReason.FAILED if failure else StopReason.TERMINATED
    return Trajectory(Task(id, "maze"), (system("rules"), user("a wall")), turns, stop, failure=failure)


def rows_of(path) -> list[dict]:
    return pyarrow.parquet.read_table(path).to_pylist()


def test_a_trajectory_becomes_one_row_with_its_replies_marked(tmp_path):
    assert write_sft([trajectory(turn("left", "a door"), turn("open"))], tmp_path / "sft.parquet") == 1
    assert rows_of(tmp_path / "sft.parquet") == [
        {
            "messages": [
                {"role": "system", "content": "rules", "loss": False, "token_ids": None, **NO_CALLS},
                {"role": "user", "content": "a wall", "loss": False, "token_ids": None, **NO_CALLS},
                {"role": "assistant", "content": "left", "loss": True, "token_ids": None, **NO_CALLS},
                {"role": "user", "content": "a door", "loss": False, "token_ids": None, **NO_CALLS},
                {"role": "assistant", "content": "open", "loss": True, "token_ids": None, **NO_CALLS},
            ],
            "task_id": "t1",
            "environment": "maze",
        }
    ]


def test_the_ids_of_a_sampled_reply_stand_beside_its_text(tmp_path):
    sampled = Turn(Reply(assistant("left"), True, SampledTokens((7, 9, 2), (-1.0, -2.0, 0.0))), (user("a door"),), 0.0)
    write_sft([trajectory(sampled, turn("open"))], tmp_path / "sft.parquet")
    messages = rows_of(tmp_path / "sft.parquet")[0]["messages"]
    assert [message["token_ids"] for message in messages] == [None, None, [7, 9, 2], None, None]


def test_half_a_surrogate_pair_is_written_as_its_escape(tmp_path):
    calling = Turn(Reply(assistant("a \ud83d", (ToolCall("go", {"to": "\ud83d é"}, "c1"),))), (user("\ud83d"),), 0.0)
    assert write_sft([trajectory(calling)], tmp_path / "sft.parquet") == 1
    (row,) = rows_of(tmp_path / "sft.parquet")
    assert [message["content"] for message in row["messages"][2:]] == ["a \\ud83d", "\\ud83d"]
    assert row["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"to": "\\ud83d é"}'


def test_replies_that_were_not_understood_or_were_cut_off_are_context_only(tmp_path):
    mixed = trajectory(turn("hm", "what?", valid=False), turn("I thi", "what?", complete=False), turn("left"))
    write_sft([mixed], tmp_path / "sft.parquet")
    flags = [(m["content"], m["loss"]) for m in rows_of(tmp_path / "sft.parquet")[0]["messages"]]
    assert [flag for flag in flags if flag[0] in ("hm", "I thi", "left")] == [
        ("hm", False),
        ("I thi", False),
        ("left", True),
    ]


def test_what_can_not_be_imitated_is_left_out_and_counted_in_a_warning(tmp_path, caplog):
    crashed = Failure("environment_crashed", "the process is gone")
    given = [
        trajectory(turn("left"), failure=crashed, id="a"),
        trajectory(turn("left"), failure=crashed, id="b"),
        trajectory(turn("hm", valid=False), id="c"),
        trajectory(id="d"),
        trajectory(turn("left"), id="e"),
    ]
    with caplog.at_level(logging.WARNING):
        assert write_sft(given, tmp_path / "sft.parquet") == 1
    assert [row["task_id"] for row in rows_of(tmp_path / "sft.parquet")] == ["e"]
    assert caplog.messages == [
        f"{tmp_path / 'sft.parquet'}: 4 of 5 trajectories left out "
        "(2 failed: environment_crashed, 2 without a valid reply)"
    ]


def test_nothing_is_written_when_nothing_can_be_imitated(tmp_path):
    with pytest.raises(DataError, match=r"no trajectory to write to .*; left out: 1 without a valid reply"):
        write_sft([trajectory()], tmp_path / "sft.parquet")
    with pytest.raises(DataError, match="left out: none"):
        write_sft([], tmp_path / "sft.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_reply_that_is_marked_as_untrained_is_context_only(tmp_path):
    marked = Turn(Reply(assistant("a mistake")), (user("ouch"),), 0.0, info={"trained": False})
    write_sft([trajectory(marked, turn("left"))], tmp_path / "sft.parquet")
    flags = {m["content"]: m["loss"] for m in rows_of(tmp_path / "sft.parquet")[0]["messages"]}
    assert (flags["a mistake"], flags["left"]) == (False, True)
    assert not can_be_imitated(trajectory(marked))


def test_tool_calls_are_written_as_chat_dictionaries_that_read_back_equal(tmp_path):
    call = ToolCall("go", {"where": ["left", 2], "fast": None}, "c1")
    calling = Turn(Reply(assistant("", (call,))), (Message("tool", "done", (), "c1"),), 0.0)
    given = trajectory(calling)
    write_sft([given], tmp_path / "sft.parquet")
    read = [Message.from_chat(cell) for cell in rows_of(tmp_path / "sft.parquet")[0]["messages"]]
    assert tuple(read) == given.messages


def test_more_rows_than_are_held_at_once_are_all_written_in_their_order(tmp_path):
    many = [trajectory(turn("left"), id=f"t{number}") for number in range(2 * ROWS_AT_ONCE + 1)]
    assert write_sft(iter(many), tmp_path / "sft.parquet") == len(many)
    assert [row["task_id"] for row in rows_of(tmp_path / "sft.parquet")] == [one.task.id for one in many]
