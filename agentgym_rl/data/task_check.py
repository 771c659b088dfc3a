"""What is wrong with files of tasks, before a training finds out: bad lines, repeated tasks, leaks, tasks that fail.

A file that can't be read at all is a finding as well, so that one command says everything about all files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from agentgym_rl.data.task_mapping import TaskMapping
from agentgym_rl.data.task_overlap import Listed, Overlap, overlaps
from agentgym_rl.data.user_tasks import read_task_file
from agentgym_rl.environments import registry
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.evaluation.reference import Trial


class Finding(NamedTuple):
    """One thing that is wrong."""

    file: str
    place: str
    """Where in the file, such as "line 3"; empty: the file as a whole."""
    kind: str
    """bad file, bad line, duplicate, near duplicate, leak, near leak, or dry run."""
    message: str


class Read(NamedTuple):
    """The tasks of several files, and what was wrong with lines that are none."""

    tasks: list[Listed]
    findings: list[Finding]


def read_files(paths: Sequence[str | Path], mapping: TaskMapping | None = None) -> Read:
    """Everything that can be read."""
    tasks: list[Listed] = []
    findings: list[Finding] = []
    for path in paths:
        try:
            read = read_task_file(path, mapping)
        except (ConfigurationError, DataError) as error:
            findings.append(Finding(str(path), "", "bad file", str(error)))
            continue
        parts = [problem.partition(": ") for problem in read.problems]
        findings += [Finding(str(path), place, "bad line", message) for place, _, message in parts]
        for place, task in read.tasks:
            try:
                registry.target(task.environment)  # what `write_tasks` wrote is read without a look at its environments
            except ConfigurationError as error:
                findings.append(Finding(str(path), place, "bad line", f"{task.id}: {error}"))
            else:
                tasks.append(Listed(str(path), place, task))
    return Read(tasks, findings)


def repeated(tasks: Sequence[Listed], near: float) -> list[Finding]:
    """Tasks that repeat another of their file, and those that leak from one file into a later one.

    Raises:
        ConfigurationError: the package that compares texts is not installed.
    """
    return [_finding(overlap) for overlap in overlaps(tasks, near)]


def unsolved(tasks: Sequence[Listed], trials: Sequence[Trial]) -> list[Finding]:
    """Tasks that could not be set up or solved; those of a file with the same trouble are one finding."""
    same: dict[tuple[str, str], list[Listed]] = {}
    for listed, trial in zip(tasks, trials, strict=True):
        if trial.trouble:
            same.setdefault((listed.file, trial.trouble), []).append(listed)
    findings = []
    for (file, trouble), troubled in same.items():
        more = f" (and {len(troubled) - 1} more tasks)" if len(troubled) > 1 else ""
        findings.append(Finding(file, troubled[0].place, "dry run", f"{troubled[0].task.id}{more}: {trouble}"))
    return findings


def _finding(overlap: Overlap) -> Finding:
    later, earlier, similarity = overlap
    within = later.file == earlier.file
    where = earlier.place if within else f"{earlier.place} of {earlier.file}"
    said = "the same task as" if similarity is None else f"{similarity:.2f} like"
    kind = ("" if similarity is None else "near ") + ("duplicate" if within else "leak")
    return Finding(later.file, later.place, kind, f"{later.task.id}: {said} {earlier.task.id} ({where})")
