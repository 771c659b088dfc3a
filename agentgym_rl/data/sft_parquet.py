"""Trajectories -> a parquet file of conversations to imitate, with a flag per message that says whether it is trained.

A reply is trained when the environment understood it and no token limit cut it off; other replies stay in the
conversation as context. Where a reply was sampled token by token, its ids go along: its text may have other ids when it
is encoded again, and those would not be what the policy said. What was not worth imitating as a whole is filtered out
before (`select.py`); only what can't be imitated is left out here, and said so.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentgym_rl.data.replaced import replaced
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message
from agentgym_rl.trajectory import Trajectory

logger = logging.getLogger(__name__)


def write_sft(trajectories: Sequence[Trajectory], path: str | Path) -> int:
    """Write the conversations of the trajectories; a warning counts those left out and why.

    Args:
        trajectories: what to imitate, in order.
        path: the parquet file; one row a trajectory with the columns `messages` (`role`, `content`, `loss`,
            `token_ids` or None), `task_id` and `environment`. It appears whole or not at all.

    Returns:
        How many were written.

    Raises:
        DataError: none is left.
    """
    import pyarrow
    import pyarrow.parquet

    reasons = [_why_not(trajectory) for trajectory in trajectories]
    left_out = Counter(reason for reason in reasons if reason)
    said = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common())
    rows = [_to_row(t) for t, reason in zip(trajectories, reasons, strict=True) if not reason]
    if not rows:
        raise DataError(f"there is no trajectory to write to {path}; left out: {said or 'none'}")
    if left_out:
        logger.warning("%s: %d of %d trajectories left out (%s)", path, left_out.total(), len(trajectories), said)
    with replaced(path) as beside:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=_schema()), beside)
    return len(rows)


def can_be_imitated(trajectory: Trajectory) -> bool:
    """Whether `write_sft` takes it: it did not fail, and at least one of its replies is trained."""
    return not _why_not(trajectory)


def _why_not(trajectory: Trajectory) -> str:
    """Why a trajectory can't be imitated; empty if it can."""
    if trajectory.failure:
        return f"failed: {trajectory.failure.cause}"
    if not any(_trained(trajectory)):
        return "without a valid reply"
    return ""


def _trained(trajectory: Trajectory) -> list[bool]:
    """Per turn, whether its reply is worth imitating."""
    return [turn.valid and turn.reply.complete for turn in trajectory.turns]


def _to_row(trajectory: Trajectory) -> dict[str, Any]:
    messages = [_to_cell(message) for message in trajectory.opening]
    for turn, trained in zip(trajectory.turns, _trained(trajectory), strict=True):
        sampled = turn.reply.tokens
        messages.append(_to_cell(turn.reply.message, trained, list(sampled.ids) if sampled else None))
        messages += [_to_cell(message) for message in turn.observation]
    return {"messages": messages, "task_id": trajectory.task.id, "environment": trajectory.task.environment}


def _to_cell(message: Message, trained: bool = False, token_ids: list[int] | None = None) -> dict[str, Any]:
    return {**message.to_chat(), "loss": trained, "token_ids": token_ids}


def _schema() -> Any:
    import pyarrow as pa

    text, ids = pa.string(), pa.list_(pa.int64())
    message = pa.struct([("role", text), ("content", text), ("loss", pa.bool_()), ("token_ids", ids)])
    return pa.schema([("messages", pa.list_(message)), ("task_id", text), ("environment", text)])
