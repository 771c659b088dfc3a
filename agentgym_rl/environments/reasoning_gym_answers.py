"""Which answer a reply gives, and whether it may be handed to a scorer of reasoning-gym.

Some scorers run an answer as Python (`eval`, and sympy's `parse_expr`). There it could do anything, and it could read
the right answer out of the scorer's own variables, or answer an integral with `Integral(...)`. Invariant: no answer is
run. `eval` reads literals; what goes to sympy is a formula of numbers, letters, elementary functions and bounded size.
"""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Set
from typing import Any

TAG = "answer"
MAX_CHARACTERS = 20_000
"""Of an answer; the longest right one of the default datasets has 3,424. A longer right one may be twice as long."""

_ARITHMETIC = frozenset({"countdown", "puzzle24"})
_FORMULAS = frozenset({"intermediate_integration", "polynomial_multiplication", "simple_integration"})
_LITERALS = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})

_TRIGONOMETRIC = frozenset({"acos", "asin", "atan", "cos", "cot", "csc", "sec", "sin", "tan"})
_FUNCTIONS = _TRIGONOMETRIC | {"Abs", "acosh", "asinh", "atanh", "cosh", "exp", "ln", "log", "sinh", "sqrt", "tanh"}
_LARGEST = 1e300
"""What a formula may come to with pi for each letter: powers of powers would never be worked out."""
_HUGE_EXPONENT = re.compile(r"\d[eE][+-]?\d{5}")
"""As a fraction, 1e99999999 has a hundred million digits."""


def answer_in(reply: str) -> str | None:
    """What stands between the last pair of tags; None: there is none."""
    end = reply.rfind(f"</{TAG}>")
    start = reply.rfind(f"<{TAG}>", 0, max(end, 0))
    return None if start < 0 else reply[start + len(TAG) + 2 : end].strip()


def refusal(dataset: str, answer: str, right: str | None) -> str:
    """Why an answer is not scored; empty: it is."""
    longest = max(MAX_CHARACTERS, 2 * len(right or ""))
    if len(answer) > longest:
        return f"An answer has at most {longest} characters."
    if _HUGE_EXPONENT.search(answer):
        return "A number's exponent has at most four digits."
    if dataset in _ARITHMETIC and not _is_formula(answer, frozenset()):
        return "The answer must be an arithmetic expression of numbers, +, -, *, / and parentheses."
    if dataset in _FORMULAS and not _is_formula(answer, _FUNCTIONS):
        return "The answer must be a formula of numbers, letters, +, -, *, /, ** and elementary functions."
    return ""


def read_literals_only(name: str, dataset: Any) -> None:
    """Where a scorer would `eval` an answer, let it read Python literals instead."""
    if name in _LITERALS:
        vars(sys.modules[type(dataset).__module__])["eval"] = ast.literal_eval


def _is_formula(text: str, functions: Set[str]) -> bool:
    """Without functions, letters and powers are no part of it either."""
    try:
        return _size(ast.parse(text.strip(), mode="eval").body, functions) <= _LARGEST
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return False


def _size(node: ast.AST, functions: Set[str]) -> float:
    """An upper bound of a formula's value with pi for each letter.

    Raises:
        ValueError: it is no formula.
        OverflowError: the bound is past all floats.
    """
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as number):
            return abs(float(number))
        case ast.Name(id=name) if functions and (len(name) == 1 or name == "pi"):
            return math.pi
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
            return _size(operand, functions)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in functions:
            return 1 + _size(argument, functions)
        case ast.BinOp(left=left, op=operator, right=right):
            return _size_of_two(_size(left, functions), operator, _size(right, functions), powers=bool(functions))
    raise ValueError("no formula")


def _size_of_two(left: float, operator: ast.operator, right: float, powers: bool) -> float:
    match operator:
        case ast.Add() | ast.Sub():
            return left + right
        case ast.Mult() | ast.Div():
            return max(left, 1.0) * max(right, 1.0)
        case ast.Pow() if powers:
            return max(left, 1.0) ** right
    raise ValueError("no formula")
