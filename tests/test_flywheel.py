"""The flywheel recipe: its plan consists of commands that we have, and each way learns from its own data."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentgym_rl.cli import app
from agentgym_rl.training.plan import Plan, read_plan
from recipes.flywheel.compare import WAYS
from recipes.seed_table import seed_table

ROOT = Path(__file__).parent.parent
RUN = ROOT / "recipes" / "flywheel" / "run.sh"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(ROOT)
    return read_plan("recipes/flywheel/plan.yaml", tmp_path, {"seed": "3"})


def run_sh(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", str(RUN), *options], capture_output=True, text=True, timeout=60)


def our_commands(script: str) -> list[list[str]]:
    """The words behind `openmanus-rl` of every such line of a shell script."""
    lines = script.replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("openmanus-rl ")]


def test_help_lists_the_options_and_a_wrong_one_is_said_before_anything_is_installed() -> None:
    shown = run_sh("--help")
    assert shown.returncode == 0
    assert all(option in shown.stdout for option in ("--out", "--seeds", "--episodes", "--updates", "--dry-run"))
    refused = run_sh("--sede", "1")
    assert refused.returncode == 2
    assert "unknown option --sede" in refused.stderr


def test_every_way_goes_on_from_the_policy_that_played_and_differs_in_its_data_alone(plan: Plan) -> None:
    learning = {stage.name: list(stage.command) for stage in plan.stages if stage.name.startswith("learn-")}
    assert list(learning) == [f"learn-{way}" for way in WAYS]
    for way, command in learning.items():
        data = plan.folder / WAYS[way.removeprefix("learn-")]
        assert f"data.train_files={data}" in command
        assert f"model.path={plan.folder / 'start' / 'sft'}" in command
    alike = {re.sub(r"\S*/(collect|refine|learn-\w+)/\S*", "", " ".join(words)) for words in learning.values()}
    assert len(alike) == 1


def test_each_way_is_tested_with_the_policy_that_it_made(plan: Plan) -> None:
    tested = {stage.name: list(stage.command) for stage in plan.stages if stage.kind == "evaluate"}
    assert list(tested) == ["before", *WAYS]
    for way in WAYS:
        assert f"checkpoint:{plan.folder / f'learn-{way}' / 'policy'}" in tested[way]


def test_our_own_commands_are_ones_that_we_have_with_the_options_that_they_take(plan: Plan) -> None:
    scripts = [stage.command[-1] for stage in plan.stages if stage.kind == "command"]
    commands = [words for script in scripts for words in our_commands(script)]
    assert {words[0] for words in commands} == {"collect", "annotate", "filter", "augment", "export", "store"}
    for words in commands:
        result = CliRunner().invoke(app, words)
        assert "error: there is no" in result.stderr, (words, result.output)


def test_gains_are_told_seed_by_seed() -> None:
    from rich.console import Console

    # gains .25 and .35: mean .3, s = .0707, t(1 degree) = 12.71: -+ .635
    table = seed_table([0, 4], {"before": [0.25, 0.35], "after": [0.5, 0.7]}, "before")
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table)
    text = captured.get()
    assert "seed 4" in text
    assert "30.0% [-33.5, 93.5]" in text
    assert re.search(r"before +│ 25.0% +│ 35.0% +│ 30.0% \[-33.5, 93.5\] +│ +│", text)
