"""Dynamic sampling with a bound: groups without variance are replaced by new ones, but never without end.

Switched on by verl's `algorithm.filter_groups.enable` (Yu et al. 2025, DAPO, arXiv 2503.14476). verl compares all rows
of a group and goes on until a batch is full, so tasks that are all solved, or all failed, would hold a step for ever.
Here sessions are compared, not rows: segments of one session are one value, and sessions that were left out have none.
After `max_refills` replaced groups a step takes what there is, groups with variance first; the rest has advantage 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import FILTER_GROUPS_REWARD_METRIC

from agentgym_rl.errors import ConfigurationError
from verl_ext.survivors import EXCLUDED

_ROUNDING = 1e-6
"""Relative; rewards are summed in float32."""


@dataclass(frozen=True)
class DynamicSampling:
    """What `algorithm.filter_groups.enable` may cost."""

    max_refills: int = 64
    """Groups without variance that are replaced at most for one batch."""

    def __post_init__(self) -> None:
        if not isinstance(self.max_refills, int) or self.max_refills < 1:
            raise ConfigurationError(
                f"dynamic_sampling.max_refills must be a whole number above 0; given: {self.max_refills!r} "
                "(algorithm.filter_groups.enable=false switches dynamic sampling off)"
            )


class Group(NamedTuple):
    """What there is to learn from in a finished group."""

    values: Sequence[float]
    """One a session that was not left out."""
    episodes: Sequence[Mapping[str, Any]]
    """Their facts, as the agent loop gave them."""

    @property
    def flat(self) -> bool:
        """Its advantages would all be 0; so they are where fewer than two sessions are left."""
        low, high = min(self.values, default=0.0), max(self.values, default=0.0)
        return high - low <= _ROUNDING * max(1.0, abs(low), abs(high))


class SignalFilter:
    """Replaces how a replay buffer of verl, of either kind, chooses among finished groups.

    Args:
        buffer: with `filter_groups_metric`; its methods are replaced on the instance (verl/trainer/ppo/v1/
            replay_buffer.py has no seam for it that its constructor's callers would pass on).
        max_refills: groups that are replaced at most for one batch.
    """

    def __init__(self, buffer: Any, max_refills: int):
        self._buffer = buffer
        self._max_refills = max_refills
        self._groups: dict[str, Group] = {}
        self._replaced: set[str] = set()
        self._passed = 0
        self._replaced_episodes: list[Mapping[str, Any]] = []
        self._sample, self._select = buffer.sample, buffer._select_prompt_uids
        buffer.sample = self._counted_sample
        buffer._dapo_filtered_keys = self._filtered
        buffer._select_prompt_uids = self._with_variance_first

    def take_replaced_episodes(self) -> list[Mapping[str, Any]]:
        """Facts of the episodes that were replaced since the last call: played, and not trained on."""
        taken, self._replaced_episodes = self._replaced_episodes, []
        return taken

    def _counted_sample(self, *args: Any, **kwargs: Any) -> tuple[KVBatchMeta, dict]:
        self._replaced.clear()
        batch, metrics = self._sample(*args, **kwargs)
        return batch, metrics | {"dynamic_sampling/passed_total": self._passed}

    def _filtered(self, partition_id: str) -> tuple[set[str], Counter]:
        """Groups to replace, and how many of them share which value."""
        finished = self._buffer.finished_keys[partition_id]
        self._groups = {uid: group for uid, group in self._groups.items() if uid in finished}
        self._groups |= self._read(partition_id, finished - self._groups.keys())
        flat = self._flat
        for uid in flat - self._replaced:
            if len(self._replaced) < self._max_refills:
                self._replaced.add(uid)
                self._replaced_episodes.extend(self._groups[uid].episodes)
        filtered = flat & self._replaced
        return filtered, Counter(self._groups[uid].values[0] for uid in filtered if self._groups[uid].values)

    @property
    def _flat(self) -> set[str]:
        return {uid for uid, group in self._groups.items() if group.flat}

    def _read(self, partition_id: str, uids: Set[str]) -> dict[str, Group]:
        keys = [key for key in self._buffer.partitions[partition_id] if key.split("_")[0] in uids]
        if not keys:
            return {uid: Group([], []) for uid in uids}
        rows = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["rm_scores", "extra_fields"])
        rewards = [float(scores_R.sum()) for scores_R in rows["rm_scores"]]
        fields = rows.pop("extra_fields").tolist()
        return dict.fromkeys(uids, Group([], [])) | groups_of(keys, rewards, fields, self._buffer.filter_groups_metric)

    def _with_variance_first(self, partition_id: str, sampleable: set[str], batch_size: int) -> tuple[Any, ...]:
        uids, *snapshots = self._select(partition_id, sampleable, len(sampleable))
        flat = self._flat
        chosen = sorted(uids, key=lambda uid: uid in flat)[:batch_size]
        self._passed = len(flat.intersection(chosen))
        return chosen, *snapshots


def groups_of(
    keys: Sequence[str], rewards: Sequence[float], fields: Sequence[Mapping[str, Any]], metric: str
) -> dict[str, Group]:
    """Finished groups with what is compared of their sessions.

    Args:
        keys: of the rows, `{group}_{session}_{segment}`, in any order.
        rewards: of each row.
        fields: `extra_fields` of each row.
        metric: "reward", summed over a session's segments, or a name in `reward_extra_info`, of its last segment.

    Raises:
        ConfigurationError: a row has no such metric.
    """
    values: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    episodes: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    rows = sorted(zip(keys, rewards, fields, strict=True), key=lambda row: int(row[0].rsplit("_", 1)[1]))
    for key, reward, of_row in rows:
        group, session, _ = key.rsplit("_", 2)
        of_group = values[group]
        if EXCLUDED in of_row:
            continue
        if episode := of_row.get("episode"):  # on the last row of its session
            episodes[group][session] = episode
        if metric == FILTER_GROUPS_REWARD_METRIC:
            of_group[session] += reward
        else:
            of_group[session] = _named(metric, of_row["reward_extra_info"])
    return {group: Group([*sessions.values()], [*episodes[group].values()]) for group, sessions in values.items()}


def _named(metric: str, given: Mapping[str, Any]) -> float:
    if metric not in given:
        raise ConfigurationError(
            f"algorithm.filter_groups.metric is {metric!r}; sessions have: "
            f"{', '.join(sorted({FILTER_GROUPS_REWARD_METRIC, *given}))}"
        )
    return float(given[metric])
