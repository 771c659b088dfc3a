"""Each benchmark runs, at a size of seconds, and leaves a table, its data and a plot; no figure is judged here."""

import importlib
import json
import os
import random
import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks.rollout import faults, long_tail, memory, skyrl
from benchmarks.rollout.latency import tasks, turn_seconds
from benchmarks.rollout.memory import Sample
from benchmarks.rollout.virtual_clock import run

TINY = {
    "overhead": "--sessions 1 4 --turns 2 --repeats 1",
    "long_tail": "--sessions-per-slot 2 --slots 2 4 --turns 1 5",
    "faults": "--sessions 20 --slots 4 --turns 3",
    "memory": "--sessions 4 --turns 1 --minutes 0.02 --every-seconds 0.1",
    "process_pool": "--workers 2 --seconds 0.2 --repeats 1",
}


def play(name, folder):
    module = importlib.import_module(f"benchmarks.rollout.{name}")
    return module.main([*TINY[name].split(), "--out", str(folder)])


@pytest.mark.parametrize("name", TINY)
def test_a_benchmark_leaves_a_table_its_data_and_a_plot(name, tmp_path, capsys):
    result = play(name, tmp_path)
    row = json.loads((tmp_path / f"{name}.json").read_text())
    assert row["name"] == name
    assert row["rows"] == [dict(found) for found in result.rows]
    assert {frozenset(found) for found in row["rows"]} == {frozenset(row["rows"][0])}
    assert row["verdicts"]
    assert len(row["machine"]["load_before"]) == 3
    table = (tmp_path / f"{name}.md").read_text()
    assert f"| {' | '.join(row['rows'][0])} |" in table
    assert capsys.readouterr().out.strip() == table.strip()
    drawn = ElementTree.parse(tmp_path / f"{name}.svg")
    lines = drawn.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == len(result.curves)


@pytest.mark.parametrize("name", TINY)
def test_a_benchmark_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.rollout.{name}").main(["--help"])
    assert ended.value.code == 0
    assert "--out" in capsys.readouterr().out


def test_the_cores_are_given_back(tmp_path):
    allowed = os.sched_getaffinity(0)
    play("overhead", tmp_path)
    assert os.sched_getaffinity(0) == allowed


def test_without_skyrl_gym_the_reason_is_told(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "skyrl_gym", None)
    loop, why_not = skyrl.load()
    assert loop is None
    assert "pip install skyrl-gym" in why_not


# The long tail by hand: with sigma 0 every turn takes 1 second


def test_lock_step_waits_for_the_longest_of_each_batch_and_asynchronous_slots_do_not():
    lengths = [1, 4, 4, 1]
    work = [tasks(1, turns, turns, 0.0, seed=0)[0] for turns in lengths]
    assert [sum(turn_seconds(task)) for task in work] == lengths
    # batches (1, 4) and (4, 1): 4 + 4; slot one plays 1, 4 and slot two 4, 1: 5
    assert run(long_tail.lock_step_seconds(work, 2)) == pytest.approx(8.0)
    assert run(long_tail.asynchronous_seconds(work, 2)) == pytest.approx(5.0)
    assert long_tail.least_seconds(work, 2) == 5.0
    assert long_tail.least_seconds(work, 4) == 4.0  # no episode is shorter than itself


def test_the_same_seed_gives_the_same_work():
    assert tasks(9, 1, 50, 1.0, seed=3) == tasks(9, 1, 50, 1.0, seed=3) != tasks(9, 1, 50, 1.0, seed=4)


# Faults


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
def test_the_rates_of_a_call_give_the_share_of_episodes(share):
    rates = faults.faults_of(share, 21, seed=0).rates
    assert 1 - (1 - sum(rates.values())) ** 21 == pytest.approx(share)


def test_without_a_fault_every_session_survives(tmp_path):
    clean, _, hit = play("faults", tmp_path).rows
    assert (clean["survivors"], clean["failed"], clean["lost"]) == (20, 0, 0)
    assert (hit["lost"], hit["failed without a fault"]) == (0, 0)
    assert hit["survivors"] + hit["failed"] == 20


# Memory


def test_the_slope_of_a_line_is_found_and_its_interval_holds_it():
    dice = random.Random(0)
    line = [Sample(second, 100 + 0.5 * second + dice.gauss(0, 1), 1, 0) for second in range(200)]
    found = memory.slope(line)
    assert found.low < 30.0 < found.high  # MiB a minute
    assert found.high - found.low < 1.0
