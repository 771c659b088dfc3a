"""`report_card()`: what an environment promises, and what it was measured to do on some of its tasks.

Invariant: a card has either a reason why nothing could be played, or measured figures; a figure that is not there is
None and never 0. Policies play one task after the other, so the times are those of one instance at work alone.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from agentgym_rl.data.sample_tasks import sample_tasks
from agentgym_rl.environment import Facts
from agentgym_rl.environments import registry
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import BoundaryError, ConfigurationError, DataError, EnvironmentFailed, boundary
from agentgym_rl.evaluation.policies import Sampling, policies
from agentgym_rl.evaluation.success import Estimate, success_rate
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Trajectory

CONTRACT_TASKS = 3
"""On how many of the tasks the contract is checked: it plays each of them many times."""


@dataclass(frozen=True)
class CardSettings:
    """What a card's figures rest on."""

    tasks: int = 16
    seed: int = 0
    """Of the draw of tasks and of the random policy."""
    isolation: registry.Isolation = "thread"

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise ConfigurationError(f"a report card needs at least 1 task; given: {self.tasks}")


@dataclass(frozen=True)
class Played:
    """What one policy's episodes came to, one a task."""

    success: Estimate
    turns: float | None
    """Mean over episodes that did not fail."""
    reset_milliseconds: float | None
    """Median."""
    step_milliseconds: float | None
    """Median."""
    lowest_reward: float | None
    """Of a step."""
    highest_reward: float | None
    failures: Mapping[str, int]


@dataclass(frozen=True)
class ReportCard:
    """One environment's card."""

    environment: str
    reason: str = ""
    """Why nothing was played; empty: it was."""
    domain: str = ""
    licence: str = ""
    deterministic: bool | None = None
    reward_range: tuple[float | None, float | None] | None = None
    """That is promised; None at an end: without bound."""
    tasks: int = 0
    broken_rules: tuple[str, ...] = ()
    """Of the environment contract, each with what was wrong."""
    expert: Played | None = None
    """None: there is no expert."""
    random: Played | None = None
    """None: the environment does not list its actions."""

    @property
    def measured(self) -> Played | None:
        """Whose turns and times stand for the environment: the expert's, else the random policy's."""
        return self.expert or self.random

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, row: Any) -> ReportCard:
        """Read what `to_dict` gave, also after JSON.

        Raises:
            DataError: it is no such card.
        """
        try:
            read = {**row, "broken_rules": tuple(row["broken_rules"])}
            if read["reward_range"] is not None:
                read["reward_range"] = tuple(read["reward_range"])
            for policy in ("expert", "random"):
                if read[policy] is not None:
                    read[policy] = Played(**{**read[policy], "success": Estimate(*read[policy]["success"])})
            return cls(**read)
        except (KeyError, TypeError) as error:
            raise DataError(f"not a report card: {error!r}") from error


async def report_card(
    name: str,
    settings: CardSettings,
    tasks: Sequence[Task] = (),
    on_part: Callable[[str], None] | None = None,
) -> ReportCard:
    """Check an environment's contract, and let its expert and the random policy play.

    Args:
        name: of the environment.
        settings: number of tasks, seed, isolation.
        tasks: what is played; empty: `sample_tasks`.
        on_part: called with each part that begins.
    """
    begin = on_part or (lambda part: None)
    try:
        facts = _facts(name)
        begin("tasks")
        tasks = tasks or sample_tasks(name, settings.tasks, settings.seed)
        await _require_playable(name, tasks[0], settings.isolation)
        begin("contract")
        report = await check_environment(name, tasks[:CONTRACT_TASKS], isolation=settings.isolation)
        expert = random = None
        if facts.expert_success is not None:
            begin("expert")
            expert = await _by("expert", facts, tasks, settings)
        if facts.lists_actions:
            begin("random")
            random = await _by("random", facts, tasks, settings)
    except (ConfigurationError, DataError) as error:
        return ReportCard(**_promised(name), reason=str(error))
    broken = tuple(f"{rule.rule}: {rule.message}" for rule in report.broken)
    return ReportCard(**_promised(name), tasks=len(tasks), broken_rules=broken, expert=expert, random=random)


async def _require_playable(name: str, task: Task, isolation: registry.Isolation) -> None:
    """Raise what the first task's reset refuses: what is not installed is often known only then.

    A reset that fails is the contract's to report.
    """
    async with registry.opened(name, isolation) as environment:
        with suppress(BoundaryError):
            await boundary(environment.reset(task), EnvironmentFailed, f"reset of {name!r}", Limits().reset_seconds)


def _facts(name: str) -> Facts:
    facts = registry.environment_class(name).facts
    if not isinstance(facts, Facts):
        raise ConfigurationError(f"it breaks its contract: `facts` must be a Facts; given: {type(facts).__name__}")
    return facts


def _promised(name: str) -> dict[str, Any]:
    """Fields of the card; of a class that can't be imported only the name."""
    try:
        facts = _facts(name)
    except ConfigurationError:
        return {"environment": name}
    low, high = (bound if math.isfinite(bound) else None for bound in facts.reward_range)
    return {
        "environment": name,
        "domain": facts.domain,
        "licence": facts.licence,
        "deterministic": facts.deterministic,
        "reward_range": (low, high),
    }


async def _by(policy: str, facts: Facts, tasks: Sequence[Task], settings: CardSettings) -> Played:
    """One episode a task, on one instance while it can be used again."""
    limits = Limits(max_turns=max(task.arguments.get("max_turns", facts.max_turns) for task in tasks))
    trajectories: list[Trajectory] = []
    reset_seconds: list[float] = []
    with policies(policy, Sampling(seed=settings.seed)) as make_policy:
        waiting = list(tasks)
        while waiting:
            async with registry.opened(waiting[0].environment, settings.isolation) as environment:
                fresh = True
                while waiting and (fresh or (facts.reusable and not trajectories[-1].failed)):
                    fresh, task, begun = False, waiting.pop(0), time.perf_counter()

                    def opened(_: object, begun: float = begun) -> None:
                        reset_seconds.append(time.perf_counter() - begun)

                    made = make_policy(environment, task, 0)
                    trajectories.append(await play(made, environment, task, limits, on_opening=opened))
    return summary(trajectories, reset_seconds)


def summary(trajectories: Sequence[Trajectory], reset_seconds: Sequence[float]) -> Played:
    """What the episodes say together."""
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    lengths = [len(trajectory.turns) for trajectory in trajectories if not trajectory.failed]
    rewards = [turn.reward for turn in turns]
    return Played(
        success=success_rate(trajectory.success for trajectory in trajectories),
        turns=sum(lengths) / len(lengths) if lengths else None,
        reset_milliseconds=1000 * median(reset_seconds) if reset_seconds else None,
        step_milliseconds=1000 * median(turn.environment_seconds for turn in turns) if turns else None,
        lowest_reward=min(rewards, default=None),
        highest_reward=max(rewards, default=None),
        failures=Counter(trajectory.failure.cause for trajectory in trajectories if trajectory.failure),
    )
