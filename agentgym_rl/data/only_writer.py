"""One process at a time looks what a store lacks and adds it: two would play, or import, the same twice.

The kernel gives the lock back when its holder is gone, however it went. A holder may put the folder away.
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
    try:
        held = _locked(folder)
    except (BlockingIOError, FileNotFoundError) as error:
        raise ConfigurationError(f"another process is adding to the store {folder}") from error
    try:
        yield
    finally:
        os.close(held)


def _locked(folder: Path) -> int:
    """The lock's file descriptor.

    Raises:
        BlockingIOError: somebody else holds it.
        FileNotFoundError: who held it has just put the folder away.
    """
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.stat(folder / LOCK_FILE), os.fstat(held)):
            raise FileNotFoundError(folder)
    except OSError:
        os.close(held)
        raise
    return held
