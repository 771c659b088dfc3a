"""A shortened history with a summary: who writes it, what it is told, where it stands, and that it is trained."""

from __future__ import annotations

import pytest
from doubles_chat import text_of
from doubles_judge import chat_server
from test_token_policy import OPENING, Scripted, converse

from agentgym_rl.errors import BudgetExhausted, ConfigurationError, PolicyFailed
from agentgym_rl.messages import assistant, system, user
from agentgym_rl.policy import ServerPolicy
from verl_ext.agent_loop.history import History
from verl_ext.agent_loop.summary import HEADING, REQUEST, Summary, with_summary
from verl_ext.agent_loop.token_policy import TokenBudget, TokenPolicy


def test_a_summary_stands_with_the_first_observation():
    shown = [system("s"), user("go"), assistant("c"), user("d")]
    assert with_summary(shown, " a and b\n") == [
        system("s"),
        user(f"go\n\n{HEADING}\na and b"),
        assistant("c"),
        user("d"),
    ]


@pytest.fixture
def chat(chats):
    return chats["chatml"]


def budget_of(chat, turns, spare):
    """Room for so many turns of one token, and `spare` tokens."""
    between = len(chat.continuation([user("go on")], [70]))
    return TokenBudget(1000, turns + (turns - 1) * between + spare, 100)


def test_the_policy_is_asked_where_its_row_is_full_and_goes_on_from_its_own_words(chat):
    notes = chat.encode_reply("two turns")
    reserve = len(chat.continuation([user(REQUEST)], [])) + len(notes)
    server = Scripted([[70], [71], [72], notes, [73], [74]])
    history = History(keep_turns=1, summary=Summary(tokens=len(notes)))
    policy = TokenPolicy(server, chat, budget_of(chat, 3, reserve), history)
    conversation, replies = converse(policy, ["go on"] * 5)

    first, second = policy.segments
    assert [len(segment.turn_ends) for segment in policy.segments] == [3, 2]
    # asked with what the row holds already, and the request in place of the next observation
    asked, most = server.asked[3]
    turns = first.prompt_ids + first.response_ids[: first.turn_ends[-1] + 1]
    assert asked == turns + chat.continuation([user(REQUEST)], [72])
    assert most == len(notes)
    # shown with the first observation, before the turn that is kept
    told = [OPENING[0], user(f"hello\n\n{HEADING}\ntwo turns"), *conversation[6:8]]
    assert second.prompt_ids == chat.opening(told)
    # no turn of the episode, and yet trained, behind what asked for it
    assert len(replies) == 5
    assert [sum(segment.mask) for segment in policy.segments] == [3 + len(notes), 2]
    assert first.ids == [*asked, *notes]
    assert first.mask[-len(notes) - 1 :] == [0, *[1] * len(notes)]
    assert (first.state_of_summary is None, second.state_of_summary) == (False, None)
    assert len(first.response_ids) <= policy._budget.response


def test_a_row_keeps_the_room_that_a_summary_needs(chat):
    reserve = len(chat.continuation([user(REQUEST)], [])) + 20
    long = [70] * 50
    server = Scripted([long, [71], [72]])
    policy = TokenPolicy(server, chat, TokenBudget(1000, reserve + 8, 100), History(1, summary=Summary(tokens=20)))
    converse(policy, ["go on"])
    assert server.asked[0][1] == 8
    assert all(len(ids) + most <= len(chat.opening(OPENING)) + reserve + 8 for ids, most in server.asked)


def test_a_later_summary_is_told_the_earlier_one(chat):
    notes = chat.encode_reply("n")
    reserve = len(chat.continuation([user(REQUEST)], [])) + len(notes)
    server = Scripted([[70], [71], notes, [72], [73], notes, [74]])
    policy = TokenPolicy(server, chat, budget_of(chat, 2, reserve), History(1, summary=Summary(tokens=len(notes))))
    converse(policy, ["go on"] * 5)
    second_request = server.asked[5][0]
    assert second_request[: len(policy.segments[1].prompt_ids)] == policy.segments[1].prompt_ids
    assert HEADING in text_of(chat, policy.segments[1].prompt_ids)
    assert text_of(chat, policy.segments[2].prompt_ids).count(HEADING) == 1


def test_another_model_is_told_what_the_row_told_and_takes_no_room_in_it(chat):
    with chat_server() as serve, serve("what it read") as (server, settings):
        policy = TokenPolicy(
            Scripted([[70], [71], [72]]),
            chat,
            budget_of(chat, 2, 0),
            History(1, summary=Summary(tokens=9, url=settings.url, model="m")),
        )
        conversation, _ = converse(policy, ["go on"] * 3)
    (request,) = server.requests
    spoken = [message["content"] for message in request["messages"]]
    assert spoken == [*(message.content for message in conversation[:5]), REQUEST]
    assert request["max_tokens"] == 9
    assert f"{HEADING}\nwhat it read" in text_of(chat, policy.segments[1].prompt_ids)


def test_a_conversation_that_is_too_long_for_the_other_model_is_a_failure_and_no_end_of_the_budget(chat, monkeypatch):
    async def too_long(self, conversation):
        raise BudgetExhausted("the server has no room for another reply")

    monkeypatch.setattr(ServerPolicy, "reply", too_long)
    other = Summary(tokens=9, url="http://localhost:1/v1", model="m")
    policy = TokenPolicy(Scripted([[70], [71]]), chat, budget_of(chat, 2, 0), History(1, summary=other))
    with pytest.raises(PolicyFailed, match="the summary failed: the server has no room for another reply"):
        converse(policy, ["go on"] * 3)


def test_a_summary_of_no_token_fails_the_reply(chat):
    reserve = len(chat.continuation([user(REQUEST)], [])) + 5
    server = Scripted([[70], [71], []])
    policy = TokenPolicy(server, chat, budget_of(chat, 2, reserve), History(1, summary=Summary(tokens=5)))
    with pytest.raises(PolicyFailed, match="no token for a summary"):
        converse(policy, ["go on"] * 3)


def test_a_row_that_the_summary_would_fill_is_refused(chat):
    with pytest.raises(ConfigurationError, match=r"a summary sets \d+ tokens aside; a row has 30 "):
        TokenPolicy(Scripted([]), chat, TokenBudget(1000, 30, 100), History(1, summary=Summary(tokens=29)))


def test_a_server_that_fails_the_summary_fails_the_reply(chat):
    reserve = len(chat.continuation([user(REQUEST)], [])) + 5
    server = Scripted([[70], [71], PolicyFailed("no server")])
    policy = TokenPolicy(server, chat, budget_of(chat, 2, reserve), History(1, summary=Summary(tokens=5)))
    with pytest.raises(PolicyFailed, match="no server"):
        converse(policy, ["go on"] * 3)
    assert [segment.turn_ends for segment in policy.segments] == [[0, len(policy.segments[0].response_ids) - 1]]


def test_a_summary_that_led_to_no_turn_of_the_episode_is_forgotten_and_one_that_did_is_kept(chat):
    notes = chat.encode_reply("n")
    reserve = len(chat.continuation([user(REQUEST)], [])) + len(notes)

    def played(turns):
        server = Scripted([[70], [71], notes, [72], [73]])
        history = History(1, summary=Summary(tokens=len(notes)))
        policy = TokenPolicy(server, chat, budget_of(chat, 2, reserve), history)
        converse(policy, ["go on"] * 4)
        policy.keep_turns(turns)
        return [(sum(segment.mask), segment.state_of_summary is not None) for segment in policy.segments]

    assert played(4) == [(2 + len(notes), True), (2, False)]
    assert played(3) == [(2 + len(notes), True), (1, False)]
    assert played(2) == [(2, False)]
    assert played(1) == [(1, False)]


def test_a_summary_is_not_trained_where_nothing_was_sampled_behind_it(chat):
    notes = chat.encode_reply("n")
    reserve = len(chat.continuation([user(REQUEST)], [])) + len(notes)
    server = Scripted([[70], [71], notes, PolicyFailed("no server")])
    policy = TokenPolicy(server, chat, budget_of(chat, 2, reserve), History(1, summary=Summary(tokens=len(notes))))
    with pytest.raises(PolicyFailed, match="no server"):
        converse(policy, ["go on"] * 3)
    assert [sum(segment.mask) for segment in policy.segments] == [2]
