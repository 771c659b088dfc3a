"""What a rule of a filter is made of: a check, and the numbers that it is written with."""

from __future__ import annotations

import math
from collections.abc import Callable

from agentgym_rl.data.store_rows import Row
from agentgym_rl.errors import ConfigurationError

Check = Callable[[Row], str]
"""Why a row is dropped; empty: it is not. One that looks at no trajectory is twenty times as fast."""


def number(text: str) -> float:
    """A rule's value as a number; raises a ConfigurationError where it is none."""
    try:
        read = float(text)
    except ValueError:
        read = math.nan
    if math.isnan(read):
        raise ConfigurationError(f"it needs a number; given: {text!r}")
    return read


def count(text: str) -> int:
    """A rule's value as a number of things, from 1; raises a ConfigurationError where it is none."""
    if not text.isdecimal() or int(text) < 1:
        raise ConfigurationError(f"it needs a whole number of at least 1; given: {text!r}")
    return int(text)


def share(text: str) -> float:
    """A rule's value as a share, from 0 to 1; raises a ConfigurationError where it is none."""
    read = number(text)
    if not 0 <= read <= 1:
        raise ConfigurationError(f"it needs a number from 0 to 1; given: {text!r}")
    return read
