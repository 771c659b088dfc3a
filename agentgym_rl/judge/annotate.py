"""A store's records with what a judge said about them, so that filters and exports can ask for it.

Annotations: `judge` (the score from 0 to 1; None where there is none, which no threshold takes for a number),
`judge_reason`, `judge_model`, and `judge_failure` (why there is no score; None where there is one).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from agentgym_rl.data.derive import Derived, derive
from agentgym_rl.data.record import Record
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.errors import DataError
from agentgym_rl.judge.judgements import Judgement
from agentgym_rl.judge.transcript import digest, transcript


def annotate_judged(source: TrajectoryStore, out: str | Path, judgements: Sequence[Judgement]) -> Derived:
    """Write a store of the same records with these judgements; where it is there already, that one.

    The same verdicts are the same step, whatever they cost.

    Args:
        judgements: one for each record, in their order.

    Raises:
        ConfigurationError: something else is at `out`.
        DataError: the judgements are about other trajectories.
    """
    said = [(row.trajectory, row.judge, row.score, row.reason, row.failure) for row in judgements]
    step = {"name": "judge", "judgements": digest(json.dumps(said))}
    return derive(source, out, step, lambda records, folder: judged(records, judgements))


def judged(records: Iterable[Record], judgements: Sequence[Judgement]) -> Iterator[Record]:
    """The records with their judgements, place by place; other annotations stay."""
    seen = 0
    for seen, record in enumerate(records, start=1):
        judgement = judgements[seen - 1] if seen <= len(judgements) else None
        if judgement is None or judgement.trajectory != digest(transcript(record.trajectory)):
            raise DataError(f"there is no judgement about record {seen} of the store, {record.id!r}, in its place")
        found = {
            "judge": judgement.score,
            "judge_reason": judgement.reason,
            "judge_model": judgement.model,
            "judge_failure": judgement.failure,
        }
        yield replace(record, annotations={**record.annotations, **found})
    if seen < len(judgements):
        raise DataError(f"there are {len(judgements)} judgements about {seen} records")
