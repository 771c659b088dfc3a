"""What our trainers watch over: signs of collapse, and which tasks are worth drawing. Both survive a resumed run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl_ext.curriculum import played_tasks
from verl_ext.rollback import roll_back
from verl_ext.step_rows import extra_fields, real_keys
from verl_ext.watch import CollapseWatch
from verl_ext.watch_figures import watched

_WATCH_FILE = "watch.json"


class Watched:
    """Mixed in before `Sessions`."""

    def __init__(self, config: DictConfig):
        super().__init__(config)
        self._watch = CollapseWatch(self._settings.watch)
        self._went_back = False

    def step(self, metrics: dict, timing_raw: dict) -> Any:
        batch = super().step(metrics, timing_raw)
        keys = real_keys(batch)
        facts = [fields["episode"] for fields in extra_fields(batch, keys)]
        if self._sampler:
            self._sampler.update(played_tasks([*filter(None, facts), *self._replaced]))
            metrics.update(self._sampler.metrics())
        verdict = self._watch.observe(
            watched(keys, facts), metrics.get("actor/entropy"), metrics.get("logprob_gap/mean")
        )
        metrics.update(verdict.metrics)
        self._went_back = verdict.rollback
        if verdict.rollback:
            self._write_watch(roll_back(self))
        return batch

    def _save_checkpoint(self) -> None:
        if self._went_back:
            return  # verl's retention would count the checkpoint's step twice, and delete it
        self._write_watch(Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}")
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self._went_back:
            return  # the watch goes on: what it saw did happen
        trainer = self.config.trainer
        newest = Path(trainer.default_local_dir) / f"global_step_{self.global_steps}"
        file = (Path(trainer.resume_from_path) if trainer.resume_mode == "resume_path" else newest) / _WATCH_FILE
        if self.global_steps and file.exists():
            self._watch.load_state_dict(json.loads(file.read_text()))

    def _write_watch(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _WATCH_FILE).write_text(json.dumps(self._watch.state_dict()))
