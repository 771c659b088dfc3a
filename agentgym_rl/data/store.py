"""A trajectory store: a folder of parquet files ("parts") with one schema, read as one sequence of records.

A part is written beside its place and renamed into it, so that a writer that is killed leaves the store as it was; what
such a writer left behind, and a part that can't be read, are ignored and reported. Parts are never changed, and reading
holds a row group at a time, however large the store is. `FOLDER/part-*.parquet` is all that pandas, `datasets` and
DuckDB need to know.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agentgym_rl.data.record import Record
from agentgym_rl.data.record_columns import values
from agentgym_rl.data.record_rows import schema, to_table
from agentgym_rl.data.replaced import replaced
from agentgym_rl.data.store_query import Query
from agentgym_rl.data.store_rows import Rows
from agentgym_rl.errors import DataError

logger = logging.getLogger(__name__)

PART = re.compile(r"part-(\d{6,})-[0-9a-f]{8}\.parquet")
RECORDS_AT_ONCE = 64
"""Records that are held as objects while a store is read; as Arrow's columns, those of a row group are."""
ROW_GROUP_RECORDS, ROW_GROUP_BYTES = 256, 64 * 2**20
"""Most of one, whichever is reached first: many records are read faster together, large ones need memory."""


class TrajectoryStore:
    """The store in a folder; one that does not exist is empty until something is appended.

    Args:
        folder: of the parts.
        on_record: called after each record that was read, for a progress bar.

    Attributes:
        ignored: what is no part of the store although it lies there -> why.
    """

    def __init__(self, folder: str | Path, on_record: Callable[[], None] = lambda: None):
        self.folder = Path(folder)
        self.on_record = on_record
        self.ignored: dict[Path, str] = {}
        self._whole: set[Path] = set()

    @classmethod
    def existing(cls, folder: str | Path, on_record: Callable[[], None] = lambda: None) -> TrajectoryStore:
        """A store to read from.

        Raises:
            DataError: there is no such folder, or no part in it.
        """
        store = cls(folder, on_record)
        if not store.parts():
            raise DataError(f"there is no trajectory store at {folder}; it needs a file part-*.parquet")
        return store

    def append(self, records: Sequence[Record]) -> None:
        """Write the records as one part; they are there for good when this returns, all of them or none.

        Raises:
            DataError: no record, or one that can't be written.
        """
        if not records:
            raise DataError(f"there is no record to append to {self.folder}")
        self.append_table(to_table(records))

    def append_table(self, table: Any) -> None:
        """Likewise rows of an Arrow table that has the schema of all stores."""
        import pyarrow.parquet

        # Two writers may take the same number: the digest keeps them from taking each other's place.
        digest = hashlib.sha256(" ".join(values(table.column("id"))).encode()).hexdigest()[:8]
        path = self.folder / f"part-{self._next_number():06d}-{digest}.parquet"
        with replaced(path) as beside:
            pyarrow.parquet.write_table(table, beside, compression="zstd", row_group_size=_row_group_size(table))

    def records(self, query: Query | None = None) -> Iterator[Record]:
        """The records in the order in which they were appended.

        Raises:
            DataError: a record that can't be read as one.
        """
        for rows in self.rows(query):
            yield from rows.records

    def rows(self, query: Query | None = None) -> Iterator[Rows]:
        """The same as they lie there, a few at a time."""
        for part, batch in self._batches(schema().names, query or Query()):
            yield Rows(batch, part)
            for _ in range(batch.num_rows):
                self.on_record()

    def columns(self, *names: str, query: Query | None = None) -> Iterator[tuple[Any, ...]]:
        """These columns of the records, which is much faster than whole records."""
        for _, batch in self._batches(names, query or Query()):
            yield from zip(*map(values, batch.columns), strict=True)

    def ids(self) -> set[str]:
        return {id for (id,) in self.columns("id")}

    def __len__(self) -> int:
        import pyarrow.parquet

        return sum(pyarrow.parquet.read_metadata(part).num_rows for part in self.parts())

    def parts(self) -> list[Path]:
        """The files of the store in order; whatever else looks like one is ignored and reported once."""
        found = sorted(self.folder.iterdir()) if self.folder.is_dir() else []
        for path in found:
            if path not in self._whole and path not in self.ignored:
                self._judge(path)
        return [path for path in found if path in self._whole]

    def _judge(self, path: Path) -> None:
        if PART.fullmatch(path.name):
            why = _why_unreadable(path)
        elif path.name.startswith(".part-"):
            why = "it was being written when its writer stopped, or still is"
        else:
            return
        if why:
            self.ignored[path] = why
            logger.warning("%s is ignored: %s", path, why)
        else:
            self._whole.add(path)

    def _next_number(self) -> int:
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        return max((int(found[1]) for name in names if (found := PART.fullmatch(name))), default=-1) + 1

    def _batches(self, names: Sequence[str], query: Query) -> Iterator[tuple[Path, Any]]:
        """Arrow record batches, each with the part that it is of."""
        import pyarrow.dataset

        for part in self.parts():
            scanner = pyarrow.dataset.dataset(part, schema=schema()).scanner(
                columns=list(names), filter=query.expression(), batch_size=RECORDS_AT_ONCE, batch_readahead=1
            )
            for batch in scanner.to_batches():
                yield part, batch


def _row_group_size(table: Any) -> int:
    """Records of each row group."""
    fitting = ROW_GROUP_BYTES * table.num_rows // max(table.nbytes, 1)
    return max(1, min(ROW_GROUP_RECORDS, fitting))


def _why_unreadable(path: Path) -> str:
    """Why a file is no part of a store; empty if it is one. The footer is written last: a torn file has none."""
    import pyarrow.parquet

    try:
        found = pyarrow.parquet.read_schema(path)
    except (pyarrow.ArrowException, OSError) as error:
        return f"it is torn or no parquet file ({error})"
    missing = [name for name in schema().names if name not in found.names]
    return f"it has no column {missing[0]!r}" if missing else ""
