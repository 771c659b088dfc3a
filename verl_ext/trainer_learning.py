"""What our trainers learn from: whole trajectories, in a fixed number of updates, of the policy that is trained.

A group with fewer than two sessions left has advantage 0: verl's own group estimators would use the raw reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict

from verl_ext.advantages.rows import KnownRows, known, turn_numbers
from verl_ext.logprob_gap import gap_metrics, require_small_gap, turn_gaps
from verl_ext.step_rows import known_rows, sessions_of
from verl_ext.updates import fixed_updates, rows_multiple, rows_of_micro_batches, updates_of_actor, updates_of_critic

_GROUP_ESTIMATORS_OF_VERL = frozenset(
    {
        *("grpo", "grpo_vectorized", "grpo_passk", "gpg", "opo"),
        *("rloo", "rloo_vectorized", "reinforce_plus_plus_baseline"),
    }
)


class WholeTrajectories:
    """Mixed in before a trainer of verl; needs `_settings`."""

    def _compute_advantage(self, batch: Any, metrics: dict) -> Any:
        rows = known_rows(batch, self.use_critic, self._settings.truncations.bootstrapped)
        self._compare_log_probs(batch, rows, metrics)
        with known(rows):
            batch = super()._compute_advantage(batch, metrics)
        if self.config.algorithm.adv_estimator in _GROUP_ESTIMATORS_OF_VERL:
            lonely = _keys_of_singletons(batch.keys, batch.tags)
            metrics["episode/groups_of_one"] = len(lonely)
            if lonely:
                _set_to_zero(lonely, batch.partition_id)
        return batch

    def _compare_log_probs(self, batch: Any, rows: KnownRows, metrics: dict) -> None:
        """Hold the rollout's log-probs to the trainer's, turn by turn.

        Raises:
            LogprobGapTooLarge: the step must not be taken.
        """
        if self.config.algorithm.get("rollout_correction", {}).get("bypass_mode", False):
            return  # the trainer takes the rollout's for its own
        fields = ["rollout_log_probs", "old_log_probs"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
        if "rollout_log_probs" not in data:
            return
        padded = data.to_padded_tensor()
        gaps = turn_gaps(padded["rollout_log_probs"], padded["old_log_probs"], turn_numbers(rows))
        metrics.update(gap_metrics(gaps))
        if self._settings.max_turn_logprob_gap is not None:
            require_small_gap(gaps, self._settings.max_turn_logprob_gap, batch.keys)

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        counts = [updates_of_actor(self.config)]
        if self.use_critic:
            counts.append(updates_of_critic(self.config))
        return rows_multiple(dp_size, *counts) * rows_of_micro_batches(self.config, self.use_critic)

    def _update_actor(self, batch: Any, metrics: dict) -> Any:
        updates = updates_of_actor(self.config)
        with fixed_updates(self.actor_rollout_wg, "update_actor", updates, sessions_of(batch)):
            return super()._update_actor(batch, metrics)

    def _update_critic(self, batch: Any, metrics: dict) -> Any:
        updates = updates_of_critic(self.config)
        with fixed_updates(self.critic_wg, "train_mini_batch", updates, sessions_of(batch)):
            return super()._update_critic(batch, metrics)


def _keys_of_singletons(keys: Sequence[str], tags: Sequence[Mapping[str, Any]]) -> list[str]:
    """Row keys of the groups from which one session is left. A key reads `{group}_{session}_{segment}`."""
    sessions: dict[str, set[str]] = {}
    for key, tag in zip(keys, tags, strict=True):
        if not tag.get("is_padding", False):
            group, session, _ = key.rsplit("_", 2)
            sessions.setdefault(group, set()).add(session)
    alone = {group for group, members in sessions.items() if len(members) == 1}
    return [key for key in keys if key.count("_") >= 2 and key.rsplit("_", 2)[0] in alone]


def _set_to_zero(keys: list[str], partition_id: str) -> None:
    advantages = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["advantages"])
    zeros = TensorDict({"advantages": torch.zeros_like(advantages["advantages"])}, batch_size=len(keys))
    tq.kv_batch_put(keys=keys, partition_id=partition_id, fields=zeros)
