"""Whole episodes of an evaluation under way: none is lost by a stop, none is there twice, and their order is fixed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from doubles_cli import Stairs, stairs

from agentgym_rl.data.trajectory_json import read_trajectories
from agentgym_rl.errors import DataError
from agentgym_rl.evaluation.policies import policies
from agentgym_rl.evaluation.rows_file import RowsFile
from agentgym_rl.evaluation.run import evaluate
from agentgym_rl.evaluation.trajectories_file import TrajectoriesFile
from agentgym_rl.messages import assistant
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn


def said(task: str, *words: str) -> Trajectory:
    turns = tuple(Turn(Reply(assistant(word)), (), 0.0) for word in words)
    return Trajectory(Task(task, "stairs"), (), turns, StopReason.TERMINATED)


def evaluated(tasks: list[Task], path: Path, rows: Path, episodes: int = 1) -> None:
    kept = TrajectoriesFile(path, go_on=True)
    with policies("expert") as make_policy:
        asyncio.run(evaluate(make_policy, tasks, None, 8, episodes, rows_file=rows, trajectories=kept))


def test_trajectories_are_published_in_the_order_asked_for_and_not_before(tmp_path: Path) -> None:
    kept = TrajectoriesFile(tmp_path / "t.jsonl", go_on=False)
    for task, episode, word in [("b", 1, "3"), ("a", 0, "1"), ("b", 0, "2")]:
        kept.append(said(task, word), episode)
    assert not (tmp_path / "t.jsonl").exists()
    kept.publish([("a", 0), ("b", 0), ("b", 1)])
    assert [t.turns[0].reply.message.content for t in read_trajectories(tmp_path / "t.jsonl")] == ["1", "2", "3"]
    kept.discard()
    assert [file.name for file in tmp_path.iterdir()] == ["t.jsonl"]


def test_a_later_run_goes_on_with_whole_lines_and_the_newer_of_two_stands(tmp_path: Path) -> None:
    first = TrajectoriesFile(tmp_path / "t.jsonl", go_on=False)
    first.append(said("a", "old"), 0)
    first.append(said("ä", "up", "down"), 0)
    with (tmp_path / "t.jsonl.episodes").open("a") as file:
        file.write('0 {"task": {"id": "c"')
    later = TrajectoriesFile(tmp_path / "t.jsonl", go_on=True)
    assert [key in later for key in [("a", 0), ("ä", 0), ("a", 1), ("c", 0)]] == [True, True, False, False]
    later.append(said("a", "new"), 0)
    later = TrajectoriesFile(tmp_path / "t.jsonl", go_on=True)
    later.publish([("ä", 0), ("a", 0)])
    assert read_trajectories(tmp_path / "t.jsonl") == [said("ä", "up", "down"), said("a", "new")]


def test_a_new_run_throws_away_what_an_earlier_one_left(tmp_path: Path) -> None:
    TrajectoriesFile(tmp_path / "t.jsonl", go_on=False).append(said("a"), 0)
    assert ("a", 0) not in TrajectoriesFile(tmp_path / "t.jsonl", go_on=False)


@pytest.mark.parametrize("line", ["nonsense", "one {}", '1 {"task": {}}', "1 []"])
def test_a_file_of_another_kind_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "t.jsonl.episodes").write_text(line + "\n")
    with pytest.raises(DataError, match=r"line 1 of .*t\.jsonl\.episodes is no episode; expected its number and JSON"):
        TrajectoriesFile(tmp_path / "t.jsonl", go_on=True)


def test_a_stop_between_an_episode_and_its_row_leaves_one_trajectory(tmp_path: Path) -> None:
    path, rows = tmp_path / "t.jsonl", tmp_path / "rows"
    RowsFile(rows, {})
    TrajectoriesFile(path, go_on=True).append(said("a", "from before"), 0)  # its row was not written any more
    evaluated([stairs("a"), stairs("b")], path, rows)
    assert [t.task.id for t in read_trajectories(path)] == ["a", "b"]
    assert read_trajectories(path)[0].turns[0].reply.message.content == "up"


def test_an_episode_whose_trajectory_is_missing_is_played_again(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    with policies("expert") as make_policy:
        asyncio.run(evaluate(make_policy, [stairs("a"), stairs("b")], rows_file=rows))
    Stairs.played.clear()
    evaluated([stairs("a"), stairs("b")], tmp_path / "t.jsonl", rows)
    assert sorted(Stairs.played) == ["a", "b"]
    Stairs.played.clear()
    evaluated([stairs("a"), stairs("b")], tmp_path / "t.jsonl", rows, episodes=2)
    assert sorted(Stairs.played) == ["a", "b"]
    assert [t.task.id for t in read_trajectories(tmp_path / "t.jsonl")] == ["a", "a", "b", "b"]


def test_of_a_failed_episode_that_is_played_again_the_new_one_stands(tmp_path: Path) -> None:
    path, rows = tmp_path / "t.jsonl", tmp_path / "rows"
    failed = Trajectory(stairs("a"), (), (), StopReason.FAILED, failure=Failure("environment_raised", "a stair broke"))
    RowsFile(rows, {})
    TrajectoriesFile(path, go_on=True).append(failed, 0)
    evaluated([stairs("a")], path, rows)
    assert [t.success for t in read_trajectories(path)] == [True]
