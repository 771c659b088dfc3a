"""Pairs of a better and a worse reply to the same conversation, for direct preference optimisation.

Of two episodes of a task, the better solved it and the other did not, or earned more. They are compared where they
part: the conversation up to their first different reply is the prompt, the two replies are chosen and rejected. Later
turns are left out, for trainers count every token of a completion, and those of the environment are no choice of the
policy's. Best and worst of a task make the first pair, second best and second worst the next.

Layout: TRL's conversational preference format (`prompt`, `chosen`, `rejected`: lists of chat messages).
Source: Rafailov et al. (2023), https://arxiv.org/abs/2305.18290; on trajectories of agents: Song et al. (2024),
https://arxiv.org/abs/2403.02502
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from agentgym_rl.data.record import Record
from agentgym_rl.data.sft_parquet import is_trained
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.store_query import Query
from agentgym_rl.trajectory import Trajectory

ANSWERED = ("user", "tool")
Score = tuple[bool, float]
"""(solved, return)."""


class Pair(NamedTuple):
    """Two ids of records, the better one first."""

    better: str
    worse: str


def preference_pairs(
    store: TrajectoryStore, query: Query | None = None, pairs_per_task: int = 1
) -> Iterator[dict[str, Any] | None]:
    """The pairs of a store; None for two episodes that never part by a reply, or part by one not worth imitating or
    that answers nothing: TRL takes a prompt that ends with the user or a tool, and would continue an assistant's.

    Args:
        query: which records are paired.
        pairs_per_task: at most.
    """
    partner: dict[str, str] = {}
    better = set()
    for pair in _pairs(store, query, pairs_per_task):
        partner |= {pair.better: pair.worse, pair.worse: pair.better}
        better.add(pair.better)
    waiting: dict[str, Record] = {}
    for record in store.records(query):
        other = waiting.pop(partner[record.id], None) if record.id in partner else None
        if other is not None:
            first, second = (record, other) if record.id in better else (other, record)
            yield _line(first.trajectory, second.trajectory)
        elif record.id in partner:
            waiting[record.id] = record


def _pairs(store: TrajectoryStore, query: Query | None, pairs_per_task: int) -> Iterator[Pair]:
    """Failed episodes say nothing about the policy, and one of unknown success was not solved."""
    names = ("environment", "task_id", "id", "success", "return", "failure_cause")
    of_task: dict[tuple[str, str], list[tuple[Score, str]]] = {}
    for environment, task, id, success, earned, failure in store.columns(*names, query=query):
        if failure is None:
            of_task.setdefault((environment, task), []).append(((success is True, earned), id))
    for scored in of_task.values():
        ranked = sorted(scored, key=lambda one: one[0], reverse=True)
        halves = list(zip(ranked, reversed(ranked), strict=True))[: len(ranked) // 2]
        for (high, better), (low, worse) in halves[:pairs_per_task]:
            if high > low:
                yield Pair(better, worse)


def _line(better: Trajectory, worse: Trajectory) -> dict[str, Any] | None:
    if better.opening != worse.opening:
        return None
    prompt = list(better.opening)
    for good, bad in zip(better.turns, worse.turns, strict=False):
        if good.reply.message != bad.reply.message:
            if not is_trained(good) or not prompt or prompt[-1].role not in ANSWERED:
                return None
            return {
                "prompt": [message.to_chat() for message in prompt],
                "chosen": [good.reply.message.to_chat()],
                "rejected": [bad.reply.message.to_chat()],
                "task_id": better.task.id,
                "environment": better.task.environment,
                "return_chosen": better.environment_return,
                "return_rejected": worse.environment_return,
            }
        if good.observation != bad.observation:
            return None
        prompt += [good.reply.message, *good.observation]
    return None
