"""The policy that training plays with: it talks tokens to a server and keeps every sampled id as it was sampled.

Invariant: `prompt_ids + response_ids` is what the model saw and said, and `response_mask` is 1 exactly on the ids that
it sampled. Every turn is one run of ones. Observations are appended when the next reply is asked for, so a response
never ends with tokens that no reply followed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from agentgym_rl.errors import BudgetExhausted, DataError, PolicyFailed
from agentgym_rl.messages import Message, assistant
from agentgym_rl.policy import Reply, SampledTokens
from verl_ext.agent_loop.chat_tokens import ChatTokens

Generate = Callable[[list[int], int], Awaitable[SampledTokens]]
"""(ids so far, most new ids) -> what was sampled."""


@dataclass(frozen=True)
class TokenBudget:
    """What one episode may take, in tokens."""

    prompt: int
    """System prompt and first observation."""
    response: int
    """All replies and the observations between them."""
    turn: int
    """One reply."""


class TokenPolicy:
    """One episode's policy. `response_*` are aligned rows of R tokens; `turn_ends` has the last index of each turn."""

    def __init__(self, generate: Generate, chat: ChatTokens, budget: TokenBudget):
        self._generate = generate
        self._chat = chat
        self._budget = budget
        self._said: list[Message] = []
        self.prompt_ids: list[int] = []
        self.response_ids: list[int] = []
        self.response_mask: list[int] = []
        self.response_logprobs: list[float] = []
        self.turn_ends: list[int] = []

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        """Sample the next reply.

        Raises:
            BudgetExhausted: the next observation leaves no room for a token.
            DataError: the opening is longer than the prompt budget, or the conversation was rewritten.
            PolicyFailed: the server sampled nothing.
        """
        between = self._new_ids(conversation)
        room = self._budget.response - len(self.response_ids) - len(between)
        if room < 1:
            turn = len(self.turn_ends)
            raise BudgetExhausted(f"{self._budget.response} response tokens leave no room for turn {turn}")
        context = self.prompt_ids + self.response_ids + between
        sampled = await self._generate(context, min(self._budget.turn, room))
        if not sampled.ids:
            raise PolicyFailed("the policy server returned no token")
        self._append(between, [0.0] * len(between), sampled=0)
        self._append(sampled.ids, sampled.logprobs, sampled=1)
        self.turn_ends.append(len(self.response_ids) - 1)
        message = assistant(self._chat.reply_text(sampled.ids))
        self._said = [*conversation, message]
        return Reply(message, complete=sampled.ids[-1] in self._chat.stop_ids, tokens=sampled)

    def keep_turns(self, turns: int) -> None:
        """Forget replies that no step of the environment answered (the episode's deadline came in between)."""
        del self.turn_ends[turns:]
        end = self.turn_ends[-1] + 1 if self.turn_ends else 0
        for row in (self.response_ids, self.response_mask, self.response_logprobs):
            del row[end:]

    def _new_ids(self, conversation: Sequence[Message]) -> list[int]:
        """The ids between the last reply and the next; the opening goes to `prompt_ids`."""
        if not self._said:
            self.prompt_ids = self._chat.opening(conversation)
            if len(self.prompt_ids) > self._budget.prompt:
                raise DataError(
                    f"the opening takes {len(self.prompt_ids)} tokens; allowed are {self._budget.prompt} "
                    "(data.max_prompt_length)"
                )
            return []
        known = len(self._said)
        if list(conversation[:known]) != self._said:
            raise DataError("the conversation before the last reply was changed; a token policy only appends")
        last_turn = self.response_ids[self.turn_ends[-1] :]
        return self._chat.continuation(conversation[known:], last_turn)

    def _append(self, ids: Sequence[int], logprobs: Sequence[float], sampled: int) -> None:
        self.response_ids.extend(ids)
        self.response_mask.extend([sampled] * len(ids))
        self.response_logprobs.extend(logprobs)
