"""A judge's score in a weighted sum of rewards: awaited, shared, and without a reward where it fails."""

import asyncio
import gc
import weakref

import pytest
from doubles_judge import by_replies, chat_server, trajectory_of, verdict

from agentgym_rl.errors import ConfigurationError, DataError, JudgeFailed
from agentgym_rl.rewards import weighted_sum

CLIMB = trajectory_of("up", "down", "top", success=True)


@pytest.fixture(scope="module")
def chat():
    with chat_server() as chat:
        yield chat


def judged(settings, weight=1.0, **more):
    return {"judge": {"weight": weight, "url": settings.url, "model": "m", "tries": 1, **more}}


async def one_a_turn(trajectory):
    await asyncio.sleep(0)
    return [1.0] * len(trajectory.turns)


async def one_too_few(trajectory):
    return [1.0] * (len(trajectory.turns) - 1)


async def test_a_judge_s_score_is_one_part_of_the_sum_by_hand(chat):
    # turn         0     1     2
    # outcome      0     0     1    * 2
    # judge        0     0     0.7  * 0.5
    # environment  0.25  0.25  0.25 * 1
    with chat(verdict(7)) as (_, settings):
        reward = await weighted_sum({"outcome": 2.0, "environment": 1.0, **judged(settings, weight=0.5)})(CLIMB)
    assert reward.per_turn_T == pytest.approx((0.25, 0.25, 2.6))
    assert reward.parts == pytest.approx({"outcome": 2.0, "environment": 0.75, "judge": 0.35})


async def test_both_kinds_of_functions_add_up():
    reward = await weighted_sum({"test_judge_reward:one_a_turn": 3.0, "outcome": 1.0})(CLIMB)
    assert reward.per_turn_T == (3.0, 3.0, 4.0)


async def test_what_is_awaited_is_held_to_one_number_a_turn():
    with pytest.raises(DataError, match="must give 3 finite numbers"):
        await weighted_sum({"test_judge_reward:one_too_few": 1.0})(CLIMB)


@pytest.mark.parametrize("answer", [500, "7 of 10", 400])
async def test_a_judge_that_fails_leaves_no_reward_at_all(chat, answer):
    with chat(answer) as (_, settings):
        with pytest.raises(JudgeFailed) as caught:
            await weighted_sum({"outcome": 1.0, **judged(settings)})(CLIMB)
    assert caught.value.cause_name == "judge_raised"


async def test_trajectories_share_one_judge_with_its_limit_and_its_cache(chat, tmp_path):
    given = [trajectory_of(reply) for reply in "abcdef"]
    score_of = {reply: score for score, reply in enumerate("abcdef")}
    with chat(otherwise=by_replies(score_of)) as (server, settings):
        server.gate = 2
        weights = judged(settings, concurrency=2, cache=str(tmp_path), deadline_seconds=10)
        rewards = await asyncio.gather(*(weighted_sum(weights)(trajectory) for trajectory in given))
        again = await asyncio.gather(*(weighted_sum(weights)(trajectory) for trajectory in given))
    assert [reward.total for reward in rewards] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert again == rewards
    assert (len(server.requests), server.most) == (6, 2)


async def test_a_trajectory_without_a_turn_is_not_judged(chat):
    with chat() as (server, settings):
        assert (await weighted_sum(judged(settings))(trajectory_of())).total == 0
    assert server.requests == []


def test_a_judge_needs_its_url_and_its_model():
    with pytest.raises(ConfigurationError, match="reward 'judge': missing a required argument: 'url'; it takes: url"):
        weighted_sum({"judge": 1.0})


async def test_each_event_loop_has_a_judge_of_its_own(chat):
    """Connections belong to the loop that opened them."""

    async def judge_once(settings):
        return (await weighted_sum(judged(settings))(CLIMB)).total

    with chat(verdict(7), verdict(8)) as (_, settings):
        totals = [await asyncio.to_thread(asyncio.run, judge_once(settings)) for _ in range(2)]
    assert totals == [0.7, 0.8]


def test_an_event_loop_that_ends_closes_its_judges_and_is_not_held(chat, caplog):
    async def judge_once(settings):
        await weighted_sum(judged(settings))(CLIMB)
        return weakref.ref(asyncio.get_running_loop())

    with chat(verdict(7)) as (_, settings):
        loop = asyncio.run(judge_once(settings))
    gc.collect()
    assert loop() is None
    assert caplog.records == []  # aiohttp logs a session that nobody closed
