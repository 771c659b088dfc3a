"""How a reply writes its action, in environments that take text: bare, between tags, after a thought, or both.

Invariant: `read(write(action))` gives the action, less the white space around it, if it holds no tags; a reply of
another form is never guessed at, but answered with what is wrong and what the form is. Calls of tools have forms of
their own (`tool_calls`).

    bare         go north
    think        <think>The door is open.</think>go north
    tags         <action>go north</action>
    think-tags   <think>The door is open.</think><action>go north</action>

Source: the tags are those of Yao et al. 2022 (ReAct) as DeepSeek-R1 (2025) made them common for reinforcement learning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

from agentgym_rl.messages import Message

_THOUGHT_END = "</think>"
_ACTION = re.compile(r"<action>(?P<action>.*)</action>", re.DOTALL)


class Written(NamedTuple):
    """What a reply says."""

    action: str
    """Empty where there is a problem."""
    problem: str = ""
    """Why it can't be read, for whoever wrote it; empty: nothing is wrong."""


@dataclass(frozen=True)
class ReplyForm:
    """One form; see the list above."""

    thinks: bool
    tags: bool

    @property
    def is_bare(self) -> bool:
        return not (self.thinks or self.tags)

    @property
    def instructions(self) -> str:
        """What a system prompt tells of the form; empty for a bare action."""
        if self.is_bare:
            return ""
        action = "the action between <action> and </action>, and nothing else" if self.tags else "the action alone"
        if not self.thinks:
            return f"Write {action}."
        return f"First think, between <think> and </think>; then write {action}."

    def read(self, text: str) -> Written:
        """The action in a reply; a chat template may have begun the thought already, so `<think>` may be missing."""
        said = text
        if self.thinks:
            _, ended, said = text.partition(_THOUGHT_END)
            if not ended:
                return self._refused(f"there is no {_THOUGHT_END} in it")
        if self.tags:
            found = _ACTION.fullmatch(said.strip())
            if found is None or "<action>" in found["action"] or "</action>" in found["action"]:
                return self._refused("what is to be done must stand once between <action> and </action>, and alone")
            said = found["action"]
        action = said if self.is_bare else said.strip()
        return self._refused("it has no action") if not self.is_bare and not action else Written(action)

    def acted(self, reply: Message) -> Message:
        """The reply with its action alone; as it is where that can't be read."""
        return replace(reply, content=self.read(reply.content).action or reply.content)

    def write(self, action: str, thought: str = "") -> str:
        """A reply with this action."""
        said = f"<action>{action}</action>" if self.tags else action
        return f"<think>{thought}{_THOUGHT_END}{said}" if self.thinks else said

    def _refused(self, why: str) -> Written:
        return Written("", f"This reply can't be read: {why}. {self.instructions}")


FORMS = {
    "bare": ReplyForm(thinks=False, tags=False),
    "think": ReplyForm(thinks=True, tags=False),
    "tags": ReplyForm(thinks=False, tags=True),
    "think-tags": ReplyForm(thinks=True, tags=True),
}
"""Name, as a task has it -> form."""
