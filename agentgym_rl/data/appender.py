"""Appends records one at a time, or rows as they lie in another store, as parts of a useful size."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from agentgym_rl.data.record import Record
from agentgym_rl.data.record_rows import to_table
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.store_rows import Rows
from agentgym_rl.errors import DataError

PART_SIZE = 256


class Appender:
    """To be used in a `with` statement.

    Records wait until there are `part_size` of them, or `flush` is called; at the end, also after an error, those that
    wait are written. A kill loses only those that wait, and a record that can't be written none of the others.
    """

    def __init__(self, store: TrajectoryStore, part_size: int = PART_SIZE):
        self._store = store
        self._part_size = part_size
        self._waiting: list[Record] = []

    def append(self, record: Record) -> None:
        """Add a record.

        Raises:
            DataError: this one, or one that waits, can't be written.
        """
        self._waiting.append(record)
        if len(self._waiting) >= self._part_size:
            self.flush()

    def flush(self) -> None:
        """Write those that wait.

        Raises:
            DataError: one can't be written; the others are.
        """
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            self._store.append(waiting)
        except DataError:
            good = [record for record in waiting if _can_be_written(record)]
            if good:
                self._store.append(good)
            raise

    def __enter__(self) -> Appender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.flush()


class RowAppender:
    """Likewise for rows; what waits when an error comes is not written."""

    def __init__(self, store: TrajectoryStore):
        self._store = store
        self._waiting: list[Any] = []
        self._size = 0

    def append(self, rows: Rows) -> None:
        """Add the rows, of which there may be none."""
        self._waiting.append(rows.batch)
        self._size += len(rows)
        if self._size >= PART_SIZE:
            self._flush()

    def _flush(self) -> None:
        import pyarrow

        waiting, self._waiting, size, self._size = self._waiting, [], self._size, 0
        if size:
            self._store.append_table(pyarrow.Table.from_batches(waiting))

    def __enter__(self) -> RowAppender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()


def _can_be_written(record: Record) -> bool:
    try:
        to_table([record])
    except DataError:
        return False
    return True
