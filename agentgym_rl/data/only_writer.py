"""One process at a time looks what a store lacks and adds it: two would play, or import, the same twice.

The kernel gives the lock back when its holder is gone, however it went.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentgym_rl.errors import ConfigurationError

LOCK_FILE = "_lock"  # `datasets` passes over names that begin with "_"


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Be the only one that adds to the store in this folder.

    Raises:
        ConfigurationError: there is another one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigurationError(f"another process is adding to the store {folder}") from error
        yield
    finally:
        os.close(held)
