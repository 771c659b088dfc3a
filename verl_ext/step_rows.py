"""What a training step needs to know of verl's rows, read from the queue that holds them."""

from __future__ import annotations

from typing import Any

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta

from verl_ext.advantages.rows import KnownRows


def real_keys(batch: KVBatchMeta) -> list[str]:
    """Keys of the rows that are no padding."""
    return [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]


def sessions_of(batch: KVBatchMeta) -> int:
    """How many sessions the rows come from. A key reads `{group}_{session}_{segment}`."""
    return len({key.rsplit("_", 1)[0] for key in real_keys(batch)})


def extra_fields(batch: KVBatchMeta, keys: list[str]) -> list[dict[str, Any]]:
    """`AgentLoopOutput.extra_fields` of these rows; `episode` is None where an agent loop of verl gave none."""
    rows = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
    return [{"episode": None, **fields} for fields in rows.pop("extra_fields").tolist()]


def known_rows(batch: KVBatchMeta, with_values: bool, bootstrapped: frozenset[str]) -> KnownRows:
    """The rows of a step as the estimators' side wants to know them.

    Args:
        batch: in verl's order, with padding.
        with_values: whether there is a critic.
        bootstrapped: see `KnownRows`.
    """
    fields = ["response_mask", *(["values"] if with_values else [])]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    lengths = data["response_mask"].offsets().diff().tolist()
    padded = data.to_padded_tensor()
    real = real_keys(batch)
    facts = dict(zip(real, extra_fields(batch, real), strict=True))
    return KnownRows(
        keys=batch.keys,
        mask_NR=padded["response_mask"].to(torch.bool),
        lengths_N=lengths,
        facts_N=[facts[key]["episode"] if key in facts else None for key in batch.keys],
        bootstrapped=bootstrapped,
        values_NR=padded["values"] if with_values else None,
    )
