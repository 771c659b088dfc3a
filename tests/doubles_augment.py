"""Stairs whose words may vary, or change by themselves; and records of episodes that were really played."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any, ClassVar

from doubles_cli import Stairs

from agentgym_rl.data.augment import Augmented, augment_store
from agentgym_rl.data.augment_family import Augmentation
from agentgym_rl.data.record import Provenance, Record, record_id
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.environment import Facts
from agentgym_rl.environments import registry
from agentgym_rl.episode import Limits, play
from agentgym_rl.evaluation.policies import policies
from agentgym_rl.messages import user
from agentgym_rl.policy import ExpertPolicy, Policy, ScriptedPolicy
from agentgym_rl.rephrasing import Rephrasing
from agentgym_rl.task import Task

STAIR = re.compile(r"You are on stair (\d+)\.|Stair (\d+) is under your feet\.")


def _vary(seen: str, chance: random.Random) -> str:
    return STAIR.sub(r"Stair \1 is under your feet.", seen)


def _meaning(seen: str) -> str:
    match = STAIR.fullmatch(seen)
    return seen if match is None else match[1] or match[2]


class Winding(Stairs):
    rephrasing = Rephrasing(_vary, _meaning)


class Lying(Stairs):
    rephrasing = Rephrasing(lambda seen, chance: STAIR.sub("You are on stair 9.", seen), _meaning)


class Drifting(Stairs):
    """Tells another stair after each reset."""

    resets: ClassVar[int] = 0

    async def reset(self, task):
        Drifting.resets += 1
        return await super().reset(task)

    async def step(self, action):
        result = await super().step(action)
        return type(result)((user(f"step {Drifting.resets}"),), result.reward, result.terminated, False, result.success)


class Dice(Stairs):
    facts = Facts((0.0, 1.0), 20, 1.0, lists_actions=True, deterministic=False)


for kind in (Winding, Lying, Drifting, Dice):
    registry.register(f"{kind.__name__.lower()}_stairs", f"{__name__}:{kind.__name__}")


def record_of(task: Task, *lines: str, policy: Policy | None = None) -> Record:
    """The episode of these lines; without a line, the expert's."""

    async def played() -> Record:
        async with registry.opened(task.environment) as environment:
            speaks = policy or (ScriptedPolicy(lines) if lines else ExpertPolicy(environment))
            trajectory = await play(speaks, environment, task)
        return Record(record_id(task.to_json(), lines), trajectory, Provenance("collect", policy="a script"))

    return asyncio.run(played())


def augmented(
    folder: Path, *records: Record, policy: str = "expert", concurrency: int = 4, out: str = "out", **wanted: Any
) -> Augmented:
    """What is made of a store of these records, in `folder / out`."""
    source = TrajectoryStore(folder / "source")
    if not source.parts():
        source.append(records)
    wanted.setdefault("limits", Limits(max_turns=20))
    with policies(policy) as make_policy:
        return augment_store(source, folder / out, Augmentation(policy=policy, **wanted), make_policy, concurrency)


def made(done: Augmented) -> list[Record]:
    """The new records."""
    return [record for record in done.store.records() if record.provenance.source == "augment"]


def said(record: Record) -> list[str]:
    return [turn.reply.message.content for turn in record.trajectory.turns]


def seen(record: Record) -> list[str]:
    return [message.content for turn in record.trajectory.turns for message in turn.observation]
