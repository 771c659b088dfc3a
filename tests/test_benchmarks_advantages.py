"""The benchmark of the estimators runs, at a size of milliseconds, on the work that it says; no figure is judged."""

import json
import xml.etree.ElementTree as ElementTree

import pytest
import torch

from benchmarks.advantages import estimators
from benchmarks.advantages.workload import GROUP, rows_of, trajectories
from verl_ext.advantages.registry import ESTIMATORS

TINY = "--trajectories 16 --tokens 64 128 --turns 4 --repeats 1"


def test_it_times_every_estimator_and_leaves_a_table_its_data_and_a_plot(tmp_path, capsys):
    threads = torch.get_num_threads()
    result = estimators.main([*TINY.split(), "--out", str(tmp_path)])
    assert torch.get_num_threads() == threads
    assert {row["estimator"] for row in result.rows} >= {"verl grpo", *ESTIMATORS}
    assert all(row["CPU ms"] > 0 for row in result.rows)
    row = json.loads((tmp_path / "estimators.json").read_text())
    assert row["rows"] == [dict(found) for found in result.rows]
    assert row["settings"]["tokens"] == [64, 128]
    assert capsys.readouterr().out.strip() == (tmp_path / "estimators.md").read_text().strip()
    drawn = ElementTree.parse(tmp_path / "estimators.svg")
    assert len(drawn.findall(".//{http://www.w3.org/2000/svg}polyline")) == len(result.rows)


def test_every_estimator_without_a_critic_has_a_target(tmp_path):
    result = estimators.main([*TINY.split(), "--out", str(tmp_path)])
    assert {verdict.what.partition(":")[0] for verdict in result.verdicts} == set(ESTIMATORS) - {
        "trajectory_gae",
        "turn_gae",
    }


def test_the_trajectories_have_the_size_that_was_asked_for():
    batch = trajectories(40, tokens=500, turns=7, seed=0)  # 7 does not divide 500
    assert batch.turn_BR.shape == (40, 500)
    assert batch.turns_B[0] == 7 == batch.turns_B.max()
    assert batch.turns_B.min() == 4  # half as many, rounded up
    assert [len(keys) for keys in batch.state_keys] == batch.turns_B.tolist()
    assert torch.bincount(batch.group_B).tolist() == [GROUP] * 5


def test_every_turn_is_sampled_without_a_gap_and_earns_on_its_last_token_alone():
    batch = trajectories(16, tokens=200, turns=5, seed=1)
    for row, turns in enumerate(batch.turns_B.tolist()):
        for turn in range(turns):
            places = (batch.turn_BR[row] == turn).nonzero().flatten().tolist()
            assert places == list(range(places[0], places[-1] + 1))
            assert batch.rewards_BR[row, places].count_nonzero() == 1
            assert batch.rewards_BR[row, places[-1]] > 0
    assert batch.rewards_BR[~batch.mask_BR].count_nonzero() == 0


def test_verl_is_timed_on_the_same_work():
    timed = estimators.calls(trajectories(16, tokens=200, turns=5, seed=1))
    for name, peer in estimators.VERL.items():
        if name != "trajectory_gae":  # the rows of verl know of no trajectory that was cut off
            torch.testing.assert_close(timed[name]()[0], timed[f"verl {peer}"]()[0], rtol=1e-4, atol=1e-4)


def test_the_same_seed_gives_the_same_trajectories():
    first, same, other = (trajectories(8, tokens=100, turns=4, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.rewards_BR, same.rewards_BR)
    assert first.state_keys == same.state_keys
    assert not torch.equal(first.rewards_BR, other.rewards_BR)
    assert torch.equal(rows_of(first).mask_BR.bool(), first.mask_BR)


def test_it_explains_itself(capsys):
    with pytest.raises(SystemExit) as ended:
        estimators.main(["--help"])
    assert ended.value.code == 0
    assert "outputs/benchmarks/advantages" in capsys.readouterr().out
