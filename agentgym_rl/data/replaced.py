"""Whole files or none: write beside the target, then put it in the target's place in one step."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced(path: str | Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the place of `path` at the end, or is removed after an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")  # of this writer alone
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
