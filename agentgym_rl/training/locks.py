"""One driver a folder, and one command a driver: locks that the kernel gives back when their holder is gone."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentgym_rl.errors import ConfigurationError

DRIVER_LOCK = ".lock"
COMMAND_LOCK = ".command.lock"
WAIT_SECONDS = 60.0
"""For the command of a driver that was killed, which is ended with it."""


@contextmanager
def driver_lock(folder: Path) -> Iterator[None]:
    """Be the only driver in this folder.

    Raises:
        ConfigurationError: there is another one, or a command of an earlier one does not end.
    """
    held = os.open(folder / DRIVER_LOCK, os.O_RDWR | os.O_CREAT)
    try:
        if not _taken(held):
            raise ConfigurationError(f"another run of a plan is at work in {folder}")
        _await_earlier_command(folder)
        yield
    finally:
        os.close(held)


def _await_earlier_command(folder: Path) -> None:
    lock = os.open(folder / COMMAND_LOCK, os.O_RDWR | os.O_CREAT)
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        while not _taken(lock):
            if time.monotonic() > deadline:
                raise ConfigurationError(f"a command of an earlier run is still at work in {folder}; end it first")
            time.sleep(0.05)
    finally:
        os.close(lock)


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
