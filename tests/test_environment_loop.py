"""The agent loop from dataset row to training row, without Ray: a scripted server, real environments."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from doubles import Countdown, Crashes, DifferentOpening, Guess, HangsAwaiting, HangsInReset, RaisesInReset, task_for
from doubles_chat import runs_of_ones
from doubles_judge import chat_server, verdict
from doubles_loop import SAMPLING, HangsAtSecondStep, ScriptedClient, SilentClient, expert_lines, play_row, row_of
from transformers import AutoTokenizer

from agentgym_rl.environment import fingerprint
from agentgym_rl.environments.babyai import BabyAI
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.failure_policy import Action
from agentgym_rl.messages import assistant, user
from agentgym_rl.task import Task
from verl_ext import failures
from verl_ext.agent_loop import worker
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.agent_loop.environment_loop import SessionFailed
from verl_ext.agent_loop.settings import Settings
from verl_ext.failures import SessionFailure

SEED_OF_4 = next(seed for seed in range(50) if Guess().draw(task_for(Guess, seed=seed)) == 4)


@pytest.fixture(scope="module")
def tokenizer(policy_folder):
    return AutoTokenizer.from_pretrained(policy_folder)


@pytest.fixture(scope="module")
def chat(tokenizer) -> ChatTokens:
    return ChatTokens(tokenizer)


@pytest.fixture(autouse=True)
def reported(monkeypatch) -> list[SessionFailure]:
    """What was reported to the run's counter. Each test has an event loop, hence a worker, of its own."""
    seen: list[SessionFailure] = []
    monkeypatch.setattr(failures, "report", lambda failure: bool(seen.append(failure)))  # nobody counts
    monkeypatch.setattr(failures, "report_pool", lambda periods: None)
    return seen


@pytest.fixture
def run_rows(tokenizer):
    """Plays one session with a client; `rollout` and `agentgym` are the sections of the configuration."""

    async def play(client: Any, row: Task | dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        row = row_of(row) if isinstance(row, Task) else row
        return await asyncio.wait_for(play_row(tokenizer, client, row, *args, **kwargs), 60)

    return play


@pytest.fixture
def run(run_rows):
    """The one row of a session that was not split."""

    async def play(*args: Any, **kwargs: Any) -> Any:
        (row,) = await run_rows(*args, **kwargs)
        return row

    return play


# A session that ends well


async def test_a_training_row_by_hand(run, chat):
    client = ScriptedClient(chat, ["what?", "4"])
    output = await run(client, task_for(Guess, seed=SEED_OF_4), rewards={"outcome": 1.0, "format": 0.5})
    row = output.as_dict()
    first, second = client.said
    between = row["responses"].tolist()[len(first) : -len(second)]
    observed = "\n<|im_start|>user\nSay a number from 1 to 8.<|im_end|>\n<|im_start|>assistant\n"
    assert chat.reply_text(between) == observed.replace("<|im_start|>", "").replace("<|im_end|>", "")
    zeros = [0] * len(between)
    assert row["responses"].tolist() == first + between + second
    assert row["response_mask"].tolist() == [1] * len(first) + zeros + [1] * len(second)
    assert row["rollout_log_probs"].tolist() == [-0.5] * len(first) + zeros + [-0.5] * len(second)
    # format: half of -1/2 for the first of two turns; outcome: 1 for the second
    assert row["rm_scores"].tolist() == [0] * (len(first) - 1) + [-0.25] + zeros + [0] * (len(second) - 1) + [1.0]
    assert output.reward_score == 0.75
    assert row["num_turns"] == 6  # system, opening, reply, observation, reply, "found"
    fields = row["extra_fields"]
    assert (fields["min_global_steps"], fields["max_global_steps"]) == (3, 4)
    assert fields["reward_extra_info"] == {"acc": 1.0, "return": 0.75, "turns": 2}
    episode = dict(fields["episode"])
    first_state = episode["state_keys"][0]
    turn_seconds, wall_seconds = episode.pop("turn_seconds"), episode.pop("wall_seconds")
    assert len(turn_seconds) == 2
    assert sum(turn_seconds) == pytest.approx(episode["policy_seconds"] + episode["environment_seconds"])
    assert sum(turn_seconds) < wall_seconds
    assert {**episode, "policy_seconds": 0, "environment_seconds": 0} == {
        "environment": "double-guess",
        "success": True,
        "stop": "terminated",
        "turns": 2,
        "invalid_turns": 1,
        "cut_replies": 0,
        "policy_seconds": 0,
        "environment_seconds": 0,
        "reward_parts": {"outcome": 1.0, "format": -0.25},
        "task": "t",
        "state_keys": [first_state, fingerprint([user("Say a number from 1 to 8.")])],
        "said": fingerprint([assistant("what?"), assistant("4")]),
    }
    seconds = [fields["episode"]["policy_seconds"], fields["episode"]["environment_seconds"]]
    assert [output.metrics.generate_sequences, output.metrics.tool_calls] == seconds
    assert min(seconds) > 0


async def test_the_server_is_asked_as_one_session_with_fresh_parameters_each_time(run, chat):
    client, other = ScriptedClient(chat, ["what?", "4"]), ScriptedClient(chat, ["4"])
    output = await run(client, task_for(Guess, seed=SEED_OF_4), turn_tokens=20)
    await run(other, task_for(Guess, seed=SEED_OF_4))
    expected = {**SAMPLING, "max_tokens": 20, "stop_token_ids": sorted(chat.stop_ids)}
    assert [parameters for _, _, parameters in client.requests] == [expected, expected]
    (session, opening, _), (same, whole, _) = client.requests
    assert session == same != other.requests[0][0]
    assert opening == output.prompt_ids
    assert whole == (output.prompt_ids + output.response_ids)[: len(whole)]


async def test_a_server_without_log_probs_gives_a_row_without_them(run, chat):
    output = await run(ScriptedClient(chat, ["4"], log_probs=False), task_for(Guess, seed=SEED_OF_4))
    assert output.response_logprobs is None
    assert "rollout_log_probs" not in output.as_dict()


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_babyais_expert_earns_the_reward_of_its_environment(run, chat, isolation):
    task = Task("b", "babyai", {"level": "GoToLocalS8N4", "max_turns": 32}, seed=3)
    lines = expert_lines(BabyAI(), task)
    client = ScriptedClient(chat, lines)
    output = await run(
        client,
        task,
        {"prompt_length": 2000, "response_length": 8000},
        rewards={"environment": 2.0},
        isolation=isolation,
    )
    row = output.as_dict()
    assert row["extra_fields"]["episode"]["success"]
    assert runs_of_ones(row["response_mask"].tolist()) == [len(ids) for ids in client.said]
    assert len(client.said) == len(lines)
    assert 0 < output.reward_score < 2
    assert row["rm_scores"].nonzero().tolist() == [[len(output.response_ids) - 1]]
    assert row["rm_scores"].sum().item() == pytest.approx(output.reward_score)


# A session that is cut


async def test_a_budget_that_ran_out_is_a_truncation_with_reward_0(run, chat):
    client = ScriptedClient(chat, ["what?"] * 9)
    output = await run(client, task_for(Guess), {"response_length": 60})
    episode = output.extra_fields["episode"]
    assert (episode["stop"], episode["success"], output.reward_score) == ("token_budget", False, 0.0)
    assert len(output.response_ids) <= 60
    assert output.response_mask[-1] == 1
    assert episode["turns"] == len(runs_of_ones(output.response_mask)) == len(client.said) < 6


async def test_a_deadline_in_the_middle_of_a_step_leaves_that_turn_out(run, chat):
    client = ScriptedClient(chat, ["1", "1"])
    output = await run(
        client,
        task_for(HangsAtSecondStep),
        rewards={"environment": 1.0},
        limits={"episode_seconds": 1.0},
        truncations={"episode_deadline": "as_is"},
    )
    assert len(client.said) == 2
    assert output.response_ids == client.said[0]
    assert output.response_mask == [1] * len(client.said[0])
    assert output.as_dict()["rm_scores"].tolist() == [0] * (len(client.said[0]) - 1) + [-1.0]
    episode = output.extra_fields["episode"]
    assert (episode["stop"], episode["turns"], episode["success"]) == ("episode_deadline", 1, False)


async def test_what_is_configured_to_be_excluded_is_left_out_and_counted(run, chat, reported):
    excluded = {"truncations": {"max_turns": "exclude"}, "limits": {"max_turns": 2}}
    with pytest.raises(SessionFailed, match="max_turns: cut off after 2 turns"):
        await run(ScriptedClient(chat, ["1"] * 2), task_for(Countdown), **excluded)
    assert [(failure.episode.cause, failure.action) for failure in reported] == [("max_turns", Action.EXCLUDE)]
    validated = {**row_of(task_for(Countdown)), "validation": True}
    row = await run(ScriptedClient(chat, ["1"] * 2), validated, **excluded)
    assert row.extra_fields["episode"]["stop"] == "max_turns"


async def test_a_horizon_grows_with_the_steps_and_is_whole_in_validation(run, chat):
    growing = {"horizon": {0: 1, 10: 2}, "limits": {"max_turns": 3}}
    turns = []
    for extra in ({"global_steps": 9}, {"global_steps": 10}, {"global_steps": 9, "validation": True}):
        row = await run(ScriptedClient(chat, ["1"] * 3), {**row_of(task_for(Countdown)), **extra}, **growing)
        turns.append(row.extra_fields["episode"]["turns"])
    assert turns == [1, 2, 3]


async def test_of_the_sessions_of_a_group_the_spares_stand_in_for_those_that_failed(run, chat):
    spare = {"oversampling": {"spares": 1}, "failures": {"retries": 0}}

    async def session(number: int, line: str | Exception) -> Any:
        row = {**row_of(task_for(Guess, seed=SEED_OF_4)), "session_id": number}
        return await run(ScriptedClient(chat, [line]), row, {"n": 3}, **spare)

    async def kept(*lines: str | Exception) -> int:
        rows = await asyncio.gather(*(session(*numbered) for numbered in enumerate(lines)), return_exceptions=True)
        return sum(not isinstance(row, Exception) and "excluded" not in row.extra_fields for row in rows)

    assert await kept("4", "4", "4") == 2
    assert await kept("4", ConnectionError("gone"), "4") == 2


# A session in several rows


async def test_a_split_session_has_each_turns_reward_in_its_own_row_and_its_facts_on_the_last(run_rows, chat):
    client = ScriptedClient(chat, ["what?", "how?", "4"])
    rewards = {"outcome": 1.0, "format": 0.5}
    rows = await run_rows(client, task_for(Guess, seed=SEED_OF_4), history={"rerender": True}, rewards=rewards)
    assert [row.response_ids for row in rows] == client.said
    scores = [row.as_dict()["rm_scores"].tolist() for row in rows]
    # format: half of -1/3 for each of the first two turns; outcome: 1 for the third
    assert [sum(score) for score in scores] == pytest.approx([-1 / 6, -1 / 6, 1.0])
    assert [score[-1] for score in scores] == pytest.approx([-1 / 6, -1 / 6, 1.0])
    episodes = [row.extra_fields["episode"] for row in rows]
    assert episodes[:2] == [None, None]
    assert (episodes[2]["turns"], len(episodes[2]["state_keys"])) == (3, 3)
    assert [row.reward_score for row in rows] == pytest.approx([2 / 3] * 3)
    assert [row.extra_fields["reward_extra_info"]["acc"] for row in rows] == [1.0] * 3


@pytest.mark.parametrize("critic", [False, True])
async def test_a_critic_sees_what_followed_the_last_turn_of_a_session_that_was_cut_off(run, chat, critic):
    client = ScriptedClient(chat, ["1"] * 2)
    row = await run(client, task_for(Countdown), critic=critic, limits={"max_turns": 2})
    assert row.extra_fields["episode"]["stop"] == "max_turns"
    seen = row.response_ids[row.turn_ends_T[-1] + 1 :]
    assert bool(seen) is critic
    assert row.response_mask[row.turn_ends_T[-1] + 1 :] == [0] * len(seen)


async def test_a_critic_is_shown_nothing_behind_the_tasks_own_end(run, chat):
    row = await run(ScriptedClient(chat, ["4"]), task_for(Guess, seed=SEED_OF_4), critic=True)
    assert row.response_mask[-1] == 1


# A session that fails


@pytest.mark.parametrize(
    ("double", "line", "agentgym", "cause", "message"),
    [
        (RaisesInReset, "4", {}, "environment_raised", "ValueError: the level file is broken"),
        (HangsInReset, "1", {"limits": {"reset_seconds": 0.2}}, "environment_timed_out", "no answer within 0.2 s"),
        (HangsAwaiting, "1", {"limits": {"step_seconds": 0.2}}, "environment_timed_out", "no answer within 0.2 s"),
        (Crashes, "kill", {"isolation": "process"}, "environment_crashed", "SIGKILL"),
        (Guess, ConnectionError("gone"), {}, "policy_raised", "ConnectionError: gone"),
        (Guess, None, {"limits": {"reply_seconds": 0.2}}, "policy_timed_out", "no answer within 0.2 s"),
        (Guess, None, {"limits": {"episode_seconds": 0.2}}, "nothing_sampled", "before the policy could take"),
    ],
)
async def test_a_failure_gives_no_row_but_its_cause(run, chat, reported, double, line, agentgym, cause, message):
    client = SilentClient() if line is None else ScriptedClient(chat, [line])
    with pytest.raises(SessionFailed) as error:
        await run(client, task_for(double), failures={"retries": 0}, **agentgym)
    (failure,) = reported
    episode = failure.episode
    assert (episode.environment, episode.cause, failure.fatal) == (task_for(double).environment, cause, False)
    assert failure.action is Action.EXCLUDE
    assert message in episode.message
    assert f"task 't': {cause}: {episode.message}" == str(error.value)


async def test_a_retry_plays_the_task_again_and_its_row_is_that_of_the_last_try(run, chat, reported):
    again = {"failures": {"actions": {"policy_raised": "retry"}, "retries": 2}}
    output = await run(ScriptedClient(chat, [ConnectionError("gone"), "4"]), task_for(Guess, seed=SEED_OF_4), **again)
    assert output.extra_fields["episode"]["success"]
    assert [failure.action for failure in reported] == [Action.RETRY]


async def test_the_last_retry_is_an_exclusion(run, chat, reported):
    again = {"failures": {"actions": {"environment_raised": "retry"}, "retries": 2}}
    with pytest.raises(SessionFailed):
        await run(ScriptedClient(chat, ["4"]), task_for(RaisesInReset), **again)
    assert [failure.action for failure in reported] == [Action.RETRY, Action.RETRY, Action.EXCLUDE]


async def test_a_trainer_that_counts_gets_an_empty_row_instead_of_an_error(run, chat, monkeypatch):
    monkeypatch.setattr(failures, "report", lambda failure: True)
    output = await run(ScriptedClient(chat, ["4"]), task_for(RaisesInReset))
    row = output.as_dict()
    assert row["response_mask"].tolist() == [0]
    assert row["rm_scores"].tolist() == [0.0]
    assert output.extra_fields["excluded"]
    assert output.extra_fields["reward_extra_info"] == {}  # no accuracy: a failure is not a wrong answer
    assert isinstance(output.extra_fields["min_global_steps"], int)


async def test_chaos_of_the_settings_befalls_the_environment(run, chat, reported):
    with pytest.raises(SessionFailed):
        await run(ScriptedClient(chat, ["4"]), task_for(Guess), chaos={"error": 1.0})
    assert [failure.episode.cause for failure in reported] == ["environment_raised"]


async def test_a_session_to_be_replaced_raises_whoever_counts(run, chat, monkeypatch):
    monkeypatch.setattr(failures, "report", lambda failure: True)
    replaced = {"failures": {"actions": {"environment_raised": "replace"}}}
    with pytest.raises(SessionFailed):
        await run(ScriptedClient(chat, ["4"]), task_for(RaisesInReset), **replaced)


# What stops the run


async def test_sessions_of_a_group_must_start_alike(run, chat, reported):
    task = task_for(DifferentOpening, seed=SEED_OF_4)
    await run(ScriptedClient(chat, ["4"]), task, uid="one")
    await run(ScriptedClient(chat, ["4"]), task, uid="two")
    with pytest.raises(ConfigurationError, match="sessions of one group did not start alike: task 't' of environment"):
        await run(ScriptedClient(chat, ["4"]), task, uid="one")
    assert [(failure.fatal, failure.episode.environment) for failure in reported] == [(True, "double-differentopening")]


async def test_the_sessions_of_a_group_that_start_alike_may_go_on_differently(run, chat, reported):
    task = task_for(Countdown)
    played = [run(ScriptedClient(chat, lines), task) for lines in (["1", "2"], ["2", "1"], ["2", "2"])]
    outputs = await asyncio.gather(*played)
    assert [output.extra_fields["episode"]["success"] for output in outputs] == [True, True, False]
    assert reported == []


async def test_only_so_many_groups_are_remembered(run, chat, monkeypatch):
    monkeypatch.setattr(worker, "REMEMBERED_GROUPS", 2)
    for uid in ("a", "b", "c"):
        await run(ScriptedClient(chat, ["4"]), task_for(Guess, seed=SEED_OF_4), uid=uid)
    assert list(worker.worker(Settings())._first_observations) == ["b", "c"]


@pytest.mark.parametrize(
    ("row", "rollout", "environment", "kind", "message"),
    [
        ({"data_source": "x", "prompt": []}, {}, "unknown", DataError, "the column 'task' (one task as JSON"),
        ({"task": "{"}, {}, "unknown", DataError, "not valid JSON"),
        (Task("t", "double-gues"), {}, "double-gues", ConfigurationError, "did you mean 'double-guess'?"),
        (
            task_for(Guess, max_turns=0),
            {},
            "double-guess",
            ConfigurationError,
            "max_turns must be at least 1; given: 0",
        ),
        (task_for(Guess), {"prompt_length": 5}, "double-guess", DataError, "allowed are 5 (data.max_prompt_length)"),
    ],
)
async def test_what_can_not_work_is_fatal(run, chat, reported, row, rollout, environment, kind, message):
    with pytest.raises(kind) as error:
        await run(ScriptedClient(chat, ["4"]), row, rollout)
    assert message in str(error.value)
    assert [(f.episode.environment, f.episode.cause, f.episode.message, f.fatal) for f in reported] == [
        (environment, "configuration", str(error.value), True)
    ]


async def test_a_fault_in_a_reward_function_is_fatal(run, chat, reported):
    with pytest.raises(ZeroDivisionError):
        await run(
            ScriptedClient(chat, ["4"]),
            task_for(Guess, seed=SEED_OF_4),
            rewards={"doubles_loop:fails_to_judge": 1.0},
        )
    assert reported[0].episode.message == "ZeroDivisionError: no turn was judged"
    assert reported[0].fatal


async def test_wrong_settings_are_refused_before_anything_is_played(run, chat):
    with pytest.raises(ConfigurationError, match="the section agentgym has no 'reward'; did you mean 'rewards'"):
        await run(ScriptedClient(chat, []), task_for(Guess), reward={"outcome": 1.0})


async def test_a_crash_by_chaos_kills_the_worker_that_the_pool_reused_and_the_session_gets_another(run, chat, reported):
    task = task_for(Guess, seed=SEED_OF_4)
    await run(ScriptedClient(chat, ["4"]), task, isolation="process")
    crash = {"isolation": "process", "chaos": {"crash": 1.0}, "failures": {"retries": 1}}
    with pytest.raises(SessionFailed):
        await run(ScriptedClient(chat, ["4"]), task, **crash)
    # the worker of the first session was killed; the second had not started when chaos came
    assert [failure.episode.cause for failure in reported] == ["environment_crashed"] * 2
    assert "SIGKILL" in reported[0].episode.message
    output = await run(ScriptedClient(chat, ["4"]), task, isolation="process")
    assert output.extra_fields["episode"]["success"]


async def test_a_judge_that_fails_is_a_failed_session_with_its_cause_and_no_reward(run, chat, reported):
    judge = {"weight": 1.0, "url": "http://127.0.0.1:9/v1", "model": "m", "tries": 1}
    task, rewards = task_for(Guess, seed=SEED_OF_4), {"outcome": 1.0, "judge": judge}
    with pytest.raises(SessionFailed, match="judge_crashed: judge 'm' gave no verdict; try 1 of 1"):
        await run(ScriptedClient(chat, ["4"]), task, rewards=rewards, failures={"retries": 0})
    assert [(failure.episode.cause, failure.fatal) for failure in reported] == [("judge_crashed", False)]


async def test_a_judge_s_score_is_part_of_the_reward_of_the_row(run, chat, reported):
    with chat_server() as judge, judge(verdict(7)) as (_, settings):
        rewards = {"outcome": 1.0, "judge": {"weight": 0.5, "url": settings.url, "model": "m"}}
        row = await run(ScriptedClient(chat, ["4"]), task_for(Guess, seed=SEED_OF_4), rewards=rewards)
    assert row.reward_score == pytest.approx(1.35)
    assert reported == []
