"""A reply's reasoning inside its text: `<think>` and `</think>` before what is said, as chat templates write it.

`with_reasoning(*split(text))` is the text again.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_REASONED = re.compile(r"<think>\n(.*?)\n</think>\n\n(.*)", re.DOTALL)


class Split(NamedTuple):
    """What is said, and the reasoning before it; None: there is none."""

    said: str
    reasoning: str | None


def with_reasoning(said: str, reasoning: str | None) -> str:
    return said if reasoning is None else f"<think>\n{reasoning}\n</think>\n\n{said}"


def split(text: str) -> Split:
    found = _REASONED.fullmatch(text)
    return Split(found[2], found[1]) if found else Split(text, None)
