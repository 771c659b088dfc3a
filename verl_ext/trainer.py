"""The trainer that knows about episodes: verl's synchronous trainer with our metrics and two rules of the group.

Selected by `trainer.v1.trainer_mode=agentgym`. A group with fewer than two rows left has advantage 0 (verl would use
the raw reward), and a fatal failure of a session stops the run instead of thinning its group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer

from agentgym_rl.errors import ConfigurationError
from verl_ext import failures
from verl_ext.agent_loop.settings import Settings

NAME = "agentgym"
_POLL_SECONDS = 0.2
"""verl looks for finished groups every 2 s, which is longer than a whole step of a small policy."""


@register_trainer(NAME)
class EpisodeTrainer(PPOTrainerSync):
    """verl's synchronous trainer; what it adds stands in the methods below."""

    def __init__(self, config: DictConfig):
        Settings.of(config)  # wrong settings end the run here and not in a worker's log
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"  # verl compares this name in many places
        super().__init__(config)
        self.replay_buffer.poll_interval = _POLL_SECONDS
        self._failures = failures.start()

    def step(self, metrics: dict, timing_raw: dict) -> Any:
        try:
            batch = super().step(metrics, timing_raw)
        except RuntimeError as error:
            # verl's replay buffer raises when not one session of a step survived.
            lost = failures.drain()
            if lost:
                raise ConfigurationError(f"no session survived this step; one failure: {lost[0].message}") from error
            raise
        metrics.update(_failure_metrics(failures.drain()))
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        lonely = _keys_of_singletons(batch.keys, batch.tags)
        if lonely:
            advantages = tq.kv_batch_get(keys=lonely, partition_id=batch.partition_id, select_fields=["advantages"])
            zeros = TensorDict({"advantages": torch.zeros_like(advantages["advantages"])}, batch_size=len(lonely))
            tq.kv_batch_put(keys=lonely, partition_id=batch.partition_id, fields=zeros)
        metrics["episode/groups_of_one"] = len(lonely)
        return batch

    def _compute_metrics(self, batch: Any, metrics: dict, *args: Any, **kwargs: Any) -> None:
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        rows = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        metrics.update(episode_metrics([fields["episode"] for fields in rows.pop("extra_fields").tolist()]))


def episode_metrics(episodes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Per environment: success, turns, invalid actions, stop reasons, reward parts and seconds, as verl metrics."""
    metrics: dict[str, float] = {}
    for name in sorted({episode["environment"] for episode in episodes}):
        own = [episode for episode in episodes if episode["environment"] == name]
        turns = sum(episode["turns"] for episode in own)
        judged = [episode["success"] for episode in own if episode["success"] is not None]
        prefix = f"episode/{name}"
        metrics[f"{prefix}/count"] = len(own)
        if judged:
            metrics[f"{prefix}/success"] = float(np.mean(judged))
        metrics[f"{prefix}/turns/mean"] = turns / len(own)
        metrics[f"{prefix}/turns/max"] = max(episode["turns"] for episode in own)
        metrics[f"{prefix}/invalid_share"] = sum(episode["invalid_turns"] for episode in own) / turns
        metrics[f"{prefix}/cut_share"] = sum(episode["cut_replies"] for episode in own) / turns
        metrics[f"{prefix}/policy_seconds_per_turn"] = sum(episode["policy_seconds"] for episode in own) / turns
        metrics[f"{prefix}/environment_seconds_per_turn"] = (
            sum(episode["environment_seconds"] for episode in own) / turns
        )
        for reason, count in Counter(episode["stop"] for episode in own).items():
            metrics[f"{prefix}/stop/{reason}"] = count / len(own)
        for part in own[0]["reward_parts"]:
            metrics[f"{prefix}/reward/{part}"] = float(np.mean([episode["reward_parts"][part] for episode in own]))
    return metrics


def _failure_metrics(lost: Sequence[failures.SessionFailure]) -> dict[str, float]:
    """How many sessions were lost to which cause.

    Raises:
        ConfigurationError: one of them was fatal.
    """
    for failure in lost:
        if failure.fatal:
            raise ConfigurationError(f"environment {failure.environment!r}: {failure.message}")
    metrics: dict[str, float] = {"episode/failed": len(lost)}
    for cause, count in Counter(failure.cause for failure in lost).items():
        metrics[f"episode/failed/{cause}"] = count
    return metrics


def _keys_of_singletons(keys: Sequence[str], tags: Sequence[Mapping[str, Any]]) -> list[str]:
    """Row keys of the groups from which one session is left. A key reads `{group}_{session}_{segment}`."""
    sessions: dict[str, set[str]] = {}
    for key, tag in zip(keys, tags, strict=True):
        if not tag.get("is_padding", False):
            group, session, _ = key.rsplit("_", 2)
            sessions.setdefault(group, set()).add(session)
    alone = {group for group, members in sessions.items() if len(members) == 1}
    return [key for key in keys if key.count("_") >= 2 and key.rsplit("_", 2)[0] in alone]
