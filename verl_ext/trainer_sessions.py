"""What our trainers do about sessions: which reach a step, which failed, and what their episodes were like.

Episodes that failed are counted and stored, never trained on; when the budget of failures is used up, or a session
could not be set up at all, the run stops with a report.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, open_dict
from tensordict import TensorDict

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.failure_policy import Action, FailureBudget
from agentgym_rl.rewards import longest_deadline
from verl_ext import failures
from verl_ext.agent_loop.environment_loop import VALIDATION
from verl_ext.agent_loop.settings import Settings
from verl_ext.combinations import require_workable
from verl_ext.curriculum import TaskSampler
from verl_ext.curriculum_loader import curriculum_loader
from verl_ext.dynamic_sampling import SignalFilter
from verl_ext.episode_metrics import episode_metrics, failure_metrics, mean_accuracy
from verl_ext.pool_metrics import pool_metrics, step_periods
from verl_ext.ray_pool import POOL, RayPool
from verl_ext.step_rows import extra_fields, real_keys, sessions_of
from verl_ext.survivors import Survivors

logger = logging.getLogger(__name__)

NAMES = {"agentgym": "sync", "agentgym_async": "colocate_async"}
"""Our trainer -> the mode of verl that it is."""
_POLL_SECONDS = 0.2
"""verl looks for finished groups every 2 s, which is longer than a whole step of a small policy."""
_STALL_MARGIN_SECONDS = 120.0
"""On top of the deadlines of an episode and a verdict on it, and their retries: setting up, closing, and the queue."""


class Sessions:
    """Mixed in before a trainer of verl."""

    _settings: Settings
    _replaced: Sequence[Mapping[str, Any]]
    """Facts of this step's episodes that dynamic sampling replaced."""
    _sampler: TaskSampler | None = None
    """Draws the tasks, where there is a curriculum."""

    def __init__(self, config: DictConfig):
        # Wrong settings end the run here and not in a worker's log.
        self._settings = settings = Settings.of(config)
        # The actors live as long as this is held, and must be there before the agent loops are.
        self._pool = RayPool.start(POOL, settings.pool) if settings.pool else None
        require_workable(config, settings, NAMES[config.trainer.v1.trainer_mode])
        self._compared = _compared_rewards(settings, config.actor_rollout_ref.rollout.n)
        with open_dict(config):
            # verl compares this name in many places
            config.trainer.v1.trainer_mode = NAMES[config.trainer.v1.trainer_mode]
        super().__init__(config)
        filters = self.replay_buffer.filter_groups_metric is not None
        self._signal = SignalFilter(self.replay_buffer, settings.dynamic_sampling.max_refills) if filters else None
        try_seconds = settings.limits.episode_seconds + longest_deadline(settings.rewards)
        stall_seconds = try_seconds * (1 + settings.failures.retries) + _STALL_MARGIN_SECONDS
        self.replay_buffer = Survivors(self.replay_buffer, _POLL_SECONDS, stall_seconds)
        self._failures = failures.start()
        self._failure_budget = FailureBudget(settings.failures)
        self._tries: list[failures.SessionFailure] = []
        """Of training sessions, and not yet held against the budget."""
        self._failure_file = Path(config.trainer.default_local_dir) / "failures.jsonl"

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        if self._settings.curriculum:
            self.train_dataloader, self._sampler = curriculum_loader(
                self.train_dataset, self._settings.curriculum, self.config.data
            )
        _mark(self.train_dataloader, validation=False)
        _mark(self.val_dataloader, validation=True)

    def _submit_batch_to_rollout(self, batch: TensorDict) -> int:
        needs = self._compared or ("agentgym.oversampling.spares" if self._settings.oversampling.spares else "")
        if needs and "__rollout_n__" in batch:
            raise ConfigurationError(
                f"{needs} needs groups of rollout.n sessions; the dataset's column __rollout_n__ gives each its own "
                "number"
            )
        return super()._submit_batch_to_rollout(batch)

    def _add_prompts_to_generate(self, num_prompts: int) -> Any:
        # verl draws a new task for each that failed, for ever, if every one fails for the same reason.
        self._note_failures()
        if any(failure.action is Action.STOP for failure in self._tries):
            self._spend(self._tries, 0)
        return super()._add_prompts_to_generate(num_prompts)

    def step(self, metrics: dict, timing_raw: dict) -> Any:
        try:
            batch = super().step(metrics, timing_raw)
        except RuntimeError:
            self._note_failures()
            self._spend(self._tries, 0)  # not one session survived; the failures say why
            raise
        self._note_failures()
        tries, self._tries = self._tries, []
        self._replaced = self._signal.take_replaced_episodes() if self._signal else []
        self._spend(tries, sessions_of(batch) + len(self._replaced))
        metrics.update(failure_metrics(tries) | {"episode/failed_in_run": self._failure_budget.lost})
        metrics.update(pool_metrics(step_periods(self._pool)))
        return batch

    def _compute_metrics(self, batch: Any, metrics: dict, *args: Any, **kwargs: Any) -> None:
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        facts = [fields["episode"] for fields in extra_fields(batch, real_keys(batch))]
        metrics.update(episode_metrics([fact for fact in facts if fact]))

    def _validate(self) -> dict[str, float]:
        try:
            metrics = super()._validate()
        finally:
            tries = self._note_failures()  # counted apart: the budget is one of training steps
            pools = pool_metrics(step_periods(self._pool))
        metrics["val-aux/failed"] = failure_metrics(tries)["episode/failed"]
        return metrics | {f"val-aux/{name}": number for name, number in pools.items()}

    def _val_metrics_update(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        # verl would count a session that it expected and did not get as a wrong answer.
        metrics = super()._val_metrics_update(*args, **{**kwargs, "expected_acc_counts": None})
        metrics |= mean_accuracy(*args[:3])
        # Where an environment can't tell success there is no success rate.
        return {name: value for name, value in metrics.items() if not math.isnan(value)}

    def _note_failures(self) -> Sequence[failures.SessionFailure]:
        """Store what failed since the last call, keep what was trained on for the budget, and return the rest.

        Raises:
            ConfigurationError: a session could not be set up.
        """
        tries = failures.drain()
        _store(tries, self._failure_file, self.global_steps)
        for failure in tries:
            if failure.fatal:
                raise ConfigurationError(f"environment {failure.episode.environment!r}: {failure.episode.message}")
        self._tries += [failure for failure in tries if not failure.validation]
        return [failure for failure in tries if failure.validation]

    def _spend(self, tries: Sequence[failures.SessionFailure], survivors: int) -> None:
        """Hold a step's failures against the budget.

        Raises:
            FailureBudgetSpent: the run may lose no more.
        """
        lost = [failure.episode for failure in tries if failure.action is not Action.RETRY]
        self._failure_budget.spend(lost, survivors + len(lost))


def _compared_rewards(settings: Settings, sessions: int) -> str:
    """Names the rewards that compare the sessions of a group, "" if none does; and says where they are left out.

    Raises:
        ConfigurationError: no group has two sessions that could be compared.
    """
    names = ", ".join(f"agentgym.rewards.{name}" for name in settings.split_rewards.compared)
    spares = settings.oversampling.spares
    if names and sessions - spares < 2:
        raise ConfigurationError(
            f"{names} compares the sessions of a group: rollout.n must be 2 at least, without "
            f"agentgym.oversampling.spares; given: {sessions} and {spares}"
        )
    if names:
        logger.warning("%s compares the sessions of a training group; rewards in validation are without it", names)
    return names


def _mark(loader: Any, validation: bool) -> None:
    collate = loader.collate_fn
    loader.collate_fn = lambda rows: collate([{**row, VALIDATION: validation} for row in rows])


def _store(tries: Sequence[failures.SessionFailure], file: Path, step: int) -> None:
    """Append every failure, with its traceback, to the run's folder."""
    if not tries:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        for failure in tries:
            line = {"step": step, "action": failure.action.value, **asdict(failure.episode)}
            lines.write(json.dumps(line, ensure_ascii=False) + "\n")
