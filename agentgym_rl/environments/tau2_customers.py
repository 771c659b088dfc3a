"""Whoever plays tau2-bench's customer, and the conversation that the agent has with them.

A customer sees the conversation as their own: the agent's words come as the user's, what they say themselves is the
assistant's, and what their phone answers are a tool's results.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from agentgym_rl.environments.tau2_world import World
from agentgym_rl.errors import EnvironmentFailed
from agentgym_rl.messages import Message, ToolCall, assistant, user

STOP, TRANSFER, OUT_OF_SCOPE = "###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###"
"""What a customer says to end the conversation, as in the package: they got what they wanted, are handed on, or can't
tell how to go on."""
MAX_PHONE_USES = 10
"""Times that a customer may use the phone before they answer."""

_DONE = re.compile(r"\b(done|anything else|goodbye)\b", re.IGNORECASE)
_HANDED_ON = re.compile(r"\btransferred to a human agent\b", re.IGNORECASE)
_NOTHING_NEW = "I have nothing to add. Tell me when it is done."


class Customer(Protocol):
    def say(self, conversation: Sequence[Message]) -> Message:
        """The customer's next message: words for the agent, or calls of the phone.

        Raises:
            EnvironmentFailed: there is none.
        """
        ...

    def has_more(self, conversation: Sequence[Message]) -> bool:
        """Whether the customer should be heard before the agent acts."""
        ...


class Conversation:
    """The agent's words and the customer's answers.

    Args:
        world: in which the customer's phone is, and which puts all on record.
        customer: who answers.
        recorded: what the customer said when this was played before; they are asked once it is used up.
    """

    def __init__(self, world: World, customer: Customer, recorded: Sequence[Message] = ()):
        self._world = world
        self._customer = customer
        self._recorded = list(recorded)
        self._messages: list[Message] = []

    @property
    def of_customer(self) -> list[Message]:
        """All that the customer said, calls of the phone included."""
        return [message for message in self._messages if message.role == "assistant"]

    @property
    def has_more(self) -> bool:
        return self._customer.has_more(self._messages)

    def answer(self, words: str) -> str:
        """What the customer says to the agent's words.

        Raises:
            EnvironmentFailed: nothing, or they use the phone without end.
        """
        self._world.say("assistant", words)
        self._messages.append(user(words))
        for _ in range(MAX_PHONE_USES + 1):
            said = self._recorded.pop(0) if self._recorded else self._customer.say(self._messages)
            self._messages.append(said)
            if not said.tool_calls:
                self._world.say("user", said.content)
                return said.content
            results = self._world.carry_out("user", said.tool_calls)
            pairs = zip(said.tool_calls, results, strict=True)
            self._messages += [Message("tool", text, tool_call_id=call.id) for call, text in pairs]
        raise EnvironmentFailed(f"the customer used the phone {MAX_PHONE_USES} times without a word to the agent")


def is_end(words: str) -> bool:
    """Whether a customer's words end the conversation."""
    return any(token in words for token in (STOP, TRANSFER, OUT_OF_SCOPE))


class ScriptedCustomer:
    """Tells the scenario part by part, in its own words; does with the phone what the agent names; and ends the
    conversation once all is told and the agent says that it is done.

    What is said follows from the conversation alone.
    """

    def __init__(self, world: World):
        self._parts = list(world.scenario.values())
        names = sorted((tool.name for tool in world.phone), key=len, reverse=True)
        self._uses = re.compile(rf"\b({'|'.join(names)})\b(?:\(([^()]*)\))?") if names else None

    def say(self, conversation: Sequence[Message]) -> Message:
        if conversation[-1].role == "tool":
            return assistant(_report(conversation))
        words = conversation[-1].content
        if _HANDED_ON.search(words):
            return assistant(TRANSFER)
        calls = self._named(words)
        if calls:
            return assistant("", calls)
        told = _told(conversation)
        if told < len(self._parts):
            return assistant(self._parts[told])
        return assistant(STOP if _DONE.search(words) else _NOTHING_NEW)

    def has_more(self, conversation: Sequence[Message]) -> bool:
        return _told(conversation) < len(self._parts)

    def _named(self, words: str) -> tuple[ToolCall, ...]:
        """`check_app_status(app_name="messaging")` or, without arguments, `check_sim_status`, wherever it stands."""
        found = list(self._uses.finditer(words))[:MAX_PHONE_USES] if self._uses else []
        return tuple(ToolCall(use[1], _arguments(use[2] or ""), f"phone-{n}") for n, use in enumerate(found))


def phone_use(call: ToolCall) -> str:
    """A call as an agent names it to the scripted customer."""
    arguments = ", ".join(f'{name}="{value}"' for name, value in call.arguments.items())
    return f"{call.name}({arguments})"


def _arguments(text: str) -> dict[str, str]:
    return dict(re.findall(r"""(\w+)\s*=\s*["']?([^"',]*)["']?""", text))


def _told(conversation: Sequence[Message]) -> int:
    """Answers so far that are neither a use of the phone nor a report of what it showed."""
    answers = (said for heard, said in pairwise(conversation) if (heard.role, said.role) == ("user", "assistant"))
    return sum(not answer.tool_calls for answer in answers)


def _report(conversation: Sequence[Message]) -> str:
    """What came of the calls that the customer just made."""
    calls = next(message.tool_calls for message in reversed(conversation) if message.tool_calls)
    results = conversation[-len(calls) :]
    return "\n".join(f"{call.name}: {result.content}" for call, result in zip(calls, results, strict=True))
