"""What is to be judged, read a few trajectories at a time: those of a store, or of a JSON Lines file.

Numbers count the trajectories from 0, in their order.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.store_places import StorePlaces
from agentgym_rl.data.trajectory_json import read_line
from agentgym_rl.errors import DataError
from agentgym_rl.trajectory import Failure, Trajectory


class About(NamedTuple):
    """What tells which trajectories are judged side by side."""

    environment: str
    task: str
    can_be_judged: bool


class Given(Protocol):
    """Trajectories that are held by whoever asks for them, and only by them."""

    def __len__(self) -> int: ...

    def at(self, numbers: Sequence[int]) -> list[Trajectory]:
        """Those with these numbers, as they are given.

        Raises:
            DataError: one can't be read.
        """

    def about(self) -> Iterator[About]:
        """One for each, in order.

        Raises:
            DataError: a trajectory can't be read.
        """


class StoreGiven:
    """Those of a store, as it is when this is made."""

    def __init__(self, store: TrajectoryStore):
        self._places = StorePlaces(store)

    def __len__(self) -> int:
        return len(self._places)

    def at(self, numbers: Sequence[int]) -> list[Trajectory]:
        return [record.trajectory for record in self._places.at(numbers)]

    def about(self) -> Iterator[About]:
        for environment, task, failure, turns in self._places.columns(
            "environment", "task_id", "failure_cause", "num_turns"
        ):
            yield About(environment, task, failure is None and turns > 0)


class FileGiven:
    """Those of a file of `eval --save-trajectories`, which must not change meanwhile.

    Raises:
        DataError: there is no such file.
    """

    def __init__(self, path: str | Path):
        self._path = path
        self._begins = array("Q", [0])
        """Where each line begins, in bytes, and where the last one ends."""
        try:
            with open(path, "rb") as file:
                for line in file:
                    self._begins.append(self._begins[-1] + len(line))
        except FileNotFoundError as error:
            raise DataError(f"there is no file {path}") from error

    def __len__(self) -> int:
        return len(self._begins) - 1

    def at(self, numbers: Sequence[int]) -> list[Trajectory]:
        with open(self._path, "rb") as file:
            return [self._read(file, number) for number in numbers]

    def about(self) -> Iterator[About]:
        with open(self._path, "rb") as file:
            for number, line in enumerate(file, start=1):
                read = read_line(line, number, self._path)
                yield About(read.task.environment, read.task.id, why_not(read) is None)

    def _read(self, file: BinaryIO, number: int) -> Trajectory:
        file.seek(self._begins[number])
        return read_line(file.read(self._begins[number + 1] - self._begins[number]), number + 1, self._path)


def why_not(trajectory: Trajectory) -> Failure | None:
    """Why a trajectory can't be judged."""
    if trajectory.failure is None and not trajectory.turns:
        return Failure("nothing_sampled", "the policy took no turn")
    return trajectory.failure
