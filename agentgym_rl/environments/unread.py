"""Replies that no game gets to read: they are too long, or hold a number that is too long for a game to read."""

from __future__ import annotations

import re

from agentgym_rl.environment import StepResult

MOVE_CHARACTERS = 10_000
_LONG_NUMBER = re.compile(r"\d{13}")


def unread(text: str) -> StepResult | None:
    """What comes of such a reply; None: the game may read it."""
    if len(text) <= MOVE_CHARACTERS and not _LONG_NUMBER.search(text):
        return None
    told = f"Not a move: more than {MOVE_CHARACTERS} characters, or a number of more than 12 digits."
    return StepResult.going_on(told, valid=False)
