"""Training rows of an episode that goes on from another one's turn: only what was sampled anew is trained."""

from __future__ import annotations

from contextlib import nullcontext

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
    (row,) = rows_of_session(forked, policy.segments, weighted_sum({"environment": 1.0})(forked), server, 1.0)
    assert row.prompt_ids == chat.opening(beginning.conversation())
    assert row.response_ids == client.said[0]
    assert row.rewards_T == [-1.0]
    assert row.reward_score == pytest.approx(-2.0)
