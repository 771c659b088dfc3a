"""What stands for the turns that a shortened history leaves out: a summary, by the policy itself or by another model.

It is written when a row is full, and shown with the first observation of the next row. What the policy itself wrote
stands at the end of the full row, as sampled tokens that are trained like all others: as a turn that no environment
answers and that earns nothing by itself. One that is too long for the next row's prompt ends the episode and is not
trained.

Source of the idea to train summaries with the task: Lu et al. 2025, https://arxiv.org/abs/2510.06727
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from agentgym_rl.errors import BudgetExhausted, ConfigurationError, PolicyFailed
from agentgym_rl.evaluation.policies import server_client
from agentgym_rl.messages import Message, user
from agentgym_rl.policy import SampledTokens, ServerPolicy
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.agent_loop.segment import Segment

REQUEST = (
    "Most of this conversation will be taken away, and you go on from your notes. Write them now: what has been done, "
    "what was found, what is left to do. Take no action."
)
HEADING = "Your notes on what was done since:"


@dataclass(frozen=True)
class Summary:
    """Who writes the summaries, and how long they may be."""

    tokens: int = 256
    """Most of one summary. Those of the policy itself are set aside in each row, beside those of the request."""
    url: str = ""
    """Address of an OpenAI-compatible server; empty: the policy itself writes them."""
    model: str = ""
    """Its name on that server."""

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise ConfigurationError(f"agentgym.history.summary.tokens must be at least 1; given: {self.tokens}")
        if bool(self.url) != bool(self.model):
            raise ConfigurationError(
                "agentgym.history.summary names both url and model of another server, or neither; given: "
                f"url {self.url!r}, model {self.model!r}"
            )


class Notes(NamedTuple):
    """One summary."""

    text: str
    request: Sequence[int] = ()
    """What the policy itself was asked, as ids behind the segment's."""
    sampled: SampledTokens | None = None
    """What it said to that; None: another model wrote the text."""


class Summariser(Protocol):
    """Writes summaries."""

    reserve: int
    """Tokens of a row that it needs."""

    async def __call__(self, segment: Segment, messages: Sequence[Message]) -> Notes:
        """Sum up a segment, whose messages are these."""
        ...


class OwnSummaries:
    """The policy is asked, as if it were its next turn: what it knows already needs no second prefill."""

    def __init__(self, generate: Callable[[list[int], int], Awaitable[SampledTokens]], chat: ChatTokens, tokens: int):
        self._generate, self._chat, self._tokens = generate, chat, tokens
        self.reserve = len(chat.continuation([user(REQUEST)], [])) + tokens

    async def __call__(self, segment: Segment, messages: Sequence[Message]) -> Notes:
        request = self._chat.continuation([user(REQUEST)], segment.last_turn)
        sampled = await self._generate(segment.ids + request, self._tokens)
        if not sampled.ids:
            raise PolicyFailed("the policy server returned no token for a summary")
        return Notes(self._chat.reply_text(sampled.ids), request, sampled)


class OthersSummaries:
    """Another model is asked."""

    reserve = 0

    def __init__(self, url: str, model: str, tokens: int):
        self._policy = ServerPolicy(server_client(url), model, max_tokens=tokens, temperature=0.0)

    async def __call__(self, segment: Segment, messages: Sequence[Message]) -> Notes:
        try:
            return Notes((await self._policy.reply([*messages, user(REQUEST)])).message.content)
        except BudgetExhausted as error:  # of that server, and not of the episode
            raise PolicyFailed(f"the summary failed: {error}") from error


def with_summary(shown: Sequence[Message], summary: str) -> list[Message]:
    """The messages with a summary of what was left out between the first observation and the rest."""
    first = next(index for index, message in enumerate(shown) if message.role == "assistant") - 1
    told = replace(shown[first], content=f"{shown[first].content}\n\n{HEADING}\n{summary.strip()}")
    return [*shown[:first], told, *shown[first + 1 :]]
