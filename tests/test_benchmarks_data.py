"""The benchmarks of data pipeline and judge run, at a size of seconds, and their two ways give the same; no figure is
judged here."""

import json

import pytest

from agentgym_rl.data.filter_across import exact_duplicates
from agentgym_rl.data.store import TrajectoryStore
from benchmarks.data import judge, ours, pipeline, plain
from benchmarks.data.slow_server import serving
from benchmarks.data.workload import chunks, record


def test_both_ways_give_equally_many_at_every_step(tmp_path):
    for way in (ours, plain):
        assert way.write(tmp_path, 40)[0] == 40
    for step in pipeline.STEPS[1:]:
        assert getattr(ours, step)(tmp_path) == getattr(plain, step)(tmp_path), step


def test_one_in_twenty_is_a_copy_and_one_in_twenty_nearly_one(tmp_path):
    ours.write(tmp_path, 40)
    check = exact_duplicates("", TrajectoryStore(tmp_path / "store"))
    rows = [row for some in TrajectoryStore(tmp_path / "store").rows() for row in some]
    assert [row.id for row in rows if check(row)] == ["r7", "r27"]
    assert 36 <= ours.near(tmp_path) <= 38  # without 7, 27, and 13, 33, which the index may miss


def test_a_record_is_drawn_from_its_number_alone():
    assert [one for some in chunks(300) for one in some][299] == record(299)


def test_a_step_runs_in_a_process_of_its_own(tmp_path):
    cost = pipeline.measured("plain", "write", tmp_path, 4)
    assert cost.given == 4
    assert 0 < cost.mib_before <= cost.mib_peak
    assert cost.cpu > 0


def test_the_pipeline_leaves_a_row_for_each_step_way_and_size(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pipeline, "measured", pipeline._run)  # 21 processes would take half a minute to begin
    result = pipeline.main(["--size", "40", "--sizes", "20", "--out", str(tmp_path)])
    steps = {(row["step"], row["way"], row["trajectories"]) for row in result.rows}
    both = {(step, way, 40) for step in pipeline.STEPS for way in ("store", "JSON Lines")}
    assert steps == both | {(step, "store", 20) for step in pipeline.STEPS}
    assert json.loads((tmp_path / "pipeline.json").read_text())["verdicts"]
    assert "peak memory at 40 against 20" in capsys.readouterr().out


def test_the_judge_is_measured_beside_its_peers(tmp_path, capsys):
    options = ["--requests", "8", "--concurrency", "4", "--latency-seconds", "0.01", "--repeats", "1"]
    result = judge.main([*options, "--out", str(tmp_path)])
    assert [row["client"] for row in result.rows][:2] == ["judge", "judge that keeps answers"]
    assert result.verdicts[0].what == "judge: share of 400 requests/s"
    assert "| client |" in capsys.readouterr().out


async def test_the_slow_server_answers_what_a_judge_reads(tmp_path):
    with serving(0.01) as url:
        async with judge.opened(judge.JudgeSettings(url, "m")) as client:
            judged = await client.absolute(record(1).trajectory)
    assert judged.scores == (pytest.approx(0.7),)
