"""verl's rows as whole trajectories, and what an estimator gives back on the rows.

verl hands an estimator rows in any order, among them padding, and as many a session as it has segments. Here rows of
a session are joined in the order of their segments, and rows without a trained token leave, whatever they stand for:
padding, or a session that rollout correction rejected whole (its reward must not move its group's baseline).

verl calls an estimator with rewards, mask and groups only. What else our trainer knows of the rows is held here while
verl computes advantages (`known`); a stock trainer knows nothing, and each of its rows counts as a session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from verl_ext.advantages.batch import TrajectoryBatch


@dataclass(frozen=True)
class KnownRows:
    """What our trainer knows of N rows."""

    keys: Sequence[str]
    """verl's `{group}_{session}_{segment}`; padding has other keys."""
    mask_NR: torch.Tensor
    """bool [N, R]: what was sampled, also where rollout correction takes it out of the loss."""
    lengths_N: Sequence[int]
    """Tokens of each response."""
    facts_N: Sequence[Mapping[str, Any] | None]
    """`episode_facts` on the last row of each session."""
    bootstrapped: frozenset[str] = frozenset()
    """Stop reasons behind which a critic's value stands for what would have followed."""
    values_NR: torch.Tensor | None = None


@dataclass(frozen=True)
class Joined:
    """Trajectories and the rows that they were made of."""

    batch: TrajectoryBatch
    rows: Sequence[Sequence[int]]
    """Per trajectory the numbers of its rows, in order."""
    lengths: Sequence[int]
    """Tokens of each row."""
    shape: torch.Size
    """[N, R] of the rows."""

    def split(self, x_BR: torch.Tensor) -> torch.Tensor:
        """What belongs to each row [N, R]; 0 on rows of no trajectory."""
        x_NR = x_BR.new_zeros(self.shape)
        for b, rows in enumerate(self.rows):
            start = 0
            for row in rows:
                length = self.lengths[row]
                x_NR[row, :length] = x_BR[b, start : start + length]
                start += length
        return x_NR


_known: ContextVar[KnownRows | None] = ContextVar("known_rows", default=None)


@contextmanager
def known(rows: KnownRows) -> Iterator[None]:
    """Estimators that are called meanwhile see these rows as sessions."""
    token = _known.set(rows)
    try:
        yield
    finally:
        _known.reset(token)


def joined(rewards_NR: torch.Tensor, mask_NR: torch.Tensor, groups_N: Sequence[str]) -> Joined | None:
    """The trajectories of a batch of rows; None where no token of any is trained.

    Args:
        rewards_NR: float [N, R].
        mask_NR: [N, R]: tokens that are trained.
        groups_N: name of each row's group.
    """
    rows = _known.get() or _of_stock(mask_NR)
    sessions = _sessions(rows.keys, mask_NR.bool().any(dim=1).tolist())
    if not sessions:
        return None

    def join(x_NR: torch.Tensor, padding: float = 0.0) -> torch.Tensor:
        whole = [torch.cat([x_NR[row, : rows.lengths_N[row]] for row in session]) for session in sessions]
        return pad_sequence(whole, batch_first=True, padding_value=padding)

    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups_N))}
    facts = [rows.facts_N[session[-1]] for session in sessions]
    values_BR, bootstrap_B = None, None
    if rows.values_NR is not None:
        values_BR = join(rows.values_NR)
        bootstrap_B = _bootstrap(rows, sessions, facts)
    batch = TrajectoryBatch(
        group_B=torch.tensor([numbers[groups_N[session[0]]] for session in sessions]),
        turn_BR=join(_turns(rows.mask_NR, sessions), padding=-1),
        rewards_BR=join(rewards_NR),
        terminated_B=torch.tensor([bool(fact) and fact["stop"] == "terminated" for fact in facts]),
        state_keys=[fact["state_keys"] for fact in facts] if all(facts) else None,
        values_BR=values_BR,
        bootstrap_B=bootstrap_B,
    )
    return Joined(batch, sessions, rows.lengths_N, mask_NR.shape)


def turn_numbers(rows: KnownRows) -> torch.Tensor:
    """int64 [N, R]: number of each sampled token's turn in its session, from 0; -1 elsewhere."""
    return _turns(rows.mask_NR, _sessions(rows.keys, rows.mask_NR.any(dim=1).tolist()))


def _of_stock(mask_NR: torch.Tensor) -> KnownRows:
    count, width = mask_NR.shape
    keys = [f"{row}_0_0" for row in range(count)]
    return KnownRows(keys, mask_NR.bool(), [width] * count, [None] * count)


def _sessions(keys: Sequence[str], trained: Sequence[bool]) -> list[list[int]]:
    """Row numbers of each session with a trained token, by segment; sessions in the order of their first rows."""
    sessions: dict[str, list[tuple[int, int]]] = {}
    for row, key in enumerate(keys):
        session, _, segment = key.rpartition("_")
        if session and segment.isdecimal():
            sessions.setdefault(session, []).append((int(segment), row))
    ordered = ([row for _, row in sorted(rows)] for rows in sessions.values())
    return [rows for rows in ordered if any(trained[row] for row in rows)]


def _turns(mask_NR: torch.Tensor, sessions: Sequence[Sequence[int]]) -> torch.Tensor:
    begins_NR = mask_NR.clone()
    begins_NR[:, 1:] &= ~mask_NR[:, :-1]
    turns_NR = begins_NR.cumsum(dim=1)
    count_N = turns_NR[:, -1].tolist()
    earlier_N = [0] * len(count_N)
    for session in sessions:
        turns = 0
        for row in session:
            earlier_N[row] = turns
            turns += count_N[row]
    turns_NR += torch.tensor(earlier_N)[:, None] - 1
    return turns_NR.masked_fill_(~mask_NR, -1)


def _bootstrap(
    rows: KnownRows, sessions: Sequence[Sequence[int]], facts: Sequence[Mapping[str, Any] | None]
) -> torch.Tensor:
    """float [B]: the value at the end of each trajectory that was cut off, where its stop reason asks for one."""
    assert rows.values_NR is not None
    bootstrap = rows.values_NR.new_zeros(len(sessions))
    for b, (session, fact) in enumerate(zip(sessions, facts, strict=True)):
        if fact and fact["stop"] in rows.bootstrapped:
            last = session[-1]
            bootstrap[b] = rows.values_NR[last, rows.lengths_N[last] - 1]
    return bootstrap
