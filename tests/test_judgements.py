"""The file of judgements: what is done, what is asked again, and who may write there."""

import fcntl
import json
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from agentgym_rl.errors import ConfigurationError, DataError, JudgeFailed, Manner, NoVerdict
from agentgym_rl.judge.judgements import Judgement, JudgementsFile, failure_of, missing, only_judge

JUDGED = Judgement(0, "t", "maze", "digest", "judge", "m", True, 0.7, "fine", tries=2)
REFUSED = replace(JUDGED, number=1, score=None, reason="", failure="judge_refused")
UNREADABLE = replace(REFUSED, number=2, failure="judge_unreadable")
DOWN = replace(REFUSED, number=3, failure="judge_crashed")
EPISODE = replace(REFUSED, number=4, failure="judge_raised", tries=0)
"""Its own judge failed while it was played."""


def written(tmp_path, *rows):
    path = tmp_path / "judged.jsonl"
    path.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
    return path


def opened(path, tries=2):
    return JudgementsFile(path, "judge", tries)


def done(path, tries=2):
    return sorted(opened(path, tries).done)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (JudgeFailed("x"), "judge_raised"),
        (JudgeFailed("x", Manner.TIMED_OUT), "judge_timed_out"),
        (JudgeFailed("x", no_verdict=NoVerdict.REFUSED), "judge_refused"),
        (JudgeFailed("x", no_verdict=NoVerdict.UNREADABLE), "judge_unreadable"),
    ],
)
def test_a_row_says_of_a_failure_whether_another_day_may_bring_a_verdict(error, cause):
    assert failure_of(error) == cause


def test_done_is_what_has_a_score_and_what_will_never_have_one(tmp_path):
    path = written(tmp_path, JUDGED, REFUSED, UNREADABLE, DOWN, EPISODE)
    assert done(path) == [0, 1, 2]


def test_more_tries_may_bring_what_could_not_be_read_and_not_what_was_refused(tmp_path):
    path = written(tmp_path, JUDGED, REFUSED, UNREADABLE)
    assert [done(path, tries) for tries in (1, 2, 3)] == [[0, 1, 2], [0, 1, 2], [0, 1]]


def test_of_a_judge_that_never_gave_a_verdict_nothing_is_done(tmp_path):
    assert done(written(tmp_path, REFUSED, UNREADABLE)) == []


def test_missing_is_what_was_asked_for_in_vain_and_may_come(tmp_path):
    assert missing([JUDGED, REFUSED, UNREADABLE, DOWN, EPISODE]) == [DOWN]
    assert missing([REFUSED, UNREADABLE, DOWN, EPISODE]) == [REFUSED, UNREADABLE, DOWN]
    assert missing([EPISODE]) == missing([]) == []


def test_of_two_rows_about_a_trajectory_the_newer_stands(tmp_path):
    newer = replace(JUDGED, score=0.2)
    assert opened(written(tmp_path, JUDGED, replace(DOWN, number=0), newer)).done == {0: newer}
    assert opened(written(tmp_path, JUDGED, replace(DOWN, number=0))).done == {}


def test_a_last_line_that_was_cut_off_is_dropped_and_written_over(tmp_path):
    path = written(tmp_path, JUDGED, UNREADABLE)
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    file = opened(path)
    assert sorted(file.rows) == [0]
    file.append([UNREADABLE])
    assert path.read_bytes() == whole


def test_whatever_a_machine_that_went_down_left_after_a_judgement_is_dropped(tmp_path):
    path = written(tmp_path, JUDGED)
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0\0\0")
    assert sorted(opened(path).rows) == [0]
    assert path.read_bytes() == whole


@pytest.mark.parametrize("left", [5, len('{"number": '), 60])
def test_a_first_line_that_was_cut_off_is_dropped_and_written_over(tmp_path, left):
    path = written(tmp_path, JUDGED)
    whole = path.read_bytes()
    path.write_bytes(whole[:left])
    file = opened(path)
    assert (file.rows, path.read_bytes()) == ({}, b"")
    file.append([JUDGED])
    assert path.read_bytes() == whole


@pytest.mark.parametrize("text", [b'{"precious": 1}', b"{'number': 1}", b"notes", b'"\xff"', b'{"numb": 1}'])
def test_a_line_without_an_end_that_is_somebody_elses_stays(tmp_path, text):
    (tmp_path / "notes").write_bytes(text)
    with pytest.raises(DataError, match="notes holds no judgements, and something else: give another file"):
        opened(tmp_path / "notes")
    assert (tmp_path / "notes").read_bytes() == text


def test_rows_are_held_to_the_trajectories_and_named_by_their_line(tmp_path):
    file = opened(written(tmp_path, JUDGED, DOWN))
    file.require_about(3, "digest")
    for digest in ("another", None):
        with pytest.raises(
            ConfigurationError, match="line 2 is about trajectory 3, of task 't', which is not the same"
        ):
            file.require_about(3, digest)
    with pytest.raises(ConfigurationError, match="line 2 is about trajectory 0"):
        opened(written(tmp_path, JUDGED, replace(JUDGED, trajectory="another")))


NUMBERED = json.dumps({**asdict(JUDGED), "number": "0"})


@pytest.mark.parametrize("line", ["no json", "[]", '{"task": "a"}', json.dumps({"number": 0, "unknown": 1}), NUMBERED])
def test_a_line_that_is_no_judgement_is_named(tmp_path, line):
    (tmp_path / "judged.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=r"line 1 of .*judged.jsonl is no judgement"):
        opened(tmp_path / "judged.jsonl")


def test_a_row_without_tries_as_older_files_have_it_can_be_read(tmp_path):
    row = asdict(JUDGED)
    del row["tries"]
    (tmp_path / "judged.jsonl").write_text(json.dumps(row) + "\n")
    assert done(tmp_path / "judged.jsonl") == [0]


def refused():
    return pytest.raises(ConfigurationError, match=r"another process is judging, and writes to .*judged\.jsonl")


def test_one_judge_at_a_time_writes_to_a_file_also_after_it_was_replaced(tmp_path, monkeypatch):
    path = written(tmp_path, JUDGED)
    with only_judge(path):
        with refused(), only_judge(path):
            pass
        opened(path).publish([JUDGED, UNREADABLE])
        monkeypatch.chdir(tmp_path)
        with refused(), only_judge(Path("judged.jsonl")):
            pass
    with only_judge(path):
        assert done(path) == [0, 2]
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_that_was_opened_before_its_holder_put_it_away_is_none(tmp_path, monkeypatch):
    path, flock = tmp_path / "judged.jsonl", fcntl.flock
    first = only_judge(path)
    first.__enter__()

    def late(held, how):
        monkeypatch.setattr("fcntl.flock", flock)
        first.__exit__(None, None, None)
        third.enter_context(only_judge(path))
        flock(held, how)

    monkeypatch.setattr("fcntl.flock", late)
    with ExitStack() as third, refused(), only_judge(path):
        pass
    assert list(tmp_path.iterdir()) == []
