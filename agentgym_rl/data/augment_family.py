"""A trajectory's family: what could be made of it by the rules of augmentation.

A try is kept if it was solved, is new, and its actions, played again in a fresh environment, give the same
(`augment_check`); each other one is counted by its reason. Choices follow from the seed, the parent's id, the rule and
the number of the try, so they are the same in whatever order tries are played.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from typing import Any

from agentgym_rl.data.annotate import actions
from agentgym_rl.data.augment_check import require_same_again
from agentgym_rl.data.augment_donors import donors_of
from agentgym_rl.data.augment_report import Report
from agentgym_rl.data.augment_rules import RULES, Rule
from agentgym_rl.data.augment_try import Changed, NotKept, Place, Try
from agentgym_rl.data.families_file import Family
from agentgym_rl.data.record import Provenance, Record, record_id
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.versions import code_version, environment_version
from agentgym_rl.environment import Environment
from agentgym_rl.environments import registry
from agentgym_rl.environments.process import ProcessEnvironment
from agentgym_rl.episode import Limits
from agentgym_rl.errors import BoundaryError, ConfigurationError
from agentgym_rl.evaluation.run import PolicyFactory
from agentgym_rl.policy import Policy
from agentgym_rl.together import all_or_cancel
from agentgym_rl.trajectory import Trajectory

SOURCE = "augment"
EXPERT = "expert"


@dataclass(frozen=True)
class Augmentation:
    """What is to be made of each trajectory."""

    rules: Mapping[str, int]
    """Rule -> tries of each parent."""
    policy: str = EXPERT
    """What the policy that goes on is to be known by."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """That policy's (JSON values)."""
    seed: int = 0
    keep_originals: bool = True
    """The new store has the parents too, each before what was made of it."""
    limits: Limits = field(default_factory=Limits)
    """Of one episode."""


class Families:
    """Makes the families of a store's records.

    Args:
        source: where they come from, held to the parts that it had.
        wanted: what is to be made.
        make_policy: of the policy that goes on; called once a try.
        concurrency: how many tries are under way at once.
        isolation: where the environments run.
    """

    def __init__(
        self,
        source: TrajectoryStore,
        wanted: Augmentation,
        make_policy: PolicyFactory,
        concurrency: int,
        isolation: registry.Isolation,
    ):
        self._wanted = wanted
        self._make_policy = make_policy
        self._isolation = isolation
        self._slots = asyncio.Semaphore(concurrency)
        self._there = source.ids() if wanted.keep_originals else set()
        needs_donors = "recovery" in wanted.rules
        self._donors = donors_of(source, wanted.seed) if needs_donors else {}

    async def of(self, parent: Record) -> Family:
        """What is made of it."""
        made, report = [], Report(self._wanted.rules)
        report.given, report.originals = 1, int(self._wanted.keep_originals)
        tries = [
            (name, number, place)
            for name, count in self._wanted.rules.items()
            for number, place in enumerate(self._places(parent, name, count, report))
        ]
        results = await all_or_cancel(self._result(parent, *one) for one in tries)
        seen = {_what_happened(parent.trajectory): "the same as its parent"}
        for (name, *_), result in zip(tries, results, strict=True):
            counts = report.rules[name]
            if isinstance(result, str):
                counts.rejected[result] += 1
            elif result.id in self._there:  # the store was augmented with this rule and seed before
                counts.rejected["in the store already"] += 1
            elif (key := _what_happened(result.trajectory)) in seen:
                counts.rejected[seen[key]] += 1
            else:
                seen[key] = "the same as another one"
                counts.kept += 1
                made.append(result)
        return Family(made, report)

    def _places(self, parent: Record, name: str, count: int, report: Report) -> list[Place]:
        """Where the rule is tried; none: the parent is passed over."""
        rule = RULES[name]
        reason = _why_not(parent, rule)
        places = [] if reason else list(rule.places(parent.trajectory))
        if not places:
            report.rules[name].passed_over[reason or rule.nothing] += 1
        random.Random(f"{self._wanted.seed}/{parent.id}/{name}").shuffle(places)
        return list(islice(cycle(places) if rule.draws else places, count))

    async def _result(self, parent: Record, name: str, number: int, place: Place) -> Record | str:
        """What a try made, or why nothing."""
        async with self._slots:
            try:
                changed = await self._changed(parent, name, number, place)
            except NotKept as reason:
                return str(reason)
        return self._record(parent, name, number, changed)

    async def _changed(self, parent: Record, name: str, number: int, place: Place) -> Changed:
        task, limits = parent.trajectory.task, self._wanted.limits
        key = f"{self._wanted.seed}/{parent.id}/{name}/{number}"
        async with registry.opened(task.environment, self._isolation) as environment:
            await _require_deterministic(environment)

            def policy() -> Policy:
                try:
                    return self._make_policy(environment, task, zlib.crc32(key.encode()))
                except ConfigurationError as error:
                    raise NotKept(str(error)) from error

            goes_on_by_expert = self._wanted.policy == EXPERT
            donors = self._donors.get(task.environment, ())
            chance = random.Random(key)
            given = Try(parent.trajectory, place, environment, limits, policy, goes_on_by_expert, donors, chance)
            changed = await RULES[name].apply(given)
        if changed.trajectory.success is not True:
            raise NotKept("not solved")
        async with registry.opened(task.environment, self._isolation) as fresh:
            await require_same_again(changed, fresh, limits)
        return changed

    def _record(self, parent: Record, name: str, number: int, changed: Changed) -> Record:
        wanted, origin = self._wanted, parent.provenance
        policy, sampling = origin.policy, origin.sampling
        if RULES[name].goes_on:
            policy = wanted.policy
            sampling = {**wanted.sampling, "seed": wanted.seed, "max_turns": wanted.limits.max_turns}
        trajectory = _untimed(changed.trajectory)
        environment = environment_version(trajectory.task.environment)
        text = changed.perturbation.to_json()
        provenance = Provenance(SOURCE, origin.episode, policy, sampling, environment, code_version(), parent.id, text)
        return Record(record_id(SOURCE, parent.id, text, number, policy, dict(sampling)), trajectory, provenance)


def _why_not(parent: Record, rule: Rule) -> str:
    """Why a parent is not tried; empty: it is."""
    trajectory = parent.trajectory
    if parent.provenance.source == SOURCE:
        return "augmented itself"
    if not trajectory.fingerprint:
        return "its start is unknown"
    if trajectory.success is not True and not rule.takes_unsolved:
        return "not solved"
    return ""


async def _require_deterministic(environment: Environment) -> None:
    """Raise NotKept unless an environment does the same again."""
    if isinstance(environment, ProcessEnvironment):
        try:
            await environment.start()  # another interpreter's facts are unknown before
        except BoundaryError as error:
            raise NotKept(error.cause_name) from error
    if not environment.facts.deterministic:
        raise NotKept("its environment is not deterministic")


def _what_happened(trajectory: Trajectory) -> tuple:
    observations = [trajectory.opening, *(turn.observation for turn in trajectory.turns)]
    return (*actions(trajectory), *(message.content for seen in observations for message in seen))


def _untimed(trajectory: Trajectory) -> Trajectory:
    turns = (replace(turn, policy_seconds=0.0, environment_seconds=0.0) for turn in trajectory.turns)
    return replace(trajectory, turns=tuple(turns))
