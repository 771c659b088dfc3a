"""Text that UTF-8 can hold: half a surrogate pair, which a policy or an environment may well say, becomes its escape.

In JSON text the escape reads as the same half again; in plain text it stays an escape, such as a visible "\\ud83d".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def encodable(value: Any) -> Any:
    """The value with every text in its lists and mappings made so; keys and what is no text stay."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, Mapping):
        return {key: encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [encodable(item) for item in value]
    return value
