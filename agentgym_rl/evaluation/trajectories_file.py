"""The whole episodes of an evaluation under way, and the file of trajectories that comes of them.

While it runs, `NAME.episodes` gets a line for each episode that finishes, its number and its JSON, so that a stop
loses none. A last line that was cut off is dropped, and of an episode that was played twice the newer line stands.
Published, the trajectories stand in the order of tasks and episodes, whole or not at all: how often the evaluation was
stopped leaves no trace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from agentgym_rl.data.replaced import replaced
from agentgym_rl.data.trajectory_json import to_line
from agentgym_rl.errors import DataError
from agentgym_rl.trajectory import Trajectory

EpisodeKey = tuple[str, int]
"""Task id and number of the episode."""


class TrajectoriesFile:
    """Episodes on their way to the file at `path`.

    Args:
        path: the file that `publish` writes.
        go_on: keep what an earlier run left beside it; otherwise that is thrown away.

    Raises:
        DataError: what stands beside it is no such file.
    """

    def __init__(self, path: str | Path, go_on: bool):
        self._path = Path(path)
        self._beside = self._path.with_name(self._path.name + ".episodes")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if not go_on:
            self.discard()
        self._beside.touch()
        self._places: dict[EpisodeKey, _Place] = {}
        self._read()

    def __contains__(self, key: EpisodeKey) -> bool:
        return key in self._places

    def append(self, trajectory: Trajectory, episode: int) -> None:
        """Keep one episode.

        Raises:
            DataError: the trajectory holds something that is no JSON value.
        """
        head, body = f"{episode} ".encode(), to_line(trajectory).encode()
        with self._beside.open("ab") as file:
            begin = file.tell() + len(head)
            file.write(head + body)
        self._places[trajectory.task.id, episode] = _Place(begin, len(body))

    def publish(self, order: Iterable[EpisodeKey]) -> None:
        """Write the trajectories of these episodes, a line each."""
        with replaced(self._path) as new, new.open("wb") as target, self._beside.open("rb") as source:
            for key in order:
                place = self._places[key]
                source.seek(place.begin)
                target.write(source.read(place.length))

    def discard(self) -> None:
        """Remove what stands beside the file."""
        self._beside.unlink(missing_ok=True)

    def _read(self) -> None:
        """Find the episodes of an earlier run, and cut off a line that has no end."""
        end = 0
        with self._beside.open("r+b") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break
                head, _, body = line.partition(b" ")
                self._places[self._key(head, body, number)] = _Place(end + len(head) + 1, len(body))
                end += len(line)
            file.truncate(end)

    def _key(self, head: bytes, body: bytes, number: int) -> EpisodeKey:
        try:
            return json.loads(body)["task"]["id"], int(head)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"line {number} of {self._beside} is no episode; expected its number and JSON") from error


class _Place(NamedTuple):
    """Of a line, in bytes."""

    begin: int
    length: int
