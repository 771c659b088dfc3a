"""The baseline: all sessions step together, the design of verl-agent and RAGEN, without a deadline for anything.

A round asks the policy for every session that still plays, waits for the last reply, steps every environment, and
waits for the last step. With `slots` sessions at a time, the next batch begins when the last session of one has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentgym_rl.environment import Environment
from agentgym_rl.messages import Message
from agentgym_rl.policy import Policy
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Turn


@dataclass
class Session:
    """One episode under way."""

    policy: Policy
    environment: Environment
    task: Task
    conversation: list[Message] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    over: bool = False


async def play_in_lock_step(sessions: Sequence[Session], max_turns: int) -> None:
    """Play all to their ends, round by round."""
    for session, seen in zip(
        sessions, await asyncio.gather(*(s.environment.reset(s.task) for s in sessions)), strict=True
    ):
        session.conversation.extend(seen)
    for _ in range(max_turns):
        playing = [session for session in sessions if not session.over]
        if not playing:
            return
        await _round(playing)


async def _round(playing: Sequence[Session]) -> None:
    replies = await asyncio.gather(*(s.policy.reply(s.conversation) for s in playing))
    results = await asyncio.gather(
        *(s.environment.step(reply.message) for s, reply in zip(playing, replies, strict=True))
    )
    for session, reply, result in zip(playing, replies, results, strict=True):
        session.turns.append(Turn(reply, result.observation, result.reward, result.valid, info=result.info))
        session.conversation += [reply.message, *result.observation]
        session.over = result.terminated or result.truncated
