"""Whoever answers: the scripted, random, expert and human policies, and any OpenAI-compatible server.

A policy sees the whole conversation and returns one reply. Policies that sample tokens (verl's server, a local
checkpoint) live in `verl_ext` and attach the tokens to the reply.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentgym_rl.context_limit import is_context_full
from agentgym_rl.environment import Environment, Facts
from agentgym_rl.errors import AgentGymError, BudgetExhausted, ConfigurationError, EnvironmentFailed
from agentgym_rl.messages import Message, ToolCall, assistant

UNREADABLE = "arguments that are no JSON object"
"""Name of the only argument of a call whose arguments can't be read; its value is what stood there."""


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """The token ids of one reply as sampled, with the log-prob of each under the sampling policy (same length)."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a policy said. `complete` is False when a token limit cut the reply off."""

    message: Message
    complete: bool = True
    tokens: SampledTokens | None = None


@dataclass(frozen=True, slots=True)
class Act(Reply):
    """A reply that is an action as the environment takes it; `play()` writes it in the form of the task's replies."""


class Policy(Protocol):
    """One conversation's policy. Instances that keep state are made anew for each episode."""

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        """Answer the conversation so far, which ends with a message of the environment.

        Raises:
            BudgetExhausted: no token is left for another reply.
        """
        ...


class ScriptedPolicy:
    """Says the given lines in order; out of budget after the last."""

    def __init__(self, lines: Iterable[str]):
        self._lines = iter(lines)

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        for line in self._lines:
            return Reply(assistant(line))
        raise BudgetExhausted("the script has no line left")


class RandomPolicy:
    """Uniform over the actions that the environment lists."""

    def __init__(self, environment: Environment, seed: int):
        facts = _known_facts(environment)
        if facts and not facts.lists_actions:
            raise ConfigurationError("a random policy needs an environment that lists its actions")
        self._environment = environment
        self._random = random.Random(seed)

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        return Act(assistant(self._random.choice(list(await self._environment.actions()))))


class ExpertPolicy:
    """Does what the environment's own expert would do."""

    def __init__(self, environment: Environment):
        facts = _known_facts(environment)
        if facts and facts.expert_success is None:
            raise ConfigurationError("an expert policy needs an environment that has an expert")
        self._environment = environment

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        try:
            action = await self._environment.expert_action()
        except AgentGymError:
            raise
        except Exception as error:  # the expert is the environment's: it is no policy that has failed
            raise EnvironmentFailed(f"the environment's expert raised {type(error).__name__}: {error}") from error
        return Act(assistant(action))


def _known_facts(environment: Environment) -> Facts | None:
    """None: another interpreter's, known once its worker has started; what they lack, its environment then refuses."""
    try:
        return environment.facts
    except ConfigurationError:
        return None


class HumanPolicy:
    """Asks a person; `ask` gets the latest observation's text and returns a line, or None to give up."""

    def __init__(self, ask: Callable[[str], str | None]):
        self._ask = ask

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        line = self._ask(conversation[-1].content)
        if line is None:
            raise BudgetExhausted("the player gave up")
        return Reply(assistant(line))


class ServerPolicy:
    """Any OpenAI-compatible chat server (vLLM, SGLang, llama.cpp, `transformers serve`, a vendor's).

    Args:
        client: an `openai.AsyncOpenAI`; it brings base URL, key, retries and timeout.
        model: the model's name on that server.
        environment: whose `tools` the server shows, and whose calls it reads; None: no tools.
        sampling: passed to the call as it is (`temperature`, `top_p`, `max_tokens`, `seed`, ...).
    """

    def __init__(self, client: Any, model: str, environment: Environment | None = None, **sampling: Any):
        self._client = client
        self._model = model
        self._environment = environment
        self._sampling = sampling

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        import openai

        tools = self._environment.tools if self._environment else ()
        shown = {"tools": [tool.to_chat() for tool in tools]} if tools else {}  # servers refuse an empty list
        messages = [_to_server(message) for message in conversation]
        try:
            answer = await self._client.chat.completions.create(
                model=self._model, messages=messages, **shown, **self._sampling
            )
        except openai.BadRequestError as error:
            # Of a first reply it says that the settings leave no room for any, which is no budget that was used up.
            if is_context_full(error) and any(message.role == "assistant" for message in conversation):
                raise BudgetExhausted(f"the server has no room for another reply: {error.message:.200}") from error
            raise
        choice = answer.choices[0]
        calls = tuple(_call_of(call) for call in choice.message.tool_calls or ())
        return Reply(assistant(choice.message.content or "", calls), complete=choice.finish_reason != "length")


def _to_server(message: Message) -> dict[str, Any]:
    """Servers take the arguments of a call as JSON text, where chat templates take an object."""
    chat = message.to_chat()
    for call in chat.get("tool_calls", ()):
        call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    return chat


def _call_of(call: Any) -> ToolCall:
    """A server hands on whatever the model wrote as arguments. What is no JSON object becomes an argument that no tool
    has, so that the environment refuses the call and shows it."""
    written = call.function.arguments
    try:
        arguments = json.loads(written or "{}")
    except TypeError:  # some servers send the object itself
        arguments = written
    except (ValueError, RecursionError):
        arguments = None
    return ToolCall(call.function.name, arguments if isinstance(arguments, dict) else {UNREADABLE: written}, call.id)
