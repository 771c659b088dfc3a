"""A Hugging Face folder, evaluated as it would be trained."""

from __future__ import annotations

import threading

from doubles import Guess, tasks_for

from agentgym_rl.episode import Limits
from agentgym_rl.evaluation.run import evaluate
from agentgym_rl.task import Task
from verl_ext.rollout.checkpoint_policy import checkpoint_policies


async def test_a_random_policy_plays_babyai_to_the_end(policy_folder):
    tasks = [Task(f"b{seed}", "babyai", {"level": "GoToLocalS8N4"}, seed=seed) for seed in range(4)]
    replies = []
    with checkpoint_policies(str(policy_folder), temperature=1.0, max_tokens=6, seed=0) as make_policy:
        evaluation = await evaluate(
            make_policy,
            tasks,
            Limits(max_turns=3),
            on_episode=lambda _, trajectory: replies.extend(turn.reply for turn in trajectory.turns),
        )
    assert [(row.task, row.failure, row.turns, row.stop) for row in evaluation.rows] == [
        (f"b{seed}", None, 3, "max_turns") for seed in range(4)
    ]
    assert all(1 <= len(reply.tokens.ids) == len(reply.tokens.logprobs) <= 6 for reply in replies)
    assert len({reply.tokens.ids for reply in replies}) > 1
    assert not any("_run_generation_loop" in thread.name and thread.is_alive() for thread in threading.enumerate())


async def test_temperature_0_says_the_same_whatever_the_seed(policy_folder):
    async def said(seed: int) -> list[tuple[str, list[tuple[int, ...]]]]:
        replies = []
        with checkpoint_policies(str(policy_folder), temperature=0, max_tokens=6, seed=seed) as make_policy:
            await evaluate(
                make_policy,
                tasks_for(Guess, 2),
                on_episode=lambda _, trajectory: replies.append(
                    (trajectory.task.id, [turn.reply.tokens.ids for turn in trajectory.turns])
                ),
            )
        return sorted(replies)

    first = await said(seed=0)
    assert len(first) == 2
    assert await said(seed=1) == first
