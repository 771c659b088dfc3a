"""A Google-style docstring: what stands before its first section, and what its "Args:" says of each parameter."""

from __future__ import annotations

import re
from typing import NamedTuple

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|Attributes|Source):\s*$")
_ARGUMENT = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")


class Docstring(NamedTuple):
    """The parts that a policy gets to see."""

    description: str
    arguments: dict[str, str]


def read_docstring(text: str) -> Docstring:
    """
    Args:
        text: without the indentation of its function (`inspect.getdoc`).
    """
    sections: dict[str, list[str]] = {"": []}
    current = ""
    for line in text.splitlines():
        found = _SECTION.match(line)
        if found:
            current = found[1]
            sections[current] = []
        else:
            sections[current].append(line)
    described = sections.get("Args") or sections.get("Arguments") or sections.get("Parameters") or []
    return Docstring("\n".join(sections[""]).strip(), _arguments(described))


def _arguments(lines: list[str]) -> dict[str, str]:
    """A line that is indented further than the first goes on with the argument before it."""
    first = next((len(line) - len(line.lstrip()) for line in lines if line.strip()), 0)
    found: dict[str, str] = {}
    name = ""
    for line in filter(str.strip, lines):
        starts = _ARGUMENT.match(line.strip()) if len(line) - len(line.lstrip()) == first else None
        if starts:
            name = starts[1]
            found[name] = starts[2]
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
