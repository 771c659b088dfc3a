"""What an evaluation found, as plain data: one row an episode, and what the rows say together.

A failed episode has no verdict and no return: it is left out of every mean, and counted by its cause.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agentgym_rl.data.replaced import replaced
from agentgym_rl.errors import DataError
from agentgym_rl.evaluation.success import Estimate, success_rate
from agentgym_rl.trajectory import Trajectory

ALL = "all"
"""Stands for the environment in the summary over several."""


@dataclass(frozen=True)
class EpisodeRow:
    """One episode in one line."""

    task: str
    """The task's id."""
    episode: int
    """Which of the task's episodes, from 0."""
    environment: str
    success: bool | None
    """None: it failed, or the environment can't tell."""
    environment_return: float
    turns: int
    stop: str
    failure: str | None = None
    """The failure's cause; None: it did not fail."""
    failure_message: str = ""

    @classmethod
    def from_trajectory(cls, trajectory: Trajectory, episode: int) -> EpisodeRow:
        failure = trajectory.failure
        return cls(
            task=trajectory.task.id,
            episode=episode,
            environment=trajectory.task.environment,
            success=trajectory.success,
            environment_return=trajectory.environment_return,
            turns=len(trajectory.turns),
            stop=trajectory.stop.value,
            failure=failure.cause if failure else None,
            failure_message=failure.message if failure else "",
        )

    @classmethod
    def from_dict(cls, row: Any) -> EpisodeRow:
        """Read what `dataclasses.asdict` gave.

        Raises:
            DataError: it is no such row.
        """
        try:
            return cls(**row)
        except TypeError as error:
            raise DataError(f"not the row of an episode: {error}") from error


@dataclass(frozen=True)
class Summary:
    """What the episodes of one environment say together."""

    environment: str
    episodes: int
    success: Estimate
    mean_return: float | None
    """Over episodes that did not fail; None where there is none."""
    mean_turns: float | None
    """Likewise."""
    stops: Mapping[str, int]
    failures: Mapping[str, int]


@dataclass(frozen=True)
class Evaluation:
    """The rows of an evaluation, in the order of tasks and episodes, and the settings they were played with."""

    rows: tuple[EpisodeRow, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outcomes(self) -> dict[tuple[str, int], bool | None]:
        """(task id, episode) -> success; what `success.difference` compares."""
        return {(row.task, row.episode): row.success for row in self.rows}

    def summary(self) -> list[Summary]:
        """One summary an environment, in order of appearance, and one over all where there are several."""
        environments = list(dict.fromkeys(row.environment for row in self.rows))
        summaries = [_summarise(name, [r for r in self.rows if r.environment == name]) for name in environments]
        return [*summaries, self.overall()] if len(environments) > 1 else summaries

    def overall(self) -> Summary:
        """The summary over all environments."""
        return _summarise(ALL, self.rows)

    def to_json(self) -> str:
        """Settings and rows, readable by a person."""
        rows = ",\n    ".join(json.dumps(asdict(row)) for row in self.rows)
        return f'{{\n  "settings": {json.dumps(dict(self.settings))},\n  "rows": [\n    {rows}\n  ]\n}}\n'

    @classmethod
    def from_json(cls, text: str) -> Evaluation:
        """Read what `to_json` gave.

        Raises:
            DataError: it is no such text.
        """
        try:
            read = json.loads(text)
            return cls(tuple(EpisodeRow.from_dict(row) for row in read["rows"]), read["settings"])
        except json.JSONDecodeError as error:
            raise DataError(f"an evaluation is JSON; this is none: {error}") from error
        except (KeyError, TypeError) as error:
            raise DataError("an evaluation is an object with the fields 'settings' and 'rows'") from error

    def write(self, path: str | Path) -> None:
        with replaced(path) as beside:
            beside.write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> Evaluation:
        """Read a file that `write` wrote.

        Raises:
            DataError: there is none, or it is no evaluation.
        """
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise DataError(f"there is no file {path}") from error
        except DataError as error:
            raise DataError(f"{path}: {error}") from error


def _summarise(environment: str, rows: Sequence[EpisodeRow]) -> Summary:
    played = [row for row in rows if row.failure is None]
    return Summary(
        environment=environment,
        episodes=len(rows),
        success=success_rate(row.success for row in rows),
        mean_return=_mean([row.environment_return for row in played]),
        mean_turns=_mean([row.turns for row in played]),
        stops=Counter(row.stop for row in rows),
        failures=Counter(row.failure for row in rows if row.failure is not None),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
