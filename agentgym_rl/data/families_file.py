"""The families of an augmentation under way, one line each as they are done, in whatever order.

Invariant: a line is a whole family, with what became of its tries, or it counts for nothing; what a kill cut off is
played again, and nothing else is. A family of which the policy failed tries is there, but not done: it is played again,
and its newest line stands.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from agentgym_rl.data.augment_report import Report
from agentgym_rl.data.record import Record
from agentgym_rl.data.record_json import from_dict, to_dict
from agentgym_rl.data.record_rows import to_table
from agentgym_rl.errors import DataError

logger = logging.getLogger(__name__)


class Family(NamedTuple):
    """What could be made of one trajectory."""

    made: list[Record]
    """Without the trajectory itself."""
    report: Report


class FamiliesFile:
    """Opens or begins the file at `path`; to be used in a `with` statement.

    Args:
        path: where the lines go.
        rules: of the augmentation.
        takes_failed: a family of which the policy failed tries is done as well.

    Attributes:
        report: of all families that are done, or were added.
    """

    def __init__(self, path: Path, rules: Iterable[str], takes_failed: bool = False):
        self._path = path
        self._file = path.open("a+b")
        self._places: dict[int, int] = {}
        self.report = Report(rules)
        failed: dict[int, tuple[int, Report]] = {}
        for place, number, report in self._rows():
            if report.policy_failures:
                failed[number] = place, report
            else:
                failed.pop(number, None)
                self._count(number, place, report)
        if takes_failed:
            for number, (place, report) in failed.items():
                self._count(number, place, report)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def add(self, number: int, family: Family) -> None:
        """Keep the family of the trajectory with this number, from 0; a kill does not take it when this returns.

        Raises:
            DataError: a record can't be written to a store.
        """
        if family.made:
            to_table(family.made)  # not hours later, when the store is made
        row = {"number": number, "report": family.report.to_json(), "made": [to_dict(one) for one in family.made]}
        place = self._file.seek(0, 2)
        self._file.write(json.dumps(row).encode() + b"\n")
        self._file.flush()
        self._count(number, place, family.report)

    def made_of(self, number: int) -> list[Record]:
        """What was made of the trajectory with this number.

        Raises:
            DataError: other code than this wrote it.
        """
        self._file.seek(self._places[number])
        try:
            return [from_dict(row) for row in json.loads(self._file.readline())["made"]]
        except (DataError, KeyError, TypeError) as error:
            raise DataError(f"the family {number} in {self._path} can't be read: {error}; remove that file") from error

    def _count(self, number: int, place: int, report: Report) -> None:
        self._places[number] = place
        self.report.add(report)

    def _rows(self) -> Iterator[tuple[int, int, Report]]:
        """Place, number and report of each line; an unfinished last one is cut off."""
        self._file.seek(0)
        place = 0
        while line := self._file.readline():
            if not line.endswith(b"\n"):
                self._file.truncate(place)
                return
            try:
                row = json.loads(line)
                found = place, row["number"], Report.from_json(row["report"])
            except (ValueError, KeyError, TypeError) as error:
                logger.warning("a line of %s is ignored, and its family played again: %r", self._path, error)
            else:
                yield found
            place += len(line)

    def __enter__(self) -> FamiliesFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._file.close()
