"""Record <-> dictionary of JSON values, named as the fields are; what is read back equals what was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from agentgym_rl.data import trajectory_json
from agentgym_rl.data.record import Provenance, Record


def to_dict(record: Record) -> dict[str, Any]:
    """A dictionary that `json.dumps` takes."""
    return {**asdict(record), "trajectory": trajectory_json.to_dict(record.trajectory)}


def from_dict(row: Mapping[str, Any]) -> Record:
    """Read what `to_dict` gave.

    Raises:
        DataError: its trajectory is none.
        KeyError, TypeError: a field is missing or unknown.
    """
    trajectory, provenance = trajectory_json.from_dict(row["trajectory"]), Provenance(**row["provenance"])
    return Record(**{**row, "trajectory": trajectory, "provenance": provenance})
