"""Trajectories -> a parquet file of conversations to imitate, with a flag per message that says whether it is trained.

A reply is trained when the environment understood it and no token limit cut it off; other replies stay in the
conversation as context. Where a reply was sampled token by token, its ids go along: its text may have other ids when it
is encoded again, and those would not be what the policy said. What was not worth imitating as a whole is filtered out
before (`select.py`, `filter.py`); only what can't be imitated is left out here, and said so.

The file is for `SftDataset` (verl_ext): verl's own `MultiTurnSFTDataset` knows neither flags nor ids.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from agentgym_rl.data.encodable import encodable
from agentgym_rl.data.replaced import replaced
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message
from agentgym_rl.trajectory import Trajectory, Turn

logger = logging.getLogger(__name__)

TRAINED = "trained"
"""A turn whose `info` has False under this name is context only, whatever else holds."""
ROWS_AT_ONCE = 256
"""Rows that are held while a file is written."""


def write_sft(trajectories: Iterable[Trajectory], path: str | Path) -> int:
    """Write the conversations of the trajectories; a warning counts those left out and why.

    Args:
        trajectories: what to imitate, in order.
        path: the parquet file; one row a trajectory with the columns `messages` (`role`, `content`, `loss`,
            `token_ids` or None, `tool_calls` and `tool_call_id` as servers have them), `task_id` and `environment`. It
            appears whole or not at all.

    Returns:
        How many were written.

    Raises:
        DataError: none is left.
    """
    import pyarrow
    import pyarrow.parquet

    left_out: Counter[str] = Counter()
    rows = (_to_row(trajectory) for trajectory in imitable(trajectories, left_out))
    written = 0
    with replaced(path) as beside:
        with pyarrow.parquet.ParquetWriter(beside, _schema()) as writer:
            while several := list(islice(rows, ROWS_AT_ONCE)):
                writer.write_table(pyarrow.Table.from_pylist(several, schema=_schema()))
                written += len(several)
        report_left_out(path, written, left_out)
    return written


def imitable(trajectories: Iterable[Trajectory], left_out: Counter[str]) -> Iterator[Trajectory]:
    """Those that can be imitated; the others are counted by the reason why not."""
    for trajectory in trajectories:
        reason = _why_not(trajectory)
        if reason:
            left_out[reason] += 1
        else:
            yield trajectory


def report_left_out(path: str | Path, written: int, left_out: Counter[str]) -> None:
    """Warn of what was left out of a file.

    Raises:
        DataError: nothing was written.
    """
    said = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common())
    if not written:
        raise DataError(f"there is no trajectory to write to {path}; left out: {said or 'none'}")
    if left_out:
        total = left_out.total()
        logger.warning("%s: %d of %d trajectories left out (%s)", path, total, total + written, said)


def can_be_imitated(trajectory: Trajectory) -> bool:
    """Whether `write_sft` takes it: it did not fail, and at least one of its replies is trained."""
    return not _why_not(trajectory)


def is_trained(turn: Turn) -> bool:
    """Whether a turn's reply is worth imitating."""
    return turn.valid and turn.reply.complete and turn.info.get(TRAINED) is not False


def _why_not(trajectory: Trajectory) -> str:
    """Why a trajectory can't be imitated; empty if it can."""
    if trajectory.failure:
        return f"failed: {trajectory.failure.cause}"
    if not any(map(is_trained, trajectory.turns)):
        return "without a valid reply"
    return ""


def _to_row(trajectory: Trajectory) -> dict[str, Any]:
    messages = [_to_cell(message) for message in trajectory.opening]
    for turn in trajectory.turns:
        sampled = turn.reply.tokens
        messages.append(_to_cell(turn.reply.message, is_trained(turn), list(sampled.ids) if sampled else None))
        messages += [_to_cell(message) for message in turn.observation]
    return {"messages": messages, "task_id": trajectory.task.id, "environment": trajectory.task.environment}


def _to_cell(message: Message, trained: bool = False, token_ids: list[int] | None = None) -> dict[str, Any]:
    chat = message.to_chat()
    for call in chat.get("tool_calls", ()):
        call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    return {**encodable(chat), "loss": trained, "token_ids": token_ids}


def _schema() -> Any:
    import pyarrow as pa

    text, ids = pa.string(), pa.list_(pa.int64())
    call = pa.struct([("id", text), ("type", text), ("function", pa.struct([("name", text), ("arguments", text)]))])
    calling = [("tool_calls", pa.list_(call)), ("tool_call_id", text)]
    message = pa.struct([("role", text), ("content", text), ("loss", pa.bool_()), ("token_ids", ids), *calling])
    return pa.schema([("messages", pa.list_(message)), ("task_id", text), ("environment", text)])
