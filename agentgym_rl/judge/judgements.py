"""Judgements as plain rows, and the file of them: JSON Lines, one row a trajectory, written as the verdicts come.

Invariants: a failed judgement has no score. A file holds the rows of one judge about one list of trajectories, and
never others; a last line that was cut off while it was written is dropped, if it is a judgement's; of two rows about
the same trajectory the newer stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from agentgym_rl.data.only_writer import only_holder
from agentgym_rl.data.replaced import replaced
from agentgym_rl.errors import ConfigurationError, DataError, JudgeFailed, NoVerdict

BEGINS = b'{"number": '
"""So does every row."""


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
    """Cause; `judge_refused` and `judge_unreadable` are a `NoVerdict`."""
    failure_message: str = ""
    tries: int = 0
    """That the judge was given; 0: it was not asked, for the episode itself had failed."""
    requests: int = 0
    """These three count what a verdict took; that of a group stands with its first trajectory."""
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def has_no_verdict(self) -> bool:
        """The judge was asked, and asked the same again it would fail again."""
        return self.failure in _NO_VERDICT


def failure_of(error: JudgeFailed) -> str:
    """The cause as a row names it."""
    return error.cause_name if error.no_verdict is None else _cause(error.no_verdict)


def missing(rows: Iterable[Judgement]) -> list[Judgement]:
    """Those whose verdict may still come.

    A judge that gave none at all may be set up wrongly, whatever its server says: then all of them may.
    """
    rows = list(rows)
    works = _works(rows)
    return [row for row in rows if row.tries and row.failure and not (works and row.has_no_verdict)]


@contextmanager
def only_judge(path: Path) -> Iterator[None]:
    """Be the only process that writes the rows of this file: two would pay for the same verdicts twice.

    The lock is a file beside it, for the file itself is replaced in the end.

    Raises:
        ConfigurationError: there is another one.
    """
    lock = path.with_name(f".{path.name}.lock")
    with only_holder(lock, f"another process is judging, and writes to {path}"):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


class JudgementsFile:
    """Opens or begins the file at `path`; `require_about` holds its rows to the trajectories.

    Args:
        path: where the rows go.
        judge: digest of whoever judges.
        tries: of each verdict; where more are given than before, an answer may become readable.

    Attributes:
        rows: number of the trajectory -> its newest row.
        done: likewise, of those that need not be judged again.

    Raises:
        ConfigurationError: it has the rows of another judge.
        DataError: it is no such file.
    """

    def __init__(self, path: str | Path, judge: str, tries: int):
        self._path = Path(path)
        self._judge = judge
        self._line_of: dict[int, int] = {}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.rows: dict[int, Judgement] = {}
        for number, line in enumerate(self._whole_lines(), start=1):
            self._take(_judgement(line, number, self._path), number)
        works = _works(self.rows.values())
        self.done = {
            number: row
            for number, row in self.rows.items()
            if row.failure is None or (works and row.has_no_verdict and not _may_read(row, tries))
        }

    def require_about(self, number: int, trajectory: str | None) -> None:
        """Hold the row with this number to the trajectory's digest; None: there is no such trajectory.

        Raises:
            ConfigurationError: it is about another one.
        """
        if self.rows[number].trajectory != trajectory:
            raise self._other_trajectory(self.rows[number], self._line_of[number])

    def append(self, rows: Iterable[Judgement]) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write("".join(map(_line, rows)))

    def publish(self, rows: Iterable[Judgement]) -> None:
        """Replace what was written so far by these rows."""
        with replaced(self._path) as new, open(new, "w", encoding="utf-8") as file:
            file.writelines(map(_line, rows))

    def _whole_lines(self) -> Iterator[str]:
        """The lines; what was cut off at the end is removed, where it is known to be a judgement."""
        if not self._path.exists():
            return
        whole = 0
        with open(self._path, "r+b") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    if not (whole or BEGINS.startswith(line[: len(BEGINS)])):
                        raise DataError(f"{self._path} holds no judgements, and something else: give another file")
                    file.truncate(whole)
                    return
                whole += len(line)
                yield line.decode("utf-8", "replace")

    def _take(self, row: Judgement, line: int) -> None:
        if row.judge != self._judge:
            raise ConfigurationError(
                f"{self._path} has judgements by another model, prompt or parameters (model {row.model!r}); "
                "give the same, or another file"
            )
        if row.number in self.rows and self.rows[row.number].trajectory != row.trajectory:
            raise self._other_trajectory(row, line)
        self.rows[row.number], self._line_of[row.number] = row, line

    def _other_trajectory(self, row: Judgement, line: int) -> ConfigurationError:
        return ConfigurationError(
            f"{self._path} has judgements of other trajectories: line {line} is about trajectory {row.number}, "
            f"of task {row.task!r}, which is not the same here; give the same trajectories, or another file"
        )


def _cause(no_verdict: NoVerdict) -> str:
    return f"{JudgeFailed.boundary}_{no_verdict.value}"


_NO_VERDICT = tuple(map(_cause, NoVerdict))


def _works(rows: Iterable[Judgement]) -> bool:
    return any(row.score is not None for row in rows)


def _may_read(row: Judgement, tries: int) -> bool:
    return row.failure == _cause(NoVerdict.UNREADABLE) and row.tries < tries


def _judgement(line: str, number: int, path: Path) -> Judgement:
    try:
        row = Judgement(**json.loads(line))
        if not isinstance(row.number, int):
            raise TypeError(f"its number is {row.number!r}")
    except (ValueError, TypeError) as error:
        raise DataError(f"line {number} of {path} is no judgement: {error}") from error
    return row


def _line(row: Judgement) -> str:
    return json.dumps(asdict(row)) + "\n"
