"""The records of a store by their place in it: a few of them, in any order, without reading all.

A look at the store as it was when this was made. What stands before a record in its part is passed over, a few rows at
a time: whoever asks for as many neighbours as a part has reads each part once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_rl.data.record import Record
from agentgym_rl.data.record_columns import values
from agentgym_rl.data.record_rows import schema
from agentgym_rl.data.store import RECORDS_AT_ONCE, TrajectoryStore
from agentgym_rl.data.store_rows import Rows


class StorePlaces:
    """Places count from 0, in the order of `TrajectoryStore.records`."""

    def __init__(self, store: TrajectoryStore):
        import pyarrow.parquet

        self._groups: list[_RowGroup] = []
        self._size = 0
        for part in store.parts():
            found = pyarrow.parquet.read_metadata(part)
            for number in range(found.num_row_groups):
                self._groups.append(_RowGroup(self._size, part, number))
                self._size += found.row_group(number).num_rows

    def __len__(self) -> int:
        return self._size

    def columns(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """These columns of all records, in order."""
        for group in self._groups:
            for batch in _batches(group, names):
                yield from zip(*map(values, batch.columns), strict=True)

    def at(self, places: Sequence[int]) -> list[Record]:
        """The records at these places, as they are given.

        Raises:
            DataError: one can't be read.
            IndexError: there is no such place.
        """
        found: dict[int, Record] = {}
        for group, wanted in self._by_group(places).items():
            found.update(_records(group, wanted))
        return [found[place] for place in places]

    def _by_group(self, places: Sequence[int]) -> dict[_RowGroup, list[int]]:
        wanted: dict[_RowGroup, list[int]] = {}
        for place in sorted(set(places)):
            if not 0 <= place < self._size:
                raise IndexError(f"a store of {self._size} records has no place {place}")
            last = bisect_right(self._groups, place, key=lambda group: group.first) - 1
            wanted.setdefault(self._groups[last], []).append(place)
        return wanted


class _RowGroup(NamedTuple):
    """Rows that lie together in a part."""

    first: int
    """Place of its first one."""
    part: Path
    number: int


def _records(group: _RowGroup, places: Sequence[int]) -> Iterator[tuple[int, Record]]:
    """(place, record) of the places in it, which are in order."""
    import pyarrow

    begin = group.first
    for batch in _batches(group, schema().names):
        here = [place for place in places if begin <= place < begin + batch.num_rows]
        if here:
            rows = batch.take(pyarrow.array([place - begin for place in here]))
            yield from zip(here, Rows(rows, group.part).records, strict=True)
        begin += batch.num_rows
        if begin > places[-1]:
            return


def _batches(group: _RowGroup, names: Sequence[str]) -> Iterator[Any]:
    import pyarrow.dataset

    [fragment] = pyarrow.dataset.dataset(group.part, schema=schema()).get_fragments()
    rows = fragment.subset(row_group_ids=[group.number], schema=schema())
    how = {"batch_size": RECORDS_AT_ONCE, "batch_readahead": 1}
    return rows.scanner(schema=schema(), columns=list(names), **how).to_batches()
