"""How few turns a solved episode took, measured by the expert's: expert's turns / turns of the episode.

1 is as short as the expert; an episode that beats it has more. None where the episode did not solve its task, or the
environment has no expert, can't be made here, or its expert did not solve the task. The expert plays a task once,
however many episodes of it there are, and plays the same again where its environment is deterministic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from agentgym_rl.data.task_overlap import same_task
from agentgym_rl.errors import AgentGymError
from agentgym_rl.evaluation.reference import LIMITS
from agentgym_rl.evaluation.run import play_one
from agentgym_rl.policy import ExpertPolicy
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.task import Task
from agentgym_rl.together import all_or_cancel
from agentgym_rl.trajectory import Trajectory

CONCURRENCY = 8


def efficiency(trajectory: Trajectory, expert_turns: int | None) -> float | None:
    """expert_turns / turns, of an episode that solved its task."""
    if not trajectory.success or not trajectory.turns or expert_turns is None:
        return None
    return expert_turns / len(trajectory.turns)


def turns_of_experts(tasks: Iterable[Task]) -> dict[str, int | None]:
    """Turns that the expert needs, by `same_task`; None: nobody knows."""
    different = {same_task(task): task for task in tasks}
    return dict(zip(different, asyncio.run(_play(list(different.values()))), strict=True))


async def _play(tasks: Sequence[Task]) -> list[int | None]:
    async with EnvironmentPool(CONCURRENCY) as pool:
        return await all_or_cancel([_turns(task, pool) for task in tasks])


async def _turns(task: Task, pool: EnvironmentPool) -> int | None:
    try:
        trajectory = await play_one(lambda environment, *_: ExpertPolicy(environment), task, 0, LIMITS, pool)
    except AgentGymError:  # there is no expert, or it can't be played here
        return None
    return len(trajectory.turns) if trajectory.success else None
