"""How much of its own past a policy is shown, and what happens when the past no longer fits.

By default a conversation only grows: one training row a session, its prefix cached by the server. A long task needs
more: `keep_turns` goes on with the newest turns behind the first observation when the row is full, with a `summary` of
those before them if that is wanted, and `rerender` shows the conversation at every turn as the chat template writes it,
as a chat server would (a thinking template then strips old reasoning). Either way a new segment begins, and the trainer
puts a session's segments together again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.messages import Message
from verl_ext.agent_loop.summary import Summary


@dataclass(frozen=True)
class History:
    """What a session's prompts are made of."""

    keep_turns: int | None = None
    """Newest turns that are kept where the token budget of a row is used up; None: the episode ends there instead."""
    rerender: bool = False
    """Render the whole conversation anew at each turn. Costs one training row and one prefill a turn."""
    summary: Summary | None = None
    """Sum up the turns that are left out; null: they are forgotten."""

    def __post_init__(self) -> None:
        if self.keep_turns is not None and self.keep_turns < 1:
            raise ConfigurationError(
                f"agentgym.history.keep_turns must be at least 1, or null; given: {self.keep_turns}"
            )
        if self.summary is not None and (self.keep_turns is None or self.rerender):
            raise ConfigurationError(
                "agentgym.history.summary is of the turns that keep_turns leaves out: set that, and not rerender; "
                f"given: keep_turns {self.keep_turns}, rerender {self.rerender}"
            )

    @property
    def splits(self) -> bool:
        """Whether a session may become several training rows."""
        return self.rerender or self.keep_turns is not None

    def shortened(self, conversation: Sequence[Message]) -> list[Message] | None:
        """The opening and the newest turns; None where nothing can be left out."""
        replies = [index for index, message in enumerate(conversation) if message.role == "assistant"]
        if self.keep_turns is None or len(replies) <= self.keep_turns:
            return None
        return [*conversation[: replies[0]], *conversation[replies[-self.keep_turns] :]]
