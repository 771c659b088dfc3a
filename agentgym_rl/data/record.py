"""A record: a trajectory with where it comes from and what was found out about it.

A record never changes: a step that adds annotations makes a new record with the same id, and what is made of another
trajectory names that one as its parent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentgym_rl.trajectory import Trajectory


@dataclass(frozen=True)
class Provenance:
    """How a trajectory came about. Its task, with environment and seed, is in the trajectory itself."""

    source: str
    """Which step made it, such as "collect" or "import"."""
    episode: int = 0
    """Which of its task's episodes, from 0."""
    policy: str = ""
    """Spec of the policy; a checkpoint with the digest of its files. Empty: unknown."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Temperature, seed and limits (JSON values)."""
    environment_version: str = ""
    """The environment's distribution and its version; empty: unknown."""
    code_version: str = ""
    """Of this package; empty: unknown."""
    parent: str | None = None
    """Id of the record that it was made of."""
    perturbation: str | None = None
    """What was changed in the parent."""


@dataclass(frozen=True)
class Record:
    """One row of a store."""

    id: str
    """Unique in its store; the same in every store that was made of it."""
    trajectory: Trajectory
    provenance: Provenance
    annotations: Mapping[str, Any] = field(default_factory=dict)
    """Name -> JSON value."""


def record_id(*parts: Any) -> str:
    """16 hexadecimal digits that say who a record is: equal for equal JSON values."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
