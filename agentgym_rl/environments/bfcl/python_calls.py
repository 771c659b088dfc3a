"""Function calls as Python writes them, `[cd(folder="docs"), ls()]`: read without running anything, and written.

Invariant: what is read holds literals only. Nothing of the text is evaluated; names, operators, comprehensions and
calls inside of arguments are refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentgym_rl.errors import DataError

MAX_CHARACTERS = 20_000
"""Longest reply that is read; Python's parser takes memory by the kilobyte for each nested bracket."""

_FENCED = re.compile(r"```(?:python)?\s*\n(.*?)\n\s*```", re.DOTALL)
_CALLS = re.compile(r"\[|[A-Za-z_]\w*\(")


class Call(NamedTuple):
    """One call. Arguments may be given by position."""

    name: str
    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = {}


def read_calls(text: str) -> tuple[Call, ...]:
    """The calls of a reply: all of it, its fenced code, or its last line. Nothing: it has only words, or says `[]`.

    Raises:
        DataError: it begins like calls, but is none, or is too long; says what can't be read.
    """
    if len(text) > MAX_CHARACTERS:
        raise DataError(f"a reply may have {MAX_CHARACTERS} characters; given: {len(text)}")
    fenced = _FENCED.search(text)
    for code in (text, fenced[1] if fenced else "", text.strip().rpartition("\n")[2]):
        code = code.strip().removeprefix("Action:").strip()
        if _CALLS.match(code):
            return _parsed(code)
    return ()


def write_calls(calls: Sequence[Call]) -> str:
    """The text that `read_calls` reads as these calls."""
    return "[" + ", ".join(map(_written, calls)) + "]"


def _parsed(code: str) -> tuple[Call, ...]:
    try:
        body = ast.parse(code, mode="eval").body
        return tuple(map(_call, body.elts if isinstance(body, (ast.List, ast.Tuple)) else [body]))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        if isinstance(error, DataError):
            raise
        why = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
        raise DataError(f"can't be read as Python calls: {why[:200]}") from error


def _call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise DataError(f"only calls by name may be given; found: {_shown(node)}")
    name = node.func.id
    names = [keyword.arg for keyword in node.keywords]
    if None in names:
        raise DataError(f"{name}: `**` is not allowed; give each argument by its name")
    if len(set(names)) < len(names):
        raise DataError(f"{name}: an argument is given twice")
    positional = tuple(_literal(value, name) for value in node.args)
    return Call(name, positional, {str(keyword.arg): _literal(keyword.value, name) for keyword in node.keywords})


def _literal(node: ast.expr, name: str) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError) as error:
        raise DataError(
            f"{name}: arguments must be literals (text, numbers, lists, ...); found: {_shown(node)}"
        ) from error


def _shown(node: ast.expr) -> str:
    return ast.unparse(node)[:80]


def _written(call: Call) -> str:
    arguments = [repr(value) for value in call.positional]
    arguments += [f"{name}={value!r}" for name, value in call.named.items()]
    return f"{call.name}({', '.join(arguments)})"
