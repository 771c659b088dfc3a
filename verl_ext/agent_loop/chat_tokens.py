"""Chat messages as token ids, append-only, for any Hugging Face chat template that ends a turn with a special token.

Invariant: ids only ever grow at the end. What was sampled stays as it was sampled: it is neither decoded and encoded
again nor rendered by the template, which might trim it or strip its reasoning. The ids between two replies come from
rendering a short conversation whose reply is a marker, and taking what the template puts after the marker.

Texts can't forge a turn: a special token spelled out in a message gets a space behind its first character
(`<|im_end|>` is seen as `< |im_end|>`), in training and in SFT alike. Turn marks that a template writes as ordinary
text (Llama 2's `[INST]`) are out of reach of this and stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import TemplateError

from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.messages import Message, assistant, user

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MARKER = "(the-reply-stands-here)"


class RenderedConversation(NamedTuple):
    """Token ids of a conversation and its mask (same length): 1 where the ids are a trained reply's."""

    ids: list[int]
    mask: list[int]


class ChatTokens:
    """Builds a conversation's ids piece by piece: opening, reply, continuation, reply, ...

    Args:
        tokenizer: any Hugging Face tokenizer with a chat template.
        template_arguments: what else the template takes (`enable_thinking`, `tools`, ...).

    Raises:
        ConfigurationError: there is no chat template, or it ends a reply without a special token.
    """

    stop_ids: frozenset[int]
    """Sampling stops at these: the template's end-of-turn and the tokenizer's end-of-sequence."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template_arguments: Mapping[str, Any] | None = None):
        if not tokenizer.chat_template:
            raise ConfigurationError(f"the tokenizer {tokenizer.name_or_path!r} has no chat template")
        self._tokenizer = tokenizer
        self._template_arguments = dict(template_arguments or {})
        added = tokenizer.added_tokens_decoder
        self._special_ids = frozenset(tokenizer.all_special_ids) | {id for id, token in added.items() if token.special}
        self._special_text = _starts_of([tokenizer.convert_ids_to_tokens(id) for id in self._special_ids])
        tail = self._after_reply([user("next")])
        self._end_of_turn = tail[: self._length_of_end(tail)]
        eos = tokenizer.eos_token_id
        self.stop_ids = frozenset(self._end_of_turn[-1:]) | (frozenset() if eos is None else {eos})

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """The prompt before the first reply: the template's rendering with its generation prompt.

        Raises:
            DataError: the template refuses these messages.
        """
        return self._encode(self._rendered(messages))

    def going_on(self, messages: Sequence[Message]) -> list[int]:
        """The prompt before the next reply of a conversation with replies, each in the shape in which it would have
        been sampled: a template's rendering might strip its reasoning. One that calls by `tool_calls` has no such
        shape, and the template's will do.

        Raises:
            DataError: the template refuses these messages.
        """
        replies = [index for index, message in enumerate(messages) if message.role == "assistant"]
        if not replies or replies[0] == 0 or any(messages[index].tool_calls for index in replies):
            return self.opening(messages)
        ids = self.render(messages).ids
        return ids + self.continuation(messages[replies[-1] + 1 :], ids)

    def continuation(self, messages: Sequence[Message], last_ids: Sequence[int]) -> list[int]:
        """What goes between a reply and the next: end-of-turn, the new messages, the generation prompt.

        Args:
            messages: what was said since the reply.
            last_ids: the reply's ids; end-of-turn is left out where they end with it already.

        Raises:
            DataError: the template refuses these messages.
        """
        tail = self._after_reply(messages)
        end = self._length_of_end(tail)
        return tail[end:] if last_ids and last_ids[-1] == tail[end - 1] else tail

    def reply_text(self, ids: Sequence[int]) -> str:
        """The text of sampled ids, without end-of-turn and other special tokens."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def encode_reply(self, text: str) -> list[int]:
        """The ids that a policy would have sampled to say this text, with its end-of-turn."""
        return self._encode(self._defused(text)) + self._end_of_turn

    def render(self, messages: Sequence[Message], trained: Sequence[bool] | None = None) -> RenderedConversation:
        """A whole conversation in exactly the shape in which it would have been sampled.

        Args:
            messages: at least one message and then a reply; what follows the last reply is left out.
            trained: per message, whether its reply gets a mask of 1; None: every reply does.

        Raises:
            DataError: there is no reply, nothing before it, or a reply that is no text.
        """
        replies = [index for index, message in enumerate(messages) if message.role == "assistant"]
        _require_renderable(messages, replies)
        ids = self.opening(messages[: replies[0]])
        mask = [0] * len(ids)
        for index, following in zip(replies, [*replies[1:], None], strict=True):
            reply = self.encode_reply(messages[index].content)
            ids += reply
            mask += [1 if trained is None or trained[index] else 0] * len(reply)
            if following is not None:
                between = self.continuation(messages[index + 1 : following], reply)
                ids += between
                mask += [0] * len(between)
        return RenderedConversation(ids, mask)

    def _after_reply(self, messages: Sequence[Message]) -> list[int]:
        """What the template puts after a reply that these messages follow.

        There is no system message in front: some templates repeat it at the newest user message.
        """
        text = self._rendered([user("first"), assistant(_MARKER), *messages])
        _, found, tail = text.partition(_MARKER)
        if not found:
            raise ConfigurationError("the chat template leaves the assistant's text out; a reply can't be continued")
        return self._encode(tail)

    def _length_of_end(self, tail: Sequence[int]) -> int:
        """How many ids end the reply: those up to the first special one."""
        for index, id in enumerate(tail):
            if id in self._special_ids:
                return index + 1
        raise ConfigurationError(
            "the chat template ends a reply without a special token, so a policy could not say when it is done; "
            f"after a reply it writes {self._tokenizer.decode(list(tail))!r}"
        )

    def _rendered(self, messages: Sequence[Message]) -> str:
        chat = [self._defused(message.to_chat()) for message in messages]
        try:
            return self._tokenizer.apply_chat_template(
                chat, tokenize=False, add_generation_prompt=True, **self._template_arguments
            )
        except TemplateError as error:
            roles = ", ".join(message.role for message in messages) or "no message"
            raise DataError(f"the chat template refuses this order of messages ({roles}): {error}") from error

    def _encode(self, text: str) -> list[int]:
        # The template writes the beginning-of-sequence token itself; the tokenizer must not add a second one.
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _defused(self, value: Any) -> Any:
        """The same JSON value without any special token in its texts."""
        if isinstance(value, str):
            return self._special_text.sub(r"\g<0> ", value)
        if isinstance(value, Mapping):
            return {key: self._defused(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._defused(item) for item in value]
        return value


def _starts_of(tokens: Sequence[str]) -> re.Pattern[str]:
    """Matches the first character of each of these texts, where they overlap too."""
    alternatives = "|".join(re.escape(token) for token in sorted(tokens) if len(token) > 1)
    return re.compile(rf"(?={alternatives})." if alternatives else r"(?!)", re.DOTALL)


def _require_renderable(messages: Sequence[Message], replies: Sequence[int]) -> None:
    if not replies:
        raise DataError(f"a conversation needs an assistant message; given: {[m.role for m in messages]}")
    if replies[0] == 0:
        raise DataError("a conversation can't begin with the assistant; a system or user message goes first")
    for index in replies:
        if messages[index].tool_calls:
            raise DataError(
                f"message {index}: a reply with `tool_calls` is no text that a policy could have sampled; "
                "write the call into its content in the form that the policy is to use"
            )
