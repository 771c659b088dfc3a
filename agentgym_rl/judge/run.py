"""`judge_all()`: every trajectory of a list judged, one by one or group by group, each verdict kept as it comes.

A judge that fails leaves a row without a score and with its cause; the others go on.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym_rl.errors import JudgeFailed
from agentgym_rl.judge.judge import Judge, Judged, opened
from agentgym_rl.judge.judgements import Judgement, JudgementsFile
from agentgym_rl.judge.prompt import absolute_prompt, relative_prompt
from agentgym_rl.judge.server import Spent
from agentgym_rl.judge.settings import JudgeSettings
from agentgym_rl.judge.transcript import digest, transcript
from agentgym_rl.together import all_or_cancel
from agentgym_rl.trajectory import Failure, Trajectory

OnJudged = Callable[[Sequence[Judgement]], None]


@dataclass(frozen=True)
class Run:
    """All that was judged, in the order of the trajectories, and what this run of it cost."""

    judgements: tuple[Judgement, ...]
    spent: Spent


async def judge_all(
    settings: JudgeSettings,
    trajectories: Sequence[Trajectory],
    out: str | Path,
    relative: bool = False,
    seed: int = 0,
    on_judged: OnJudged | None = None,
) -> Run:
    """Judge what the file `out` does not have yet.

    Args:
        settings: of the judge.
        trajectories: episodes that failed, or have no turn, are not judged: their row has the cause.
        out: JSON Lines of `Judgement`, one for each trajectory.
        relative: the trajectories of a task (environment and id) side by side, instead of each alone.
        seed: draws the order within each group.
        on_judged: called with the rows of each verdict, the ones that `out` had included.

    Raises:
        ConfigurationError: the server refuses the settings, or `out` belongs to other ones.
        DataError: `out` is no file of judgements.
    """
    async with opened(settings) as judge:
        questions = _Questions(judge, settings, trajectories, relative, seed)
        file = JudgementsFile(out, questions.judge, questions.digests)
        rows: dict[int, Judgement] = {}

        async def settle(numbers: list[int]) -> None:
            known = [file.done[number] for number in numbers if number in file.done]
            judged = known if len(known) == len(numbers) else await questions.rows(numbers)
            if judged is not known:
                file.append(judged)
            rows.update({row.number: row for row in judged})
            if on_judged:
                on_judged(judged)

        await all_or_cancel([settle(numbers) for numbers in questions.groups()])
        in_order = tuple(rows[number] for number in range(len(trajectories)))
        file.publish(in_order)
        return Run(in_order, judge.spent)


class _Questions:
    """What the judge is to be asked, and the rows that come of it."""

    def __init__(
        self, judge: Judge, settings: JudgeSettings, trajectories: Sequence[Trajectory], relative: bool, seed: int
    ):
        self._judge = judge
        self._model = settings.model
        self._trajectories = trajectories
        self._relative = relative
        self._seed = seed
        self.digests = [digest(transcript(trajectory)) for trajectory in trajectories]
        template = relative_prompt([""], judge.rubric) if relative else absolute_prompt("", judge.rubric)
        identity = [settings.model, settings.answer_format, dict(settings.parameters), template]
        self.judge = digest(json.dumps([*identity, seed if relative else None], sort_keys=True))

    def groups(self) -> list[list[int]]:
        """Numbers of the trajectories that each verdict is about; one that can't be judged is alone."""
        if not self._relative:
            return [[number] for number in range(len(self._trajectories))]
        groups: dict[tuple[str, str, int | None], list[int]] = defaultdict(list)
        for number, trajectory in enumerate(self._trajectories):
            task, alone = trajectory.task, number if _unfit(trajectory) else None
            groups[task.environment, task.id, alone].append(number)
        return list(groups.values())

    async def rows(self, numbers: list[int]) -> list[Judgement]:
        """Ask about them together, and make a row of each."""
        unfit = _unfit(self._trajectories[numbers[0]])
        if unfit:
            return [self._row(number, failure=unfit.cause, failure_message=unfit.message) for number in numbers]
        try:
            judged = await self._ask([self._trajectories[number] for number in numbers])
        except JudgeFailed as error:
            return [self._row(number, failure=error.cause_name, failure_message=str(error)) for number in numbers]
        costs = [judged.spent, *[Spent()] * (len(numbers) - 1)]
        return [
            self._row(
                number,
                score=score,
                reason=judged.reason,
                requests=cost.requests,
                prompt_tokens=cost.prompt_tokens,
                completion_tokens=cost.completion_tokens,
            )
            for number, score, cost in zip(numbers, judged.scores, costs, strict=True)
        ]

    async def _ask(self, trajectories: Sequence[Trajectory]) -> Judged:
        if not self._relative:
            return await self._judge.absolute(trajectories[0])
        of_task = zlib.crc32(f"{self._seed}/{trajectories[0].task.id}".encode())
        return await self._judge.relative(trajectories, of_task)

    def _row(self, number: int, score: float | None = None, **said: Any) -> Judgement:
        trajectory = self._trajectories[number]
        return Judgement(
            number=number,
            task=trajectory.task.id,
            environment=trajectory.task.environment,
            trajectory=self.digests[number],
            judge=self.judge,
            model=self._model,
            success=trajectory.success,
            score=score,
            **said,
        )


def _unfit(trajectory: Trajectory) -> Failure | None:
    """Why a trajectory can't be judged."""
    if trajectory.failure is None and not trajectory.turns:
        return Failure("nothing_sampled", "the policy took no turn")
    return trajectory.failure
