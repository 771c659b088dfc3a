"""The trainers that know about episodes: verl's own, with our metrics, the failure policy, and one rule of the group.

Selected by `trainer.v1.trainer_mode`: `agentgym` is verl's synchronous trainer, `agentgym_async` its colocated
asynchronous one. Episodes that failed are counted and stored, never trained on; a group with fewer than two sessions
left has advantage 0 (verl would use the raw reward); when the budget of failures is used up, or a session could not be
set up at all, the run stops with a report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from verl.trainer.ppo.v1 import PPOTrainerColocateAsync, PPOTrainerSync, register_trainer

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.failure_policy import Action, FailureBudget
from verl_ext import failures
from verl_ext.advantages.rows import known
from verl_ext.agent_loop.environment_loop import VALIDATION
from verl_ext.agent_loop.settings import Settings
from verl_ext.episode_metrics import episode_metrics, failure_metrics
from verl_ext.pool_metrics import pool_metrics, step_periods
from verl_ext.ray_pool import POOL, RayPool
from verl_ext.step_rows import extra_fields, known_rows, real_keys, sessions_of
from verl_ext.survivors import Survivors
from verl_ext.updates import fixed_updates, rows_multiple, updates_of_actor, updates_of_critic

NAMES = {"agentgym": "sync", "agentgym_async": "colocate_async"}
"""Our trainer -> the mode of verl that it is."""
_POLL_SECONDS = 0.2
"""verl looks for finished groups every 2 s, which is longer than a whole step of a small policy."""
_STALL_MARGIN_SECONDS = 120.0
"""On top of an episode's deadline and its retries: setting up, closing, and the queue."""


class _Episodes:
    """What both trainers add to verl's; mixed in before the trainer it extends."""

    def __init__(self, config: DictConfig):
        # Wrong settings end the run here and not in a worker's log.
        self._settings = settings = Settings.of(config)
        # The actors live as long as this is held, and must be there before the agent loops are.
        self._pool = RayPool.start(POOL, settings.pool) if settings.pool else None
        with open_dict(config):
            # verl compares this name in many places
            config.trainer.v1.trainer_mode = NAMES[config.trainer.v1.trainer_mode]
        super().__init__(config)
        stall_seconds = settings.limits.episode_seconds * (1 + settings.failures.retries) + _STALL_MARGIN_SECONDS
        self.replay_buffer = Survivors(self.replay_buffer, _POLL_SECONDS, stall_seconds)
        self._failures = failures.start()
        self._failure_budget = FailureBudget(settings.failures)
        self._failure_file = Path(config.trainer.default_local_dir) / "failures.jsonl"

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        _mark(self.train_dataloader, validation=False)
        _mark(self.val_dataloader, validation=True)

    def _submit_batch_to_rollout(self, batch: TensorDict) -> int:
        if self._settings.oversampling.spares and "__rollout_n__" in batch:
            raise ConfigurationError(
                "agentgym.oversampling.spares needs groups of rollout.n sessions; the dataset's column __rollout_n__ "
                "gives each its own number"
            )
        return super()._submit_batch_to_rollout(batch)

    def step(self, metrics: dict, timing_raw: dict) -> Any:
        try:
            batch = super().step(metrics, timing_raw)
        except RuntimeError:
            self._spend(self._noted_failures(), 0)  # not one session survived; the failures say why
            raise
        tries = self._noted_failures()
        self._spend(tries, sessions_of(batch))
        metrics.update(failure_metrics(tries) | {"episode/failed_in_run": self._failure_budget.lost})
        metrics.update(pool_metrics(step_periods(self._pool)))
        return batch

    def _validate(self) -> dict[str, float]:
        try:
            metrics = super()._validate()
        finally:
            tries = self._noted_failures()  # counted apart: the budget is one of training steps
            pools = pool_metrics(step_periods(self._pool))
        metrics["val-aux/failed"] = failure_metrics(tries)["episode/failed"]
        return metrics | {f"val-aux/{name}": number for name, number in pools.items()}

    def _val_metrics_update(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        # verl would count a session that it expected and did not get as a wrong answer
        return super()._val_metrics_update(*args, **{**kwargs, "expected_acc_counts": None})

    def _noted_failures(self) -> Sequence[failures.SessionFailure]:
        """What failed since the last call, stored.

        Raises:
            ConfigurationError: a session could not be set up.
        """
        tries = failures.drain()
        _store(tries, self._failure_file, self.global_steps)
        for failure in tries:
            if failure.fatal:
                raise ConfigurationError(f"environment {failure.episode.environment!r}: {failure.episode.message}")
        return tries

    def _spend(self, tries: Sequence[failures.SessionFailure], survivors: int) -> None:
        """Hold a step's failures against the budget.

        Raises:
            FailureBudgetSpent: the run may lose no more.
        """
        lost = [failure.episode for failure in tries if failure.action is not Action.RETRY]
        self._failure_budget.spend(lost, survivors + len(lost))

    def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
        with known(known_rows(batch, self.use_critic, self._settings.truncations.bootstrapped)):
            batch = super()._compute_advantage(batch, metrics)
        lonely = _keys_of_singletons(batch.keys, batch.tags)
        if lonely:
            advantages = tq.kv_batch_get(keys=lonely, partition_id=batch.partition_id, select_fields=["advantages"])
            zeros = TensorDict({"advantages": torch.zeros_like(advantages["advantages"])}, batch_size=len(lonely))
            tq.kv_batch_put(keys=lonely, partition_id=batch.partition_id, fields=zeros)
        metrics["episode/groups_of_one"] = len(lonely)
        return batch

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        counts = [updates_of_actor(self.config)]
        if self.use_critic:
            counts.append(updates_of_critic(self.config))
        return rows_multiple(dp_size, *counts)

    def _update_actor(self, batch: Any, metrics: dict) -> Any:
        updates = updates_of_actor(self.config)
        with fixed_updates(self.actor_rollout_wg, "update_actor", updates, sessions_of(batch)):
            return super()._update_actor(batch, metrics)

    def _update_critic(self, batch: Any, metrics: dict) -> Any:
        updates = updates_of_critic(self.config)
        with fixed_updates(self.critic_wg, "train_mini_batch", updates, sessions_of(batch)):
            return super()._update_critic(batch, metrics)

    def _compute_metrics(self, batch: Any, metrics: dict, *args: Any, **kwargs: Any) -> None:
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        facts = [fields["episode"] for fields in extra_fields(batch, real_keys(batch))]
        metrics.update(episode_metrics([fact for fact in facts if fact]))


@register_trainer("agentgym")
class EpisodeTrainer(_Episodes, PPOTrainerSync):
    """Rollout and training take turns."""


@register_trainer("agentgym_async")
class AsyncEpisodeTrainer(_Episodes, PPOTrainerColocateAsync):
    """Long episodes go on over several steps, on newer and newer weights."""


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


def _keys_of_singletons(keys: Sequence[str], tags: Sequence[Mapping[str, Any]]) -> list[str]:
    """Row keys of the groups from which one session is left. A key reads `{group}_{session}_{segment}`."""
    sessions: dict[str, set[str]] = {}
    for key, tag in zip(keys, tags, strict=True):
        if not tag.get("is_padding", False):
            group, session, _ = key.rsplit("_", 2)
            sessions.setdefault(group, set()).add(session)
    alone = {group for group, members in sessions.items() if len(members) == 1}
    return [key for key in keys if key.count("_") >= 2 and key.rsplit("_", 2)[0] in alone]
