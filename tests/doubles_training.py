"""A small training through verl in a folder of its own; no double, but what the end-to-end tests share."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from agentgym_rl.follow import read_metrics
from agentgym_rl.task import Task

ROOT = Path(__file__).parent.parent
RECIPE = ROOT / "recipes" / "quickstart"
SECONDS = 420
"""After which a training counts as hung."""
TASKS = [
    Task(f"babyai-{seed}", "babyai", {"level": "GoToObj", "max_turns": 3}, "Play.", seed=seed) for seed in range(8)
]
SMALL = (
    "data.train_batch_size=2",
    "data.max_prompt_length=128",
    "data.max_response_length=160",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "trainer.test_freq=-1",
    "trainer.val_before_train=False",
)


@dataclass(frozen=True)
class Training:
    """A run in a folder of its own: `metrics/` by step, `log`, `checkpoints/`."""

    folder: Path

    def command(self, policy: Path, steps: int, *overrides: str) -> list[str]:
        return [
            *(sys.executable, "-m", "verl.trainer.main_ppo", "--config-dir", str(RECIPE), "--config-name", "grpo"),
            f"data.train_files={self.folder / 'tasks.parquet'}",
            f"data.val_files={self.folder / 'tasks.parquet'}",
            f"actor_rollout_ref.model.path={policy}",
            f"trainer.default_local_dir={self.folder / 'checkpoints'}",
            f"trainer.total_training_steps={steps}",
            f"hydra.run.dir={self.folder / 'hydra'}",
            *SMALL,
            *overrides,
        ]

    def start(self, command: list[str]) -> subprocess.Popen:
        (self.folder / "metrics").mkdir(exist_ok=True)
        number = len(list((self.folder / "metrics").iterdir()))
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT / "tests"),  # for the doubles
            "VERL_FILE_LOGGER_PATH": str(self.folder / "metrics" / f"{number}.jsonl"),
        }
        with self.log.open("a") as log:
            return subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def run(self, policy: Path, steps: int, *overrides: str) -> dict[int, dict[str, float]]:
        process = self.start(self.command(policy, steps, *overrides))
        try:
            code = process.wait(SECONDS)
        finally:
            end(process)
        assert code == 0, self.log.read_text()[-5000:]
        return self.metrics

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def metrics(self) -> dict[int, dict[str, float]]:
        return read_metrics(self.folder / "metrics")


def end(process: subprocess.Popen) -> None:
    """Kill a training with all that Ray started for it, and nothing else that Ray runs on this machine."""
    started = [psutil.Process(process.pid)] if process.poll() is None else []
    for parent in list(started):
        started += parent.children(recursive=True)
    for one in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(started, timeout=30)
    process.wait()
