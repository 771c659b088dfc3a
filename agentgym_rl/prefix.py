"""What was done before a policy's first turn, from which it goes on: a task's `prefix`, as plain data and as messages.

An entry is an assistant's chat message whose action is as the environment takes it: the `content` alone, or
`tool_calls` with it. A thought before it stands beside it as `reasoning_content`; it is shown where replies of the task
have a form with thoughts (`reply_form`), so that one prefix does for every form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from agentgym_rl.errors import DataError, did_you_mean
from agentgym_rl.messages import Message
from agentgym_rl.reply_form import ReplyForm

Entry = Mapping[str, Any]
THOUGHT = "reasoning_content"
KEYS = ("role", "content", "tool_calls", THOUGHT)


def checked(prefix: Any) -> tuple[Entry, ...]:
    """The entries of a prefix.

    Raises:
        DataError: it is no list, or one of its entries is no message of an assistant.
    """
    if not isinstance(prefix, list | tuple):
        raise DataError(f"a task's prefix must be a list of chat messages; given: {prefix!r}")
    for number, given in enumerate(prefix):
        try:
            _require_entry(given)
        except DataError as error:
            raise DataError(f"message {number} of a task's prefix: {error}") from error
    return tuple(prefix)


def written(prefix: Iterable[Entry], form: ReplyForm) -> list[Message]:
    """The replies of a prefix, as a policy writes them in this form."""
    return [
        replace(message, content=form.write(message.content, given.get(THOUGHT) or ""))
        for message, given in ((Message.from_chat(given), given) for given in prefix)
    ]


def entry(reply: Message, form: ReplyForm) -> Entry:
    """A reply that could be read, as an entry: `written` makes the same reply of it again, less white space."""
    chat = form.acted(reply).to_chat()
    before, ended, _ = reply.content.partition("</think>")
    thought = before.lstrip().removeprefix("<think>") if form.thinks and ended else ""
    return {**chat, THOUGHT: thought} if thought else chat


def _require_entry(given: Any) -> None:
    if not isinstance(given, Mapping):
        raise DataError(f"it must be a chat message; given: {given!r}")
    for key in given:
        if key not in KEYS:
            raise DataError(f"it has no {key!r}; {did_you_mean(str(key), KEYS)}")
    if given.get("role") != "assistant":
        raise DataError(f"its role must be 'assistant'; given: {given.get('role')!r}")
    if not isinstance(given.get(THOUGHT) or "", str):
        raise DataError(f"its {THOUGHT} must be text; given: {given[THOUGHT]!r}")
    try:
        Message.from_chat(given)
    except (TypeError, AttributeError) as error:
        raise DataError(f"it is no chat message ({error}); given: {given!r}") from error
