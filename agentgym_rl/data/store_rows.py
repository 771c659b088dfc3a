"""Rows of a store as they lie there: what their columns say at once, and the record where it is asked for.

Making a record takes much longer than all else that is done with a row. A step that only looks at columns, and
copies rows as they are, makes none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agentgym_rl.data.record import Record
from agentgym_rl.data.record_columns import to_records, values
from agentgym_rl.errors import DataError
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Trajectory

COLUMNS = ("id", "task_id", "environment", "success", "return", "num_turns", "failure_cause", "task", "annotations")
"""Of a `Row`, in the order of its fields."""


@dataclass(frozen=True)
class Row:
    """One row; the fields are the columns' values."""

    id: str
    task_id: str
    environment: str
    success: bool | None
    environment_return: float
    num_turns: int
    failure_cause: str | None
    task_text: str
    annotations_text: str
    read: Callable[[], Record]

    @cached_property
    def task(self) -> Task:
        return Task.from_json(self.task_text)

    @cached_property
    def annotations(self) -> dict[str, Any]:
        return json.loads(self.annotations_text)

    @property
    def trajectory(self) -> Trajectory:
        """Takes long.

        Raises:
            DataError: the record can't be read.
        """
        return self.read().trajectory


class Rows:
    """Some rows, held at a time.

    Args:
        batch: Arrow record batch with every column of the schema.
        source: the file that they come from, for messages.
    """

    def __init__(self, batch: Any, source: object):
        self.batch = batch
        self._source = source

    def __len__(self) -> int:
        return self.batch.num_rows

    def __iter__(self) -> Iterator[Row]:
        columns = (values(self.batch.column(name)) for name in COLUMNS)
        for place, said in enumerate(zip(*columns, strict=True)):
            yield Row(*said, read=lambda place=place: self.records[place])  # type: ignore[misc]

    def where(self, keep: Sequence[bool]) -> Rows:
        """Those that are kept, place by place."""
        import pyarrow

        return self if all(keep) else Rows(self.batch.filter(pyarrow.array(keep, pyarrow.bool_())), self._source)

    @cached_property
    def records(self) -> list[Record]:
        """All of them, made at once.

        Raises:
            DataError: one can't be read.
        """
        try:
            return to_records(self.batch)
        except (DataError, ValueError, TypeError, KeyError) as error:
            raise self._named(error) from error

    def _named(self, error: Exception) -> DataError:
        """The same error with the id of the record that it is about: the first that can't be read alone."""
        for place in range(len(self)):
            try:
                to_records(self.batch.slice(place, 1))
            except (DataError, ValueError, TypeError, KeyError) as own:
                id = self.batch.column("id")[place].as_py()
                return DataError(f"{self._source}: record {id!r} can't be read: {own}")
        return DataError(f"{self._source}: the records can't be read: {error}")
