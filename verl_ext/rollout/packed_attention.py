"""Attention over a packed batch with a paged cache, for continuous batching on a CPU.

transformers' own "paged|sdpa" attends every query of the batch to every key of the batch and masks the rest away; with
128 sessions that is 128 times the work. Here each sequence attends to its own keys: the sequences that decode (one
query each) together in one padded call, each prefill on its own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

NAME = "paged|packed"


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each sequence of a packed batch.

    Args:
        query: [1, heads, Q, head size], Q the queries of all sequences.
        key, value: [1, key-value heads, Q, head size], written to the cache, which returns all past keys as well.
        kwargs: `cache`, `read_index`, `write_index`, `cu_seq_lens_q`, `cu_seq_lens_k` of continuous batching.

    Returns:
        [1, Q, heads, head size], and no weights.
    """
    key, value = kwargs["cache"].update(
        key_states=key,
        value_states=value,
        layer_idx=module.layer_idx,
        read_index=kwargs["read_index"],
        write_index=kwargs["write_index"],
    )
    starts_k = kwargs["cu_seq_lens_k"]
    starts_k = starts_k["full_attention"] if isinstance(starts_k, dict) else starts_k
    starts_q = kwargs["cu_seq_lens_q"].tolist()
    query_lengths, key_lengths = kwargs["cu_seq_lens_q"].diff().tolist(), starts_k.diff().tolist()
    queries = query[0].transpose(0, 1)
    keys = key[: sum(key_lengths)].split(key_lengths)
    values = value[: sum(key_lengths)].split(key_lengths)
    options = {"scale": scaling, "enable_gqa": module.num_key_value_groups > 1}

    out = torch.empty_like(queries)
    decoding = [i for i, length in enumerate(query_lengths) if length == 1]
    if decoding:
        rows = torch.tensor([starts_q[i] for i in decoding])
        out[rows] = _decode(queries[rows], [keys[i] for i in decoding], [values[i] for i in decoding], options)
    for i, length in enumerate(query_lengths):
        if length > 1:
            rows = slice(starts_q[i], starts_q[i] + length)
            out[rows] = _prefill(queries[rows], keys[i], values[i], options)
    return out.unsqueeze(0), None


def _decode(
    queries: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor], options: dict[str, Any]
) -> torch.Tensor:
    """One query for each of B sequences: [B, heads, head size]."""
    padded_keys = pad_sequence(keys, batch_first=True).transpose(1, 2)
    padded_values = pad_sequence(values, batch_first=True).transpose(1, 2)
    lengths = torch.tensor([len(k) for k in keys])
    mask = (torch.arange(padded_keys.shape[2]) < lengths[:, None])[:, None, None, :]
    return scaled_dot_product_attention(queries[:, :, None], padded_keys, padded_values, attn_mask=mask, **options)[
        :, :, 0
    ]


def _prefill(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
    """The last Q positions of one sequence of K keys: [Q, heads, head size]."""
    new, total = len(query), len(key)
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (query, key, value))
    mask = torch.ones(new, total, dtype=torch.bool).tril(total - new)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)[0].transpose(0, 1)


def register() -> None:
    """Make the name known to transformers; the mask is built here, so transformers builds none."""
    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, lambda *_, **__: None)
