"""Training rows of an episode that goes on from another one's turn: only what was sampled anew is trained."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace

import pytest
from doubles import Countdown, task_for
from doubles_loop import ScriptedClient
from transformers import AutoTokenizer

from agentgym_rl.beginning import Beginning
from agentgym_rl.episode import play
from agentgym_rl.policy import ScriptedPolicy
from agentgym_rl.rewards import weighted_sum
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.agent_loop.session_server import SessionServer
from verl_ext.agent_loop.token_policy import TokenBudget, TokenPolicy
from verl_ext.agent_loop.training_rows import rows_of_session


async def test_a_forked_episode_trains_on_its_own_turns_and_has_the_earlier_ones_in_its_prompt(policy_folder):
    chat = ChatTokens(AutoTokenizer.from_pretrained(policy_folder))
    task = task_for(Countdown)  # from 3
    whole = await play(ScriptedPolicy(["1", "1", "1"]), Countdown(), task)
    beginning = Beginning.of(whole, 1)
    client = ScriptedClient(chat, ["2"])
    server = SessionServer(client, {}, chat.stop_ids, nullcontext())
    policy = TokenPolicy(server.generate, chat, TokenBudget(400, 400, 20))
    forked = await play(policy, Countdown(), task, beginning=beginning)
    assert (len(forked.turns), forked.success) == (2, True)
    earned = await weighted_sum({"environment": 1.0})(forked)
    (row,) = rows_of_session(forked, policy.segments, earned, server, 1.0)
    assert row.prompt_ids == chat.opening(beginning.conversation())
    assert row.response_ids == client.said[0]
    assert row.rewards_T == [-1.0]
    assert row.reward_score == pytest.approx(-2.0)


async def test_where_success_is_unknown_there_is_no_accuracy(policy_folder):
    chat = ChatTokens(AutoTokenizer.from_pretrained(policy_folder))
    server = SessionServer(ScriptedClient(chat, ["2", "1"]), {}, chat.stop_ids, nullcontext())
    policy = TokenPolicy(server.generate, chat, TokenBudget(400, 400, 20))
    solved = await play(policy, Countdown(), task_for(Countdown))
    rewarded = weighted_sum({"environment": 1.0})
    accuracies = {}
    for success in (True, False, None):
        trajectory = replace(solved, success=success)
        (row,) = rows_of_session(trajectory, policy.segments, await rewarded(trajectory), server, 1.0)
        accuracies[success] = row.extra_fields["reward_extra_info"]["acc"]
    assert (accuracies[True], accuracies[False], math.isnan(accuracies[None])) == (1.0, 0.0, True)


def test_a_validation_without_a_success_rate_has_no_such_metric():
    from verl.trainer.ppo.v1 import PPOTrainerSync

    from verl_ext.trainer_sessions import Sessions

    class Trainer(Sessions, PPOTrainerSync):
        def __init__(self) -> None:
            pass

    infos = {"reward": [1.0, 0.0, 1.0], "acc": [math.nan, math.nan, 1.0]}
    metrics = Trainer()._val_metrics_update(["blind", "blind", "seeing"], ["u1", "u2", "u3"], infos, [1, 2, 3])
    assert metrics["val-core/seeing/acc/mean@1"] == 1.0
    assert metrics["val-aux/blind/reward/mean@1"] == 0.5
    assert not [name for name in metrics if name.startswith(("val-core/blind", "val-aux/blind/acc"))]
