"""Sessions of a group through the agent loop, with a judge that sees them side by side, and what can go wrong."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from doubles import Countdown, task_for
from doubles_judge import SILENT, chat_server, records_shown, verdicts
from doubles_loop import ScriptedClient, SilentClient, play_row, row_of
from test_config import composed
from transformers import AutoTokenizer

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.failure_policy import Action
from verl_ext import failures
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.agent_loop.environment_loop import SessionFailed
from verl_ext.agent_loop.settings import Settings
from verl_ext.agent_loop.worker import worker
from verl_ext.failures import SessionFailure
from verl_ext.trainer_sessions import Sessions

QUICK, SLOW, WRONG = ["2", "1"], ["1", "1", "1"], ["2", "2"]
"""How to take 1 or 2 from 3 until it is 0; the last one goes below."""
GONE = ConnectionError("gone")


@pytest.fixture(scope="module")
def tokenizer(policy_folder):
    return AutoTokenizer.from_pretrained(policy_folder)


@pytest.fixture(scope="module")
def judge_server():
    with chat_server() as chat:
        yield chat


@pytest.fixture(autouse=True)
def reported(monkeypatch) -> list[SessionFailure]:
    """What was reported to the counter of a trainer of ours."""
    seen: list[SessionFailure] = []
    monkeypatch.setattr(failures, "report", lambda failure: seen.append(failure) or True)
    monkeypatch.setattr(failures, "report_pool", lambda periods: None)
    return seen


@pytest.fixture
def play(tokenizer):
    """Plays the sessions of a group, each by its lines; None: its policy never answers. Returns rows or errors."""
    chat = ChatTokens(tokenizer)

    def sessions(*lines: Any, judge: Any, validation: bool | None = False, **agentgym: Any) -> list[asyncio.Future]:
        clients = [SilentClient() if said is None else ScriptedClient(chat, said) for said in lines]
        task = task_for(Countdown)
        weights = {"weight": 0.5, "url": judge.url, "model": "m", "tries": 1, "deadline_seconds": 5}
        given = {"rewards": {"outcome": 1.0, "relative_judge": weights}, **agentgym}
        rows = [{**row_of(task), "session_id": number, "validation": validation} for number in range(len(lines))]
        return [
            asyncio.ensure_future(play_row(tokenizer, client, row, {"n": len(lines)}, **given))
            for client, row in zip(clients, rows, strict=True)
        ]

    async def all_of_them(*lines: Any, **settings: Any) -> list[Any]:
        done = asyncio.gather(*sessions(*lines, **settings), return_exceptions=True)
        return await asyncio.wait_for(done, 60)

    all_of_them.sessions = sessions
    return all_of_them


def by_turns(request: dict) -> str:
    """A judge that gives 10 less the number of turns."""
    replies = [[line for line in record if line["role"] == "assistant"] for record in records_shown(request)]
    return verdicts(*[10 - len(said) for said in replies])


def left_out(rows: Any) -> bool:
    return not isinstance(rows, BaseException) and [row.extra_fields.get("excluded") for row in rows] == [True]


def parts_of(rows: Any) -> dict[str, float]:
    return rows[-1].extra_fields["episode"]["reward_parts"]


def waited_for() -> int:
    """Groups with a session that is under way."""
    shared = worker(Settings())
    assert shared.comparisons is not None
    return len(shared.comparisons)


# What goes well


async def test_each_session_gets_its_score_on_its_last_turn_by_hand(play, judge_server, reported):
    with judge_server(otherwise=by_turns) as (server, judge):
        quick, slow, wrong = await play(QUICK, SLOW, WRONG, judge=judge)
    # turns          2    3     2
    # judge * 0.5    0.4  0.35  0.4
    # outcome        1    1     0
    assert [rows[0].reward_score for rows in (quick, slow, wrong)] == pytest.approx([1.4, 1.35, 0.4])
    assert parts_of(slow) == pytest.approx({"outcome": 1.0, "relative_judge": 0.35})
    scores = slow[0].as_dict()["rm_scores"]
    assert scores.nonzero().tolist() == [[slow[0].turn_ends_T[-1]]]
    assert scores.sum().item() == pytest.approx(1.35)
    assert len(server.requests) == 1
    assert reported == []
    assert waited_for() == 0


async def test_of_a_session_in_several_rows_the_last_has_the_score(play, judge_server):
    with judge_server(otherwise=by_turns) as (_, judge):
        quick, _ = await play(QUICK, SLOW, judge=judge, history={"rerender": True})
    assert [sum(row.as_dict()["rm_scores"].tolist()) for row in quick] == pytest.approx([0.0, 1.4])


async def test_spares_are_not_compared(play, judge_server):
    with judge_server(otherwise=by_turns) as (server, judge):
        rows = await play(QUICK, QUICK, QUICK, judge=judge, oversampling={"spares": 1})
    assert sorted(len(of_session) for of_session in rows) == [0, 1, 1]
    assert [len(records_shown(request)) for request in server.requests] == [2]


async def test_a_validated_session_is_not_compared(play, judge_server):
    with judge_server() as (server, judge):
        rows = await play(QUICK, SLOW, judge=judge, validation=True)
    assert [parts_of(of_session) for of_session in rows] == [{"outcome": 1.0}] * 2
    assert server.requests == []


# What goes wrong with a session


async def test_one_that_fails_in_the_middle_is_not_waited_for_and_the_others_are_compared(play, judge_server, reported):
    with judge_server(otherwise=by_turns) as (server, judge):
        failed, slow, wrong = await play(["1", GONE], SLOW, WRONG, judge=judge)
    assert left_out(failed)
    assert [rows[0].reward_score for rows in (slow, wrong)] == pytest.approx([1.35, 0.4])
    assert [len(records_shown(request)) for request in server.requests] == [2]
    assert [failure.episode.cause for failure in reported] == ["policy_raised"]


async def test_one_that_is_played_again_is_waited_for(play, judge_server, reported):
    again = {"failures": {"actions": {"policy_raised": "retry"}}}
    with judge_server(otherwise=by_turns) as (server, judge):
        rows = await play([GONE, *SLOW], QUICK, judge=judge, **again)
    assert [of_session[0].reward_score for of_session in rows] == pytest.approx([1.35, 1.4])
    assert [failure.action for failure in reported] == [Action.RETRY]
    assert len(server.requests) == 1


async def test_one_that_is_cancelled_is_not_waited_for(play, judge_server):
    with judge_server(otherwise=by_turns) as (server, judge):
        silent, *others = play.sessions(None, SLOW, WRONG, judge=judge)
        await asyncio.sleep(0.3)
        assert server.requests == []
        silent.cancel()
        rows = await asyncio.wait_for(asyncio.gather(*others), 60)
    assert [of_session[0].reward_score for of_session in rows] == pytest.approx([1.35, 0.4])
    assert silent.cancelled()
    assert waited_for() == 0


async def test_one_whose_policy_hangs_is_waited_for_until_its_own_deadline(play, judge_server, reported):
    with judge_server(otherwise=by_turns) as (_, judge):
        silent, slow, _ = await play(None, SLOW, WRONG, judge=judge, limits={"reply_seconds": 0.3})
    assert left_out(silent)
    assert slow[0].reward_score == pytest.approx(1.35)
    assert [failure.episode.cause for failure in reported] == ["policy_timed_out"]


async def test_the_last_one_left_is_left_out_and_said_so_and_has_not_failed(play, judge_server, reported, caplog):
    with judge_server() as (server, judge), caplog.at_level(logging.WARNING):
        failed, alone = await play([GONE], QUICK, judge=judge)
    assert left_out(failed)
    assert left_out(alone)
    assert [failure.episode.cause for failure in reported] == ["policy_raised"]
    assert "task 't': no sibling is left to compare a session with" in caplog.text
    assert server.requests == []


# What goes wrong with the judge


@pytest.mark.parametrize(
    ("answer", "cause"), [(500, "judge_raised"), ("7 of 10", "judge_raised"), (SILENT, "judge_timed_out")]
)
async def test_a_judge_that_fails_fails_every_session_of_the_group(play, judge_server, reported, answer, cause):
    with judge_server(answer) as (_, judge):
        weights = {"weight": 0.5, "url": judge.url, "model": "m", "tries": 1, "deadline_seconds": 0.5}
        rows = await play(QUICK, SLOW, judge=judge, rewards={"outcome": 1.0, "relative_judge": weights})
    assert all(map(left_out, rows))
    assert [(failure.episode.cause, failure.action, failure.fatal) for failure in reported] == [
        (cause, Action.EXCLUDE, False)
    ] * 2
    assert waited_for() == 0


async def test_the_failure_table_may_have_the_judge_asked_again_about_the_same_episodes(play, judge_server, reported):
    again = {"failures": {"actions": {"judge_raised": "retry"}}}
    with judge_server(500, otherwise=by_turns) as (server, judge):
        rows = await play(QUICK, SLOW, judge=judge, **again)
    assert [of_session[0].reward_score for of_session in rows] == pytest.approx([1.4, 1.35])
    assert [failure.action for failure in reported] == [Action.RETRY] * 2
    first, second = server.requests
    assert first == second


async def test_a_judge_that_can_not_be_reached_is_asked_again_by_default_and_then_given_up(
    play, judge_server, reported
):
    with judge_server() as (_, judge):
        weights = {"weight": 0.5, "url": "http://127.0.0.1:9/v1", "model": "m", "tries": 1}
        rows = await play(QUICK, SLOW, judge=judge, rewards={"outcome": 1.0, "relative_judge": weights})
    assert all(map(left_out, rows))
    assert {failure.episode.cause for failure in reported} == {"judge_crashed"}
    actions = [failure.action for failure in reported]
    assert (actions.count(Action.RETRY), actions.count(Action.EXCLUDE)) == (4, 2)


async def test_sessions_to_be_replaced_raise_whoever_counts(play, judge_server):
    with judge_server(500) as (_, judge):
        rows = await play(QUICK, SLOW, judge=judge, failures={"actions": {"judge_raised": "replace"}})
    assert [type(error) for error in rows] == [SessionFailed] * 2


async def test_a_judge_that_refuses_the_key_is_fatal(play, judge_server, reported):
    with judge_server(401) as (_, judge):
        errors = await play(QUICK, SLOW, judge=judge)
    assert [type(error) for error in errors] == [ConfigurationError] * 2
    assert [failure.fatal for failure in reported] == [True] * 2


# What can not work


async def test_a_trainer_that_does_not_say_what_is_validated_is_refused(play, judge_server, reported):
    with judge_server() as (_, judge):
        errors = await play(QUICK, SLOW, judge=judge, validation=None)
    assert all("trainer.v1.trainer_mode=agentgym or agentgym_async" in str(error) for error in errors)
    assert [failure.fatal for failure in reported] == [True] * 2


COMPARES = "+agentgym.rewards.relative_judge={weight: 0.5, url: 'http://h/v1', model: m}"


@pytest.mark.parametrize(("n", "spares"), [(1, 0), (3, 2)])
def test_a_trainer_refuses_groups_in_which_nothing_can_be_compared(n, spares):
    overrides = [f"actor_rollout_ref.rollout.n={n}", f"agentgym.oversampling.spares={spares}"]
    with pytest.raises(ConfigurationError, match=f"relative_judge compares .* must be 2 at least.*: {n} and {spares}"):
        Sessions(composed("quickstart", "grpo", COMPARES, *overrides))


def test_settings_refuse_rewards_that_leave_a_session_alone_without_any():
    compares = {"relative_judge": {"weight": 1, "url": "http://h/v1", "model": "m"}}
    with pytest.raises(
        ConfigurationError, match="'relative_judge' compares .*, as in validation, would have no reward"
    ):
        Settings(rewards=compares)


def test_a_trainer_refuses_groups_of_a_size_of_their_own():
    class Trainer(Sessions):
        def __init__(self) -> None:
            self._settings, self._compared = Settings(), "agentgym.rewards.relative_judge"

    with pytest.raises(ConfigurationError, match="rewards.relative_judge needs groups of rollout.n sessions; .*column"):
        Trainer()._submit_batch_to_rollout({"__rollout_n__": [4]})
