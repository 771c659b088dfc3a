"""Who plays tau2's customer, by the script or by a server on loopback that fails in every way: without the package."""

from __future__ import annotations

import re

import pytest
from doubles_judge import CUT, NO_CHOICE, NO_JSON, SILENT
from doubles_tau2 import PhoneWorld, customers
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.environments.tau2_customers import (
    MAX_PHONE_USES,
    OUT_OF_SCOPE,
    STOP,
    TRANSFER,
    Conversation,
    ScriptedCustomer,
    is_end,
    phone_use,
)
from agentgym_rl.environments.tau2_server_customer import CustomerServer, ServerCustomer
from agentgym_rl.errors import BudgetExhausted, ConfigurationError, EnvironmentFailed, Manner
from agentgym_rl.messages import ToolCall, assistant
from agentgym_rl.policy import ServerPolicy

pytest.importorskip("openai", reason='openai is not installed: pip install "openmanus-rl[server]"')


def scripted() -> Conversation:
    world = PhoneWorld()
    return Conversation(world, ScriptedCustomer(world))


def answers(*words: str) -> list[str]:
    conversation = scripted()
    return [conversation.answer(said) for said in words]


@pytest.fixture(scope="module")
def script():
    with customers() as script:
        yield script


def served(user) -> Conversation:
    world = PhoneWorld()
    return Conversation(world, ServerCustomer(world, CustomerServer.of(user), seed=3))


# ---- by the script


def test_each_part_is_told_once_and_done_ends_when_all_is_told():
    assert answers("Done?", "Done?", "What else?", "It is done.") == [
        "I want my data back.",
        "I am John.",
        "I have nothing to add. Tell me when it is done.",
        STOP,
    ]


@pytest.mark.parametrize("closing", ["It is DONE.", "Is there anything else?", "Goodbye!"])
def test_what_counts_as_done(closing):
    assert answers("a", "b", closing)[-1] == STOP


@pytest.mark.parametrize("words", ["abandoned", "undone", "I did it.", "", STOP])
def test_what_does_not(words):
    assert answers("a", "b", words)[-1].startswith("I have nothing to add.")


def test_the_phone_is_used_as_it_is_named_and_that_is_no_part():
    conversation = scripted()
    said = conversation.answer("Use toggle_wifi_calling, then set_mode(mode=\"4g 5g\", by='hand') and TOGGLE_WIFI.")
    assert said == 'toggle_wifi_calling: {}\nset_mode: {"mode": "4g 5g", "by": "hand"}'
    assert conversation.answer("Who are you?") == "I want my data back."


def test_no_more_is_done_at_a_time_than_a_customer_can_follow():
    assert len(answers("toggle_wifi " * 10_000)[0].splitlines()) == MAX_PHONE_USES


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.from_regex(r"[\w .:-]{0,12}", fullmatch=True)))
def test_a_call_that_is_written_for_the_customer_is_read_as_it_was(arguments):
    conversation = scripted()
    conversation.answer(f"Please do this: {phone_use(ToolCall('set_mode', arguments))}")
    [call] = conversation.of_customer[0].tool_calls
    assert (call.name, call.arguments) == ("set_mode", arguments)


@given(st.lists(st.text(), max_size=6))
def test_the_same_words_get_the_same_answers_and_never_the_agents_own(words):
    said = answers(*words)
    assert said == answers(*words)
    assert all(is_end(answer) == (answer in (STOP, TRANSFER)) for answer in said)


# ---- by a server


def test_a_message_goes_out_with_the_prompt_the_phone_and_the_seed(script):
    server, user = script("Hello, I am John.", parameters={"temperature": 0.7})
    assert served(user).answer("Hi!") == "Hello, I am John."
    [request] = server.requests
    assert request["messages"] == [{"role": "system", "content": "Play John."}, {"role": "user", "content": "Hi!"}]
    assert [tool["function"]["name"] for tool in request["tools"]] == [tool.name for tool in PhoneWorld.phone]
    assert (request["seed"], request["temperature"], request["model"]) == (3, 0.7, "m")


def test_what_a_model_thinks_is_not_said(script):
    _, user = script("<think>It asks me.</think>I am John.")
    assert served(user).answer("Hi!") == "I am John."


def test_calls_of_the_phone_are_answered_before_the_customer_speaks(script):
    server, user = script([("toggle_wifi", '{"on": 1}'), ("set_mode", "{no json")], "I did.")
    conversation = served(user)
    assert conversation.answer("Hi!") == "I did."
    shown = server.requests[1]["messages"][2:]
    assert [message["role"] for message in shown] == ["assistant", "tool", "tool"]
    assert [message["tool_call_id"] for message in shown[1:]] == ["c0", "c1"]
    assert (shown[1]["content"], "{no json" in shown[2]["content"]) == ('{"on": 1}', True)


def test_a_model_that_uses_the_phone_without_end_is_the_environments_failure(script):
    _, user = script(*[[("toggle_wifi", "{}")]] * (MAX_PHONE_USES + 1))
    with pytest.raises(EnvironmentFailed, match="used the phone 10 times without a word"):
        served(user).answer("Hi!")


def test_what_was_recorded_is_not_asked_for(script):
    server, user = script("Three.")
    world = PhoneWorld()
    customer = ServerCustomer(world, CustomerServer.of(user), seed=3)
    conversation = Conversation(world, customer, [assistant("One."), assistant("Two.")])
    assert [conversation.answer(words) for words in "abc"] == ["One.", "Two.", "Three."]
    assert len(server.requests[0]["messages"]) == 6


@pytest.mark.parametrize("token", [STOP, TRANSFER, OUT_OF_SCOPE])
def test_each_of_the_packages_tokens_is_an_end(script, token):
    _, user = script(f"Well. {token}")
    assert is_end(served(user).answer("Hi!"))
    assert not is_end(token.strip("#"))


@pytest.mark.parametrize("fault", [429, 500, 503, CUT, (429, {"retry-after": "0"})])
def test_what_passes_by_itself_is_tried_again(script, fault):
    server, user = script(fault, "Here I am.")
    assert served(user).answer("Hi!") == "Here I am."
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("entries", "manner", "told"),
    [
        ([500, 500], Manner.RAISED, "the customer's server raised InternalServerError"),
        ([429, 429], Manner.RAISED, "the customer's server raised RateLimitError"),
        ([400], Manner.RAISED, "the customer's server raised BadRequestError"),
        ([CUT, CUT], Manner.CRASHED, "the customer's server gave no connection"),
        ([NO_JSON], Manner.RAISED, "the customer's server raised"),
        ([NO_CHOICE], Manner.RAISED, "the customer's server raised IndexError"),
        ([""], Manner.RAISED, "gave neither words nor a call of the phone: ''"),
        (["<think>Well"], Manner.RAISED, "gave neither words nor a call of the phone"),
    ],
)
def test_a_server_that_gives_no_message_is_the_environments_failure(script, entries, manner, told):
    server, user = script(*entries, tries=2)
    with pytest.raises(EnvironmentFailed, match=told) as raised:
        served(user).answer("Hi!")
    assert raised.value.manner is manner
    assert len(server.requests) == len(entries)


def test_a_conversation_too_long_for_the_customers_model_is_no_budget_of_the_policys(script, monkeypatch):
    async def full(policy, conversation):
        raise BudgetExhausted("the server has no room for another reply")

    monkeypatch.setattr(ServerPolicy, "reply", full)
    _, user = script()
    with pytest.raises(EnvironmentFailed, match="the customer's server: the server has no room for another reply"):
        served(user).answer("Hi!")


def test_a_server_that_is_silent_is_late(script):
    _, user = script(SILENT, SILENT, deadline_seconds=0.2, tries=1)
    with pytest.raises(EnvironmentFailed) as raised:
        served(user).answer("Hi!")
    assert raised.value.manner is Manner.TIMED_OUT


def test_a_server_that_is_not_there_has_crashed():
    with pytest.raises(EnvironmentFailed, match="gave no connection") as raised:
        served({"url": "http://127.0.0.1:9/v1", "model": "m", "tries": 1}).answer("Hi!")
    assert raised.value.manner is Manner.CRASHED


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_server_that_refuses_the_settings_is_a_wrong_configuration(script, status):
    _, user = script(status)
    with pytest.raises(ConfigurationError, match="refused the key, the url or the model"):
        served(user).answer("Hi!")


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"url": "ftp://x", "model": "m"}, "a 'url' that begins with http:// or https://"),
        ({"url": "http://x"}, "the name of a 'model'; given: 'http://x', ''"),
        ({"uri": "http://x"}, "a customer's server has no 'uri'; did you mean 'url'?"),
        ({"url": "http://x", "model": "m", "tries": 0}, "'tries' of at least 1"),
        ({"url": "http://x", "model": "m", "deadline_seconds": "1"}, "'deadline_seconds' above 0; given: 4, '1'"),
        (
            {"url": "http://x", "model": "m", "parameters": {"n": 2}},
            "are an object without model, messages, tools, stream, n",
        ),
    ],
)
def test_settings_that_can_not_work_are_named(user, message):
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        CustomerServer.of(user)
