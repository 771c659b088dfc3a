"""Training rows: of an episode that goes on from another one's turn, of unknown success, and with a summary."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from doubles import Countdown, task_for
from doubles_loop import ScriptedClient
from transformers import AutoTokenizer

from agentgym_rl.beginning import Beginning
from agentgym_rl.episode import play
from agentgym_rl.messages import user
from agentgym_rl.policy import ScriptedPolicy
from agentgym_rl.rewards import weighted_sum
from verl_ext.advantages.rows import KnownRows, turn_numbers
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.agent_loop.history import History
from verl_ext.agent_loop.session_server import SessionServer
from verl_ext.agent_loop.summary import REQUEST, Summary
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


async def test_an_own_summary_is_a_turn_of_the_rows_that_earns_nothing_and_begins_in_a_state_of_its_own(policy_folder):
    chat = ChatTokens(AutoTokenizer.from_pretrained(policy_folder))
    lines = ["1", "1", "say 1", "1"]
    notes = len(chat.encode_reply(lines[2]))
    observed = len(chat.continuation([user("Say a number from 1 to 8.")], [*chat.encode_reply("1")]))
    reserve = len(chat.continuation([user(REQUEST)], [])) + notes
    room = 2 * len(chat.encode_reply("1")) + observed + reserve
    server = SessionServer(ScriptedClient(chat, lines), {}, chat.stop_ids, nullcontext())
    history = History(1, summary=Summary(tokens=notes))
    policy = TokenPolicy(server.generate, chat, TokenBudget(400, room, 20), history)
    trajectory = await play(policy, Countdown(), task_for(Countdown))
    assert (len(trajectory.turns), trajectory.success) == (3, True)

    rewarded = await weighted_sum({"environment": 1.0})(trajectory)
    first, second = rows_of_session(trajectory, policy.segments, rewarded, server, 1.0)
    assert [*first.rewards_T, *second.rewards_T] == list(rewarded.per_turn_T)
    assert first.response_mask[-notes:] == [1] * notes
    assert first.as_dict()["rm_scores"][-notes:].tolist() == [0.0] * notes

    mask = torch.nn.utils.rnn.pad_sequence([torch.tensor(row.response_mask) for row in (first, second)], True).bool()
    rows = KnownRows(["g_0_0", "g_0_1"], mask, [len(row.response_ids) for row in (first, second)], [None, None])
    keys = second.extra_fields["episode"]["state_keys"]
    assert len(keys) == int(turn_numbers(rows).max()) + 1 == 4  # three turns of the episode, and the summary
    assert keys[2].startswith("summary of ")
    assert len(set(keys)) == 4
