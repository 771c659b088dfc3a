"""verl's replay buffer, less the sessions that were left out, and with an end to waiting.

Every session of a group is emitted exactly once, a failed one as an empty row marked as such, so that a group is
finished when all its sessions are, whatever became of them: no group is thinned, and none is dropped for having lost a
session. The marked rows are taken out here, before they can reach a loss, a baseline or a metric.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta

from agentgym_rl.errors import PolicyFailed

EXCLUDED = "excluded"
"""Key in a row's `extra_fields` that marks a session that was left out."""


class Survivors:
    """Wraps a replay buffer of verl; everything but `sample` is the buffer's own.

    Args:
        buffer: what the trainer built.
        poll_seconds: how often it looks for finished groups.
        stall_seconds: how long nothing may move before the rollout counts as dead.
    """

    def __init__(self, buffer: Any, poll_seconds: float, stall_seconds: float):
        self._buffer = buffer
        buffer.poll_interval = poll_seconds
        buffer._wait_for_next_poll = _watched(buffer, stall_seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._buffer, name)

    def sample(self, *args: Any, **kwargs: Any) -> tuple[KVBatchMeta, dict]:
        """verl's batch without the rows that were left out.

        Raises:
            RuntimeError: none is left.
        """
        batch, metrics = self._buffer.sample(*args, **kwargs)
        rows = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        out = [EXCLUDED in fields for fields in rows.pop("extra_fields").tolist()]
        if all(out):
            raise RuntimeError(f"not one of {len(out)} sessions survived; see failures.jsonl")
        return without(batch, out), metrics


def without(batch: KVBatchMeta, out: Sequence[bool]) -> KVBatchMeta:
    """The batch less some rows, which leave the queue as well."""
    if not any(out):
        return batch
    left_out = [key for key, gone in zip(batch.keys, out, strict=True) if gone]
    tq.kv_clear(keys=left_out, partition_id=batch.partition_id)
    kept = [(key, tag) for key, tag, gone in zip(batch.keys, batch.tags, out, strict=True) if not gone]
    return KVBatchMeta(
        partition_id=batch.partition_id,
        keys=[key for key, _ in kept],
        tags=[tag for _, tag in kept],
        extra_info=dict(batch.extra_info or {}),
    )


def _watched(buffer: Any, stall_seconds: float) -> Callable[[str, float], float]:
    """`ReplayBuffer._wait_for_next_poll` that gives up. verl/trainer/ppo/v1/replay_buffer.py polls for ever, so a dead
    agent loop worker would hang the run."""
    wait = buffer._wait_for_next_poll
    last_state: Any = None
    last_change = time.monotonic()

    def watched(partition_id: str, last_debug_time: float) -> float:
        nonlocal last_state, last_change
        groups = (buffer.pending_keys, buffer.running_keys, buffer.finished_keys, buffer.failure_keys)
        state = (
            partition_id,
            *(frozenset(keys[partition_id]) for keys in groups),
            len(buffer.partitions[partition_id]),
        )
        now = time.monotonic()
        if state != last_state:
            last_state, last_change = state, now
        elif now - last_change > stall_seconds:
            raise PolicyFailed(
                f"no session finished for {stall_seconds:.0f} s, longer than an episode with its retries may take; "
                f"{len(buffer.running_keys[partition_id])} groups are running: an agent loop worker or the rollout "
                "server is dead"
            )
        return wait(partition_id, last_debug_time)

    return watched
