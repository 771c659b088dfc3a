"""`judge_all()`: every trajectory judged, one by one or group by group, each verdict kept as it comes.

A judge that fails leaves a row without a score and with its cause; the others go on. At a time no more trajectories are
held than are being asked about, and `READ_AT_ONCE` that are about to be; of all others there is a row.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_rl.concurrency import ADAPTIVE
from agentgym_rl.data.appender import PART_SIZE
from agentgym_rl.errors import JudgeFailed
from agentgym_rl.judge.given import Given, why_not
from agentgym_rl.judge.judge import Judge, Judged, opened
from agentgym_rl.judge.judgements import Judgement, JudgementsFile, failure_of
from agentgym_rl.judge.prompt import absolute_prompt, relative_prompt
from agentgym_rl.judge.server import Spent
from agentgym_rl.judge.settings import JudgeSettings
from agentgym_rl.judge.transcript import digest, transcript
from agentgym_rl.together import all_or_cancel
from agentgym_rl.trajectory import Trajectory

OnJudged = Callable[[Sequence[Judgement]], None]
READ_AT_ONCE = PART_SIZE
"""Trajectories, if no group is larger: what lies in one part of a store is read once."""
MOST_AT_ONCE = 512
"""Questions of a judge with an adaptive limit."""


@dataclass(frozen=True)
class Run:
    """All that was judged, in the order of the trajectories, and what this run of it cost."""

    judgements: tuple[Judgement, ...]
    spent: Spent


class Question(NamedTuple):
    """Trajectories that are judged together, with their numbers."""

    numbers: Sequence[int]
    trajectories: Sequence[Trajectory]


async def judge_all(
    settings: JudgeSettings,
    given: Given,
    out: str | Path,
    relative: bool = False,
    seed: int = 0,
    on_judged: OnJudged | None = None,
) -> Run:
    """Judge what the file `out` does not have yet.

    Args:
        settings: of the judge.
        given: episodes that failed, or have no turn, are not judged: their row has the cause.
        out: JSON Lines of `Judgement`, one for each trajectory.
        relative: the trajectories of a task (environment and id) side by side, instead of each alone.
        seed: draws the order within each group.
        on_judged: called with the rows of each verdict, and once with those that `out` had.

    Raises:
        ConfigurationError: the server refuses the settings, or `out` belongs to other ones, or to other trajectories.
        DataError: `out` is no file of judgements, or a trajectory can't be read.
    """
    async with opened(settings) as judge:
        asking = _Asking(judge, settings, relative, seed)
        file = JudgementsFile(out, asking.judge, settings.tries)
        _require_same(file, given)
        groups = [numbers for numbers in _groups(given, relative) if not file.done.keys() >= set(numbers)]
        asked = {number for numbers in groups for number in numbers}
        rows = {number: row for number, row in file.done.items() if number not in asked}
        if on_judged and rows:
            on_judged(list(rows.values()))
        questions = _read(given, groups)

        async def ask_one_after_the_other() -> None:
            for question in questions:
                judged = await asking.rows(question)
                file.append(judged)
                rows.update({row.number: row for row in judged})
                if on_judged:
                    on_judged(judged)
                await asyncio.sleep(0)  # verdicts from a cache would leave those that come from the server waiting

        at_once = MOST_AT_ONCE if settings.concurrency == ADAPTIVE else int(settings.concurrency)
        await all_or_cancel(ask_one_after_the_other() for _ in range(min(at_once, len(groups))))
        in_order = tuple(rows[number] for number in range(len(given)))
        file.publish(in_order)
        return Run(in_order, judge.spent)


def _require_same(file: JudgementsFile, given: Given) -> None:
    """Hold the rows that are there to the trajectories, before a request is paid for."""
    numbers = sorted(file.rows)
    for question in _read(given, [[number] for number in numbers if 0 <= number < len(given)]):
        file.require_about(question.numbers[0], digest(transcript(question.trajectories[0])))
    for number in numbers:
        if not 0 <= number < len(given):
            file.require_about(number, None)


def _groups(given: Given, relative: bool) -> Iterable[Sequence[int]]:
    """Numbers of the trajectories that each verdict is about; one that can't be judged is alone."""
    if not relative:
        return ([number] for number in range(len(given)))
    groups: dict[tuple[str, str, int | None], list[int]] = defaultdict(list)
    for number, about in enumerate(given.about()):
        alone = None if about.can_be_judged else number
        groups[about.environment, about.task, alone].append(number)
    return groups.values()


def _read(given: Given, groups: Iterable[Sequence[int]]) -> Iterator[Question]:
    """The groups with their trajectories, in order; some are read ahead."""
    for together in _chunks(groups):
        numbers = [number for group in together for number in group]
        trajectories = dict(zip(numbers, given.at(numbers), strict=True))
        for group in together:
            yield Question(group, [trajectories.pop(number) for number in group])


def _chunks(groups: Iterable[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    """Groups of `READ_AT_ONCE` trajectories together, or of a group more."""
    chunk: list[Sequence[int]] = []
    for group in groups:
        chunk.append(group)
        if sum(map(len, chunk)) >= READ_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


class _Asking:
    """How the judge is asked, and the rows that come of it."""

    def __init__(self, judge: Judge, settings: JudgeSettings, relative: bool, seed: int):
        self._judge = judge
        self._settings = settings
        self._relative = relative
        self._seed = seed
        template = relative_prompt([""], judge.rubric) if relative else absolute_prompt("", judge.rubric)
        identity = [settings.model, settings.answer_format, dict(settings.parameters), template]
        self.judge = digest(json.dumps([*identity, seed if relative else None], sort_keys=True))

    async def rows(self, question: Question) -> list[Judgement]:
        """Ask about its trajectories together, and make a row of each."""
        unfit = why_not(question.trajectories[0])
        if unfit:
            return self._rows(question, failure=unfit.cause, failure_message=unfit.message)
        tries = self._settings.tries
        try:
            judged = await self._ask(question.trajectories)
        except JudgeFailed as error:
            return self._rows(question, failure=failure_of(error), failure_message=str(error), tries=tries)
        first, *others = self._rows(question, judged.scores, reason=judged.reason, tries=tries)
        spent = judged.spent
        paid = replace(
            first,
            requests=spent.requests,
            prompt_tokens=spent.prompt_tokens,
            completion_tokens=spent.completion_tokens,
        )
        return [paid, *others]

    async def _ask(self, trajectories: Sequence[Trajectory]) -> Judged:
        if not self._relative:
            return await self._judge.absolute(trajectories[0])
        of_task = zlib.crc32(f"{self._seed}/{trajectories[0].task.id}".encode())
        return await self._judge.relative(trajectories, of_task)

    def _rows(self, question: Question, scores: Sequence[float | None] | None = None, **said: Any) -> list[Judgement]:
        if scores is None:
            scores = [None] * len(question.numbers)
        return [
            Judgement(
                number=number,
                task=trajectory.task.id,
                environment=trajectory.task.environment,
                trajectory=digest(transcript(trajectory)),
                judge=self.judge,
                model=self._settings.model,
                success=trajectory.success,
                score=score,
                **said,
            )
            for number, trajectory, score in zip(question.numbers, question.trajectories, scores, strict=True)
        ]
