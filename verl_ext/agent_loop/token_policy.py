"""The policy that training plays with: it talks tokens to a server and keeps every sampled id as it was sampled.

Every turn is one run of ones in a segment's mask, and so is the policy's own summary at a segment's end. Observations
are appended when the next reply is asked for, so a response never ends with tokens that no reply followed, unless
`observe_end` is told to show what followed the last.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agentgym_rl.errors import BudgetExhausted, ConfigurationError, DataError, PolicyFailed
from agentgym_rl.messages import Message, assistant
from agentgym_rl.policy import Reply, SampledTokens
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.agent_loop.history import History
from verl_ext.agent_loop.segment import Segment
from verl_ext.agent_loop.summary import Notes, OthersSummaries, OwnSummaries, Summariser, with_summary

Generate = Callable[[list[int], int], Awaitable[SampledTokens]]
"""(ids so far, most new ids) -> what was sampled."""


@dataclass(frozen=True)
class TokenBudget:
    """What one training row may take, in tokens."""

    prompt: int
    """System prompt and first observation, with the turns of a task's prefix; in a later segment also a summary, and
    the turns that stand before it."""
    response: int
    """All replies and the observations between them."""
    turn: int
    """One reply."""


class _Place(NamedTuple):
    """Where the next reply belongs."""

    segment: Segment
    between: list[int]
    """The ids that come before it."""
    shown: Sequence[Message]
    """The messages that the segment's ids and these are."""
    notes: Notes | None = None
    """What a new segment begins with, of the last one."""


class TokenPolicy:
    """One episode's policy; `segments` is what it saw and said, in order, a turn or more in each."""

    def __init__(self, generate: Generate, chat: ChatTokens, budget: TokenBudget, history: History | None = None):
        self._generate = generate
        self._chat = chat
        self._budget = budget
        self._history = history or History()
        self._summarise = self._summariser()
        self._reserve = self._summarise.reserve if self._summarise else 0
        if self._reserve >= budget.response:
            raise ConfigurationError(
                f"a summary sets {self._reserve} tokens aside; a row has {budget.response} (data.max_response_length)"
            )
        self._said: list[Message] = []
        self._shown: list[Message] = []
        """What the last segment was told, and said."""
        self.segments: list[Segment] = []

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        """Sample the next reply; a conversation that does not continue the last one starts a segment.

        Raises:
            BudgetExhausted: the next observation leaves no room for a token.
            DataError: the first prompt is longer than its budget.
            PolicyFailed: the server sampled nothing.
        """
        segment, between, shown, notes = await self._place(conversation)
        room = self._room(segment, between)
        sampled = await self._generate(segment.ids + between, min(self._budget.turn, room))
        if not sampled.ids:
            raise PolicyFailed("the policy server returned no token")
        if not self.segments or segment is not self.segments[-1]:
            if notes and notes.sampled:
                self.segments[-1].sum_up(notes.request, notes.sampled.ids, notes.sampled.logprobs)
            self.segments.append(segment)
        segment.observe(between)
        segment.sample(sampled.ids, sampled.logprobs)
        message = assistant(self._chat.reply_text(sampled.ids))
        self._said, self._shown = [*conversation, message], [*shown, message]
        return Reply(message, complete=sampled.ids[-1] in self._chat.stop_ids, tokens=sampled)

    def keep_turns(self, turns: int) -> None:
        """Forget replies that no step of the environment answered (the episode's deadline came in between)."""
        for segment in self.segments:
            played = len(segment.turn_ends)
            if turns <= played:  # the last one, or behind it: a summary of it led to nothing
                segment.keep_turns(turns)
            turns = max(turns - played, 0)
        self.segments = [segment for segment in self.segments if segment.turn_ends]

    def observe_end(self, conversation: Sequence[Message]) -> None:
        """Append what followed the last reply, as the next prompt would have begun, if there is room: a critic can then
        value the state in which the episode was cut off."""
        segment, between = self.segments[-1], self._continuation(conversation)
        if between and self._room_left(segment, between) >= 0:
            segment.observe(between)

    def _summariser(self) -> Summariser | None:
        wanted = self._history.summary
        if wanted is None:
            return None
        if wanted.url:
            return OthersSummaries(wanted.url, wanted.model, wanted.tokens)
        return OwnSummaries(self._generate, self._chat, wanted.tokens)

    async def _place(self, conversation: Sequence[Message]) -> _Place:
        if not self.segments:
            segment, shown = self._first(conversation)
            return _Place(segment, [], shown)
        between = None if self._history.rerender else self._continuation(conversation)
        if between is None:
            segment, shown = self._later(conversation)
            return _Place(segment, [], shown)
        if self._room_left(self.segments[-1], between) < 1:
            kept = self._history.shortened(conversation)
            if kept is not None:
                notes = await self._summarise(self.segments[-1], self._shown) if self._summarise else None
                segment, shown = self._later(with_summary(kept, notes.text) if notes else kept)
                return _Place(segment, [], shown, notes)
        return _Place(self.segments[-1], between, [*self._shown, *conversation[len(self._said) :]])

    def _first(self, conversation: Sequence[Message]) -> tuple[Segment, Sequence[Message]]:
        """A segment that begins with the opening, or with fewer turns of its prefix where it has no room for them."""
        begin = self._chat.opening if self._history.rerender else self._chat.going_on
        ids, shown = begin(conversation), conversation
        if len(ids) > self._budget.prompt and (shorter := self._history.shortened(conversation)):
            ids, shown = begin(shorter), shorter
        if len(ids) > self._budget.prompt:
            raise DataError(
                f"the opening takes {len(ids)} tokens; allowed are {self._budget.prompt} (data.max_prompt_length)"
            )
        return Segment(ids), shown

    def _later(self, shown: Sequence[Message]) -> tuple[Segment, Sequence[Message]]:
        """A segment that begins with these messages, or with fewer turns of them where its prompt has no room."""
        ids = self._chat.opening(shown)
        if len(ids) > self._budget.prompt and (shorter := self._history.shortened(shown)):
            ids, shown = self._chat.opening(shorter), shorter
        if len(ids) > self._budget.prompt:
            raise BudgetExhausted(
                f"what is kept of the conversation takes {len(ids)} tokens; allowed are {self._budget.prompt} "
                "(data.max_prompt_length)"
            )
        return Segment(ids), shown

    def _continuation(self, conversation: Sequence[Message]) -> list[int] | None:
        """The ids between the last reply and the next; None: the conversation was rewritten."""
        known = len(self._said)
        if list(conversation[:known]) != self._said:
            return None
        return self._chat.continuation(conversation[known:], self.segments[-1].last_turn)

    def _room(self, segment: Segment, between: Sequence[int]) -> int:
        room = self._room_left(segment, between)
        if room < 1:
            turn = sum(len(earlier.turn_ends) for earlier in self.segments)
            raise BudgetExhausted(f"{self._budget.response} response tokens leave no room for turn {turn}")
        return room

    def _room_left(self, segment: Segment, between: Sequence[int]) -> int:
        return self._budget.response - self._reserve - len(segment.response_ids) - len(between)
