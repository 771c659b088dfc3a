"""A session as verl's rows: one a segment, with the rewards of its turns; facts of the episode on the last.

A session that was left out is one row without a trained token, marked as such.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

from agentgym_rl.environment import fingerprint
from agentgym_rl.rewards import Reward
from agentgym_rl.trajectory import Trajectory
from verl_ext.agent_loop.segment import Segment
from verl_ext.agent_loop.session_server import SessionServer
from verl_ext.agent_loop.turn_rewards import TurnRewardOutput
from verl_ext.survivors import EXCLUDED


def rows_of_session(
    trajectory: Trajectory, segments: Sequence[Segment], reward: Reward, server: SessionServer, wall_seconds: float
) -> list[TurnRewardOutput]:
    """One row a segment, in order.

    Args:
        trajectory: T turns.
        segments: those turns as they were sampled; fewer than T where the trajectory went on from an earlier one.
        reward: per turn [T].
        server: what the session sampled from.
        wall_seconds: from the first call to the last.
    """
    facts = episode_facts(trajectory, segments, reward.parts, wall_seconds)
    accuracy = math.nan if trajectory.success is None else float(trajectory.success)
    sampled = sum(len(segment.turn_ends) for segment in segments)
    rewards = iter(reward.per_turn_T[len(trajectory.turns) - sampled :])
    rows = []
    for segment in segments:
        last = segment is segments[-1]
        row = TurnRewardOutput(
            prompt_ids=segment.prompt_ids,
            response_ids=segment.response_ids,
            response_mask=segment.mask,
            response_logprobs=segment.logprobs if server.gives_logprobs else None,
            reward_score=reward.total,
            rewards_T=[next(rewards) for _ in segment.turn_ends],
            turn_ends_T=segment.turn_ends,
            num_turns=len(trajectory.messages),
            metrics=AgentLoopMetrics(
                generate_sequences=facts["policy_seconds"] if last else 0.0,
                tool_calls=facts["environment_seconds"] if last else 0.0,
            ),
            extra_fields={
                **server.weight_versions,
                "reward_extra_info": {"acc": accuracy, "return": reward.total, "turns": len(trajectory.turns)},
                "episode": facts if last else None,
            },
        )
        rows.append(row)
    return rows


def empty_row(token: int, weight_version: int, logprobs: bool) -> TurnRewardOutput:
    """Stands for a session that was left out; no token of it is trained. verl refuses rows without a token."""
    return TurnRewardOutput(
        prompt_ids=[token],
        response_ids=[token],
        response_mask=[0],
        response_logprobs=[0.0] if logprobs else None,
        reward_score=0.0,
        rewards_T=[],
        turn_ends_T=[],
        num_turns=0,
        metrics=AgentLoopMetrics(),
        extra_fields={
            "min_global_steps": weight_version,
            "max_global_steps": weight_version,
            "reward_extra_info": {},
            EXCLUDED: True,
        },
    )


def episode_facts(
    trajectory: Trajectory, segments: Sequence[Segment], reward_parts: Mapping[str, float], wall_seconds: float
) -> dict[str, Any]:
    """What the trainer needs of a trajectory beside its tokens; small, since it travels with the row."""
    turns = trajectory.turns
    return {
        "environment": trajectory.task.environment,
        "task": trajectory.task.id,
        "success": trajectory.success,
        "stop": trajectory.stop.value,
        "turns": len(turns),
        "invalid_turns": sum(not turn.valid for turn in turns),
        "cut_replies": sum(not turn.reply.complete for turn in turns),
        "policy_seconds": sum(turn.policy_seconds for turn in turns),
        "environment_seconds": sum(turn.environment_seconds for turn in turns),
        "turn_seconds": [turn.policy_seconds + turn.environment_seconds for turn in turns],
        "wall_seconds": wall_seconds,
        "reward_parts": dict(reward_parts),
        "state_keys": _state_keys(trajectory, segments),
        "said": fingerprint([turn.reply.message for turn in turns]),
    }


def _state_keys(trajectory: Trajectory, segments: Sequence[Segment]) -> list[str]:
    """What the policy saw before each turn, and before each of its own summaries, which the rows have as turns too: for
    estimators that compare turns taken in the same state."""
    seen = [_first_state(trajectory), *(fingerprint(turn.observation) for turn in trajectory.turns[:-1])]
    sampled = sum(len(segment.turn_ends) for segment in segments)
    of_turns = iter(seen[len(trajectory.turns) - sampled :])
    keys = []
    for segment in segments:
        keys += [next(of_turns) for _ in segment.turn_ends]
        keys += [segment.state_of_summary] if segment.state_of_summary else []
    return keys


def _first_state(trajectory: Trajectory) -> str:
    """Of the newest observation, as at every other turn: the trajectory's own fingerprint is of a whole prefix."""
    if not trajectory.task.prefix:
        return trajectory.fingerprint
    replies = [number for number, message in enumerate(trajectory.opening) if message.role == "assistant"]
    return fingerprint(trajectory.opening[replies[-1] + 1 :])
