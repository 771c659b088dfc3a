"""The quickstart's own pieces: options, early stopping, report and the seeds' table. The whole takes too long here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym_rl.errors import DataError
from agentgym_rl.evaluation.result import EpisodeRow, Evaluation
from recipes.quickstart import report, seeds, select_sft

ROOT = Path(__file__).parent.parent
RUN = ROOT / "recipes" / "quickstart" / "run.sh"


def run_sh(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", str(RUN), *options], capture_output=True, text=True, timeout=60)


def test_help_lists_the_options_and_installs_nothing() -> None:
    shown = run_sh("--help")
    assert shown.returncode == 0
    for option in ("--out", "--model", "--seed", "--levels", "--max-turns", "--steps", "--resume"):
        assert option in shown.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--modle", "x"], "unknown option --modle"),
        (["--model", "no/such/folder"], "--model no/such/folder is no Hugging Face folder: it has no config.json"),
    ],
)
def test_a_wrong_option_is_said_before_anything_is_installed(options: list[str], message: str) -> None:
    refused = run_sh(*options)
    assert refused.returncode == 2
    assert message in refused.stderr


def test_an_earlier_run_is_not_overwritten_silently(tmp_path: Path) -> None:
    (tmp_path / "done").mkdir()
    refused = run_sh("--out", str(tmp_path))
    assert refused.returncode == 2
    assert "holds an earlier run: give --resume to go on with it, or another --out" in refused.stderr


def test_checkpoints_come_in_the_order_of_their_steps(tmp_path: Path) -> None:
    for step in (5, 10, 100, 20):
        (tmp_path / f"global_step_{step}" / "huggingface").mkdir(parents=True)
    assert [path.parent.name for path in select_sft.checkpoints(tmp_path)] == [
        "global_step_5",
        "global_step_10",
        "global_step_20",
        "global_step_100",
    ]
    with pytest.raises(DataError, match="holds no checkpoint"):
        select_sft.checkpoints(tmp_path / "global_step_5")


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [
        ({5: 0.1, 10: 0.4, 15: 0.9}, 10),  # the first that is good enough, not the best
        ({5: 0.1, 10: 0.3, 15: 0.2}, 10),  # none is: the best one
        ({5: 0.0, 10: 0.0, 15: 0.0}, 15),  # all are alike: the one that has imitated longest
    ],
)
def test_imitation_stops_at_the_first_checkpoint_that_is_good_enough(
    scores: dict[int, float], chosen: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in scores:
        folder = tmp_path / "sft_checkpoints" / f"global_step_{step}" / "huggingface"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(str(step))

    async def score(path: Path, *_: object) -> float:
        return scores[int(path.parent.name.rpartition("_")[2])]

    monkeypatch.setattr(select_sft, "read_tasks", lambda path: [])
    monkeypatch.setattr(select_sft, "sampled_score", score)
    monkeypatch.setattr(sys, "argv", ["select_sft", "--out", str(tmp_path), "--skip", "0"])
    select_sft.main()
    assert (tmp_path / "sft" / "config.json").read_text() == str(chosen)


def test_skipping_every_checkpoint_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sft_checkpoints" / "global_step_5" / "huggingface").mkdir(parents=True)
    monkeypatch.setattr(select_sft, "read_tasks", lambda path: [])
    monkeypatch.setattr(sys, "argv", ["select_sft", "--out", str(tmp_path), "--skip", "1"])
    with pytest.raises(DataError, match="there are 1 checkpoints, and --skip 1 leaves none to choose from"):
        select_sft.main()


def evaluated(folder: Path, stage: str, sampler: str, solved: int, of: int = 10) -> None:
    rows = [EpisodeRow(f"t{i}", 0, "babyai", i < solved, float(i < solved), 3, "terminated") for i in range(of)]
    file = folder / "evaluation" / f"{stage}-{sampler}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    Evaluation(rows, {}).write(file)


def test_the_seeds_table_has_every_seed_and_the_mean_gain(tmp_path: Path, monkeypatch, capsys) -> None:
    # sampled gain of GRPO: 2/10 -> 6/10 and 4/10 -> 10/10, that is +40% and +60%
    for seed, (before, after) in enumerate([(2, 6), (4, 10)]):
        for sampler in report.SAMPLERS:
            for stage, solved in zip(report.STAGES, (0, before, after), strict=True):
                evaluated(tmp_path / f"seed-{seed}", stage, sampler, solved)
    monkeypatch.setattr(sys, "argv", ["seeds", str(tmp_path / "seed-0"), str(tmp_path / "seed-1")])
    monkeypatch.setenv("COLUMNS", "160")
    seeds.main()
    shown = capsys.readouterr().out
    assert "+40.0%" in shown
    assert "+60.0%" in shown
    assert "50.0%" in shown


def test_the_learning_curve_has_training_and_validation_with_its_interval(tmp_path: Path) -> None:
    lines = [
        {"step": 0, "data": {"val-core/babyai/acc/mean@1": 0.5}},
        {"step": 1, "data": {"episode/babyai/success": 0.25, "episode/babyai/turns/mean": 4.0}},
    ]
    folder = tmp_path / "metrics" / "grpo"
    folder.mkdir(parents=True)
    (folder / "000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    training, validation, turns = report.curves(tmp_path, validation_episodes=64)
    assert [(point.step, point.value) for point in training.points] == [(1, 0.25)]
    assert [(point.step, point.value) for point in turns.points] == [(1, 4.0)]
    (start,) = validation.points
    # Wilson, 32 of 64: 0.5 +- 1.96 * sqrt(0.25 / 64 + 1.96^2 / (4 * 64^2)) / (1 + 1.96^2 / 64)
    assert (start.low, start.high) == (pytest.approx(0.381, abs=1e-3), pytest.approx(0.619, abs=1e-3))


def test_an_evaluation_in_which_nothing_was_judged_is_no_success_rate_of_0() -> None:
    failed = EpisodeRow("t", 0, "babyai", None, 0.0, 0, "failed", "environment_crashed", "gone")
    with pytest.raises(DataError, match="not one of 1 episodes was judged; failures: {'environment_crashed': 1}"):
        select_sft.judged_rate(Evaluation((failed,), {}).overall())
