"""Judgements as plain rows, and the file of them: JSON Lines, one row a trajectory, written as the verdicts come.

Invariants: a failed judgement has no score. A file holds the rows of one judge about one list of trajectories, and
never others; a last line that was cut off while it was written is dropped; of two rows about the same trajectory the
newer stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from agentgym_rl.data.replaced import replaced
from agentgym_rl.errors import ConfigurationError, DataError


@dataclass(frozen=True)
class Judgement:
    """What a judge said about one trajectory, and where both come from."""

    number: int
    """Of the trajectory in its file, from 0."""
    task: str
    environment: str
    trajectory: str
    """Digest of what the judge was shown of it."""
    judge: str
    """Digest of model, prompt and parameters."""
    model: str
    success: bool | None
    """The environment's own outcome, which the judge was not shown; None: it can't tell."""
    score: float | None
    """From 0 to 1; None: the judge failed, or the episode had."""
    reason: str = ""
    failure: str | None = None
    failure_message: str = ""
    requests: int = 0
    """These three count what a verdict took; that of a group stands with its first trajectory."""
    prompt_tokens: int = 0
    completion_tokens: int = 0


class JudgementsFile:
    """Opens or begins the file at `path`.

    Args:
        path: where the rows go.
        judge: digest of whoever judges.
        trajectories: digest of each trajectory, in order.

    Raises:
        ConfigurationError: it has the rows of another judge, or of other trajectories.
        DataError: it is no such file.
    """

    def __init__(self, path: str | Path, judge: str, trajectories: Sequence[str]):
        self._path = Path(path)
        self._judge = judge
        self._trajectories = trajectories
        self._path.parent.mkdir(parents=True, exist_ok=True)
        rows = [self._read_row(line, number) for number, line in enumerate(self._whole_lines(), start=1)]
        self.done = {row.number: row for row in rows if row.failure is None}
        """Number of the trajectory -> its judgement; failed ones are judged again."""

    def append(self, rows: Iterable[Judgement]) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write("".join(map(_line, rows)))

    def publish(self, rows: Iterable[Judgement]) -> None:
        """Replace what was written so far by these rows."""
        with replaced(self._path) as new:
            new.write_text("".join(map(_line, rows)), encoding="utf-8")

    def _whole_lines(self) -> list[str]:
        if not self._path.exists():
            return []
        content = self._path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            with open(self._path, "r+b") as file:
                file.truncate(len(whole))
        return whole.decode("utf-8", "replace").split("\n")[:-1]

    def _read_row(self, line: str, number: int) -> Judgement:
        row = _judgement(line, number, self._path)
        if row.judge != self._judge:
            raise ConfigurationError(
                f"{self._path} has judgements by another model, prompt or parameters (model {row.model!r}); "
                "give the same, or another file"
            )
        if list(self._trajectories[row.number : row.number + 1]) != [row.trajectory]:
            raise ConfigurationError(
                f"{self._path} has judgements of other trajectories: line {number} is about trajectory {row.number}, "
                f"of task {row.task!r}, which is not the same here; give the same trajectories, or another file"
            )
        return row


def _judgement(line: str, number: int, path: Path) -> Judgement:
    try:
        return Judgement(**json.loads(line))
    except (ValueError, TypeError) as error:
        raise DataError(f"line {number} of {path} is no judgement: {error}") from error


def _line(row: Judgement) -> str:
    return json.dumps(asdict(row)) + "\n"
