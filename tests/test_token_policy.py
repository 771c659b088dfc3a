"""The token policy over several chat templates: what was sampled is what is trained, bit for bit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
from doubles_chat import TEMPLATES, id_of, runs_of_ones, text_of, tokenizer_of
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.errors import BudgetExhausted, ConfigurationError, DataError, PolicyFailed
from agentgym_rl.messages import Message, assistant, system, user
from agentgym_rl.policy import Reply, SampledTokens
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.agent_loop.history import History
from verl_ext.agent_loop.token_policy import TokenBudget, TokenPolicy

ROOMY = TokenBudget(prompt=1000, response=10_000, turn=100)
OPENING = [system("be brief"), user("hello")]


class Scripted:
    """Samples the given ids, a reply a call, cut to what is allowed; an exception among them is raised."""

    def __init__(self, replies: Sequence[Sequence[int] | Exception]):
        self._replies = iter(replies)
        self.asked: list[tuple[list[int], int]] = []
        self.said: list[SampledTokens] = []

    async def __call__(self, ids: list[int], most: int) -> SampledTokens:
        self.asked.append((list(ids), most))
        reply = next(self._replies)
        if isinstance(reply, Exception):
            raise reply
        logprobs = (-len(self.asked) - place / 1000 for place in range(len(reply)))
        self.said.append(SampledTokens(tuple(reply[:most]), tuple(logprobs)[:most]))
        return self.said[-1]


def rows_of(policy: TokenPolicy) -> tuple[list[Any], ...]:
    """Ids, mask, log-probs and ends of turns of a session in one segment; empty ones before its first reply."""
    if not policy.segments:
        return [], [], [], []
    (segment,) = policy.segments
    return tuple(map(list, (segment.response_ids, segment.mask, segment.logprobs, segment.turn_ends)))


def converse(policy: TokenPolicy, observations: Sequence[str]) -> tuple[list[Message], list[Reply]]:
    """One reply for each observation's turn, until the budget is spent."""

    async def talk() -> tuple[list[Message], list[Reply]]:
        conversation, replies = list(OPENING), []
        for observation in observations:
            try:
                replies.append(await policy.reply(conversation))
            except BudgetExhausted:
                break
            conversation += [replies[-1].message, user(observation)]
        return conversation, replies

    return asyncio.run(talk())


def sampled_replies(chat: ChatTokens, max_size: int = 8) -> st.SearchStrategy[list[list[int]]]:
    """Any ids: halves of characters, special tokens in the middle, with and without an end of turn."""
    tokenizer = tokenizer_of(chat)
    special = st.sampled_from(sorted(tokenizer.all_special_ids))
    ids = st.one_of(st.integers(0, len(tokenizer) - 1), special, st.sampled_from(sorted(chat.stop_ids)))
    return st.lists(st.lists(ids, min_size=1, max_size=max_size), min_size=1, max_size=4)


observation = st.text(max_size=12)


@pytest.mark.parametrize("name", TEMPLATES)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_what_was_sampled_is_what_is_trained(chats, name, data):
    chat = chats[name]
    replies = data.draw(sampled_replies(chat))
    observations = data.draw(st.lists(observation, min_size=len(replies), max_size=len(replies)))
    server = Scripted(replies)
    policy = TokenPolicy(server, chat, ROOMY)
    _, answered = converse(policy, observations)

    ids, mask, logprobs, ends = rows_of(policy)
    assert len(ids) == len(mask) == len(logprobs)
    assert [id for id, bit in zip(ids, mask, strict=True) if bit] == [id for reply in replies for id in reply]
    assert runs_of_ones(mask) == [len(reply) for reply in replies]
    assert [x for x, bit in zip(logprobs, mask, strict=True) if bit] == [
        x for said in server.said for x in said.logprobs
    ]
    assert {x for x, bit in zip(logprobs, mask, strict=True) if not bit} <= {0.0}
    assert all(mask[end] == 1 and mask[end + 1 : end + 2] in ([], [0]) for end in ends)
    assert ends[-1] == len(ids) - 1
    starts = [end + 1 - len(reply) for end, reply in zip(ends, replies, strict=True)]
    assert [asked for asked, _ in server.asked] == [policy.segments[0].prompt_ids + ids[:start] for start in starts]
    assert [reply.tokens for reply in answered] == server.said
    assert [reply.complete for reply in answered] == [reply[-1] in chat.stop_ids for reply in replies]


@pytest.mark.parametrize("name", TEMPLATES)
@settings(deadline=None, max_examples=60)
@given(turns=st.lists(st.tuples(observation, observation), min_size=1, max_size=4))
def test_whole_replies_give_the_ids_that_fine_tuning_sees(chats, name, turns):
    chat = chats[name]
    policy = TokenPolicy(Scripted([chat.encode_reply(said) for said, _ in turns]), chat, ROOMY)
    converse(policy, [seen for _, seen in turns])
    written = [message for said, seen in turns for message in (assistant(said), user(seen))]
    ids, mask = chat.render([*OPENING, *written])
    assert policy.segments[0].prompt_ids + policy.segments[0].response_ids == ids
    assert [0] * len(policy.segments[0].prompt_ids) + policy.segments[0].mask == mask


def test_rows_by_hand(chats):
    chat = chats["chatml"]
    end = id_of(chat, "<|im_end|>")
    server = Scripted([[70, 71, end], [72]])
    policy = TokenPolicy(server, chat, ROOMY)
    _, replies = converse(policy, ["go on", "unread"])
    between = policy.segments[0].response_ids[3:-1]
    assert text_of(chat, between) == "\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"
    zeros = [0] * len(between)
    assert policy.segments[0].response_ids == [70, 71, end, *between, 72]
    assert policy.segments[0].mask == [1, 1, 1, *zeros, 1]
    assert policy.segments[0].logprobs == [-1.0, -1.001, -1.002, *zeros, -2.0]
    assert policy.segments[0].turn_ends == [2, 3 + len(between)]
    assert [reply.complete for reply in replies] == [True, False]
    assert replies[0].message == assistant(text_of(chat, [70, 71]))


def test_a_cut_reply_is_closed_before_the_next_observation(chats):
    chat = chats["chatml"]
    policy = TokenPolicy(Scripted([[70], [71]]), chat, ROOMY)
    converse(policy, ["go on", ""])
    assert policy.segments[0].mask[:2] == [1, 0]
    assert policy.segments[0].response_ids[1] == id_of(chat, "<|im_end|>")


def test_a_reply_of_special_tokens_alone_is_an_empty_message(chats):
    chat = chats["chatml"]
    start, end = id_of(chat, "<|im_start|>"), id_of(chat, "<|im_end|>")
    policy = TokenPolicy(Scripted([[start, end], [start]]), chat, ROOMY)
    _, replies = converse(policy, ["go on", ""])
    assert [reply.message.content for reply in replies] == ["", ""]
    assert policy.segments[0].response_ids[:2] == [start, end]


# Budgets


@pytest.mark.parametrize("name", TEMPLATES)
@settings(deadline=None, max_examples=60)
@given(data=st.data(), response=st.integers(1, 60), turn=st.integers(1, 12))
def test_no_response_is_longer_than_its_budget_and_none_ends_with_an_unanswered_observation(
    chats, name, data, response, turn
):
    chat = chats[name]
    replies = data.draw(sampled_replies(chat, max_size=15))
    server = Scripted(replies)
    policy = TokenPolicy(server, chat, TokenBudget(1000, response, turn))
    conversation, answered = converse(policy, ["go on"] * len(replies))
    assert len(policy.segments[0].response_ids) <= response
    assert policy.segments[0].mask[-1] == 1
    lengths = [len(said.ids) for said in server.said]
    before = [end + 1 - length for end, length in zip(policy.segments[0].turn_ends, lengths, strict=True)]
    assert [most for _, most in server.asked] == [min(turn, response - start) for start in before]
    if len(answered) < len(replies):
        last_turn = policy.segments[0].response_ids[policy.segments[0].turn_ends[-1] :]
        assert len(policy.segments[0].response_ids) + len(chat.continuation(conversation[-1:], last_turn)) >= response


def test_no_room_left_says_so_and_asks_nobody(chats):
    server = Scripted([[70, 71], [72]])
    policy = TokenPolicy(server, chats["chatml"], TokenBudget(1000, 2, 100))
    conversation, replies = converse(policy, ["go on"])
    before = rows_of(policy)
    with pytest.raises(BudgetExhausted, match="2 response tokens leave no room for turn 1"):
        asyncio.run(policy.reply(conversation))
    assert (rows_of(policy), len(server.asked), len(replies)) == (before, 1, 1)


def test_an_opening_may_fill_its_budget_but_not_pass_it(chats):
    chat = chats["chatml"]
    length = len(chat.opening(OPENING))
    policy = TokenPolicy(Scripted([[70]]), chat, TokenBudget(length, 10, 10))
    assert len(converse(policy, ["go on"])[1]) == 1
    server = Scripted([[70]])
    policy = TokenPolicy(server, chat, TokenBudget(length - 1, 10, 10))
    with pytest.raises(DataError) as error:
        converse(policy, ["go on"])
    assert f"the opening takes {length} tokens; allowed are {length - 1} (data.max_prompt_length)" in str(error.value)
    assert server.asked == []


# Turns that go, histories that change, servers that fail


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_keeping_fewer_turns_leaves_the_rows_as_they_were_then(chats, data):
    chat = chats["chatml"]
    replies = data.draw(sampled_replies(chat))
    kept = data.draw(st.integers(0, len(replies)))
    whole = TokenPolicy(Scripted(replies), chat, ROOMY)
    converse(whole, ["go on"] * len(replies))
    whole.keep_turns(kept)
    short = TokenPolicy(Scripted(replies), chat, ROOMY)
    converse(short, ["go on"] * kept)
    assert rows_of(whole) == rows_of(short)


def test_a_conversation_that_was_rewritten_starts_a_segment(chats):
    chat = chats["chatml"]
    server = Scripted([[70], [71], [72]])
    policy = TokenPolicy(server, chat, ROOMY)
    conversation, _ = converse(policy, ["go on"])
    first = rows_of(policy)
    conversation[1] = user("hello again")
    reply = asyncio.run(policy.reply(conversation))
    asyncio.run(policy.reply([*conversation, reply.message, user("and on")]))
    before, after = policy.segments
    assert (before.response_ids, before.mask, before.logprobs, before.turn_ends) == first
    assert after.prompt_ids == chat.opening(conversation)
    between = chat.continuation([user("and on")], [71])
    assert after.response_ids == [71, *between, 72]
    assert after.mask == [1, *[0] * len(between), 1]
    assert [ids for ids, _ in server.asked[1:]] == [after.prompt_ids, [*after.prompt_ids, 71, *between]]


def test_a_full_row_goes_on_with_the_newest_turns_in_the_next(chats):
    chat = chats["chatml"]
    between = len(chat.continuation([user("go on")], [70]))
    # three turns of one token fill 3 + 2 * between; the fourth needs another row
    budget = TokenBudget(1000, 3 + 2 * between, 100)
    server = Scripted([[70], [71], [72], [73], [74]])
    policy = TokenPolicy(server, chat, budget, History(keep_turns=1))
    conversation, replies = converse(policy, ["go on"] * 5)
    assert [len(segment.turn_ends) for segment in policy.segments] == [3, 2]
    assert policy.segments[1].prompt_ids == chat.opening([*OPENING, *conversation[6:8]])
    assert [message.content for message in conversation[6:8]] == [replies[2].message.content, "go on"]


def test_a_history_that_is_rendered_anew_gives_a_segment_a_turn(chats):
    chat = chats["chatml"]
    policy = TokenPolicy(Scripted([[70], [71], [72]]), chat, ROOMY, History(rerender=True))
    conversation, _ = converse(policy, ["go on"] * 3)
    assert [segment.response_ids for segment in policy.segments] == [[70], [71], [72]]
    assert [segment.prompt_ids for segment in policy.segments] == [
        chat.opening(conversation[:end]) for end in (2, 4, 6)
    ]


def test_what_is_kept_must_fit_the_prompt(chats):
    chat = chats["chatml"]
    budget = TokenBudget(len(chat.opening(OPENING)), 10, 100)
    policy = TokenPolicy(Scripted([[70], [71]]), chat, budget, History(keep_turns=1, rerender=True))
    with pytest.raises(BudgetExhausted, match="what is kept of the conversation takes .* allowed are"):
        asyncio.run(_talk_on(policy))
    assert [segment.response_ids for segment in policy.segments] == [[70]]


async def _talk_on(policy: TokenPolicy) -> None:
    reply = await policy.reply(OPENING)
    await policy.reply([*OPENING, reply.message, user("go on")])


def test_keeping_fewer_turns_drops_whole_segments(chats):
    policy = TokenPolicy(Scripted([[70], [71], [72]]), chats["chatml"], ROOMY, History(rerender=True))
    converse(policy, ["go on"] * 3)
    policy.keep_turns(2)
    assert [segment.response_ids for segment in policy.segments] == [[70], [71]]


def test_what_followed_the_last_reply_is_shown_where_there_is_room(chats):
    chat = chats["chatml"]
    policy = TokenPolicy(Scripted([[70]]), chat, ROOMY)
    conversation, _ = converse(policy, ["the end"])
    policy.observe_end(conversation)
    seen = chat.continuation([user("the end")], [70])
    assert rows_of(policy) == ([70, *seen], [1, *[0] * len(seen)], [-1.0, *[0.0] * len(seen)], [0])
    tight = TokenPolicy(Scripted([[70]]), chat, TokenBudget(1000, len(seen), 100))
    conversation, _ = converse(tight, ["the end"])
    tight.observe_end(conversation)
    assert rows_of(tight) == ([70], [1], [-1.0], [0])


def test_a_history_of_no_turn_is_refused():
    with pytest.raises(ConfigurationError, match="keep_turns must be at least 1, or null; given: 0"):
        History(keep_turns=0)


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [(ConnectionError("gone"), ConnectionError, "gone"), ([], PolicyFailed, "the policy server returned no token")],
)
@pytest.mark.parametrize("turn", [0, 1])
def test_a_reply_that_failed_leaves_no_trace_and_can_be_asked_for_again(chats, turn, fault, kind, message):
    chat = chats["chatml"]
    script: list[Any] = [[70], [71]]
    policy = TokenPolicy(Scripted([*script[:turn], fault, *script[turn:]]), chat, ROOMY)
    conversation, _ = converse(policy, ["go on"] * turn)
    before = rows_of(policy)
    with pytest.raises(kind, match=message):
        asyncio.run(policy.reply(conversation))
    assert rows_of(policy) == before
    asyncio.run(policy.reply(conversation))
    undisturbed = TokenPolicy(Scripted(script), chat, ROOMY)
    converse(undisturbed, ["go on"] * (turn + 1))
    assert [segment.ids for segment in policy.segments] == [segment.ids for segment in undisturbed.segments]


def test_turn_ends_are_the_running_sums_of_all_lengths(chats):
    chat = chats["chatml"]
    policy = TokenPolicy(Scripted([[70], [71, 72], [73]]), chat, ROOMY)
    converse(policy, ["go on"] * 3)
    gap = len(chat.continuation([user("go on")], [70]))
    assert policy.segments[0].turn_ends == [total - 1 for total in accumulate([1, gap + 2, gap + 1])]
