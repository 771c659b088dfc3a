"""Whoever answers: the scripted, random, expert and human policies, and any OpenAI-compatible server.

A policy sees the whole conversation and returns one reply. Policies that sample tokens (verl's server, a local
checkpoint) live in `verl_ext` and attach the tokens to the reply.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentgym_rl.environment import Environment
from agentgym_rl.errors import BudgetExhausted, ConfigurationError
from agentgym_rl.messages import Message, assistant


@dataclass(frozen=True)
class SampledTokens:
    """The token ids of one reply as sampled, with the log-prob of each under the sampling policy (same length)."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True)
class Reply:
    """What a policy said. `complete` is False when a token limit cut the reply off."""

    message: Message
    complete: bool = True
    tokens: SampledTokens | None = None


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
        if not environment.facts.lists_actions:
            raise ConfigurationError("a random policy needs an environment that lists its actions")
        self._environment = environment
        self._random = random.Random(seed)

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        return Reply(assistant(self._random.choice(list(await self._environment.actions()))))


class ExpertPolicy:
    """Does what the environment's own expert would do."""

    def __init__(self, environment: Environment):
        if environment.facts.expert_success is None:
            raise ConfigurationError("an expert policy needs an environment that has an expert")
        self._environment = environment

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        return Reply(assistant(await self._environment.expert_action()))


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
        sampling: passed to the call as it is (`temperature`, `top_p`, `max_tokens`, `seed`, ...).
    """

    def __init__(self, client: Any, model: str, **sampling: Any):
        self._client = client
        self._model = model
        self._sampling = sampling

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        answer = await self._client.chat.completions.create(
            model=self._model, messages=[message.to_chat() for message in conversation], **self._sampling
        )
        choice = answer.choices[0]
        return Reply(assistant(choice.message.content or ""), complete=choice.finish_reason != "length")
