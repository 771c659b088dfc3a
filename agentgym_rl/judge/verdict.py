"""What a judge answers, read strictly: a verdict is one JSON object of the agreed form, or there is none.

Nothing is searched for inside a text, and no score is guessed: an answer that quotes a grade from the record that it
was shown must not be taken for that grade.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from agentgym_rl.errors import AgentGymError

LOWEST, HIGHEST = 0, 10
"""Of a score as the judge gives it."""


class UnreadableVerdict(AgentGymError):
    """A judge's answer that has not the agreed form."""


class Verdict(NamedTuple):
    """One answer of a judge."""

    scores: tuple[float, ...]
    """Of each record, in the order in which they were shown; from 0 to 1."""
    reason: str


class Form(NamedTuple):
    """What a verdict must look like, to the server and to us."""

    name: str
    schema: dict[str, Any]
    read: Callable[[str], Verdict]
    """Raises an UnreadableVerdict."""


def absolute_form() -> Form:
    """{"reason": "...", "score": N}"""
    return Form("verdict", _schema("score", _SCORE), _read_absolute)


def relative_form(records: int) -> Form:
    """{"reason": "...", "scores": {"1": N, ...}}: a score for each record, exactly once."""
    labels = [str(number) for number in range(1, records + 1)]
    scores = _object_schema(dict.fromkeys(labels, _SCORE))
    return Form("verdicts", _schema("scores", scores), partial(_read_relative, labels))


# Not minimum and maximum: servers that hold a model to a schema know `enum` everywhere.
_SCORE = {"type": "integer", "enum": list(range(LOWEST, HIGHEST + 1))}


def _schema(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The reason comes first, so that the score follows from it."""
    return _object_schema({"reason": {"type": "string"}, name: schema})


def _object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _read_absolute(text: str) -> Verdict:
    given = _read(text, "score")
    return Verdict((_score(given["score"], "the score"),), given["reason"])


def _read_relative(labels: Sequence[str], text: str) -> Verdict:
    given = _read(text, "scores")
    scores = given["scores"]
    if not isinstance(scores, dict) or sorted(scores) != sorted(labels):
        raise UnreadableVerdict(f"scores must have each of {', '.join(labels)} exactly once; given: {scores!r:.200}")
    return Verdict(tuple(_score(scores[label], f"the score of record {label}") for label in labels), given["reason"])


def _read(text: str, scores: str) -> dict[str, Any]:
    """The one JSON object that a text is, with a reason and this field."""
    try:
        given = json.loads(_bare(text), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise UnreadableVerdict(f"a verdict is one JSON object ({error}); given: {text!r:.200}") from error
    if not isinstance(given, dict) or sorted(given) != ["reason", scores]:
        raise UnreadableVerdict(f"a verdict has the fields reason and {scores}, no others; given: {text!r:.200}")
    if not isinstance(given["reason"], str):
        raise UnreadableVerdict(f"the reason must be text; given: {given['reason']!r:.200}")
    return given


def _bare(text: str) -> str:
    """Without the thoughts before it and the fence around it, which servers without structured output leave there."""
    text = text.strip()
    if not text.startswith("{"):
        text = text.rpartition("</think>")[2].strip()
    fenced = re.fullmatch(r"```(?:json)?\s*(\{.*\})\s*```", text, re.DOTALL)
    return fenced[1] if fenced else text


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    given = dict(pairs)
    if len(given) < len(pairs):
        raise ValueError("a field stands there twice")
    return given


def _score(score: Any, what: str) -> float:
    if not isinstance(score, int) or isinstance(score, bool) or not LOWEST <= score <= HIGHEST:
        raise UnreadableVerdict(f"{what} must be a whole number from {LOWEST} to {HIGHEST}; given: {score!r:.200}")
    return (score - LOWEST) / (HIGHEST - LOWEST)
