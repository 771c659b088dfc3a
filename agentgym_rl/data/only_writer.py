"""One process at a time looks what a store lacks and adds it: two would play, or import, the same twice.

The kernel gives the lock back when its holder is gone, however it went. A holder may put the lock's file away, or the
folder that it is in.
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
    with only_holder(folder / LOCK_FILE, f"another process is adding to the store {folder}"):
        yield


@contextmanager
def only_holder(lock: Path, otherwise: str) -> Iterator[None]:
    """Be the only one that holds the lock which this file is; it is made where there is none.

    Raises:
        ConfigurationError: there is another one; it says `otherwise`.
    """
    try:
        held = _locked(lock)
    except (BlockingIOError, FileNotFoundError) as error:
        raise ConfigurationError(otherwise) from error
    try:
        yield
    finally:
        os.close(held)


def _locked(lock: Path) -> int:
    """The lock's file descriptor.

    Raises:
        BlockingIOError: somebody else holds it.
        FileNotFoundError: who held it has just put it away.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    held = os.open(lock, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.stat(lock), os.fstat(held)):
            raise FileNotFoundError(lock)
    except OSError:
        os.close(held)
        raise
    return held
