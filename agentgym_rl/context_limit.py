"""Whether a chat server refused a request because its conversation leaves no room for a reply.

There is no standard for it: each server answers status 400 with a code or a sentence of its own. Known are those of
OpenAI, vLLM, SGLang and llama.cpp.
"""

from __future__ import annotations

import re
from typing import Any

CODES = ("context_length_exceeded", "exceed_context_size_error")
"""As `code` or `type` of the error."""
SENTENCES = re.compile(
    r"context (length|size|window)|max_tokens must be at least 1, got -|prompt is too long", re.IGNORECASE
)


def is_context_full(error: Any) -> bool:
    """Whether an `openai.BadRequestError` says so."""
    return error.code in CODES or error.type in CODES or bool(SENTENCES.search(error.message))
