"""The prompt of a judge: files with `{{names}}`, filled in one pass, and records between lines that they can't forge.

Invariants: what is put in is never looked at again for names to fill in. The nonce on the lines around the records is a
hash of the records themselves: whoever writes a record can't write its nonce into it, since that would change it, and
yet the same records give the same prompt, which a cache can know again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.judge.verdict import HIGHEST, LOWEST

FOLDER = Path(__file__).parent / "prompts"
NAMES = re.compile(r"\{\{(\w+)\}\}")


class Prompt(NamedTuple):
    """The two messages that a judge is sent."""

    system: str
    user: str

    def to_chat(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]


def read_rubric(path: str | Path | None) -> str:
    """The text of a rubric; None: the one that comes with the package.

    Raises:
        ConfigurationError: no such file, no text in it, or no UTF-8.
    """
    path = Path(path) if path is not None else FOLDER / "rubric.md"
    try:
        rubric = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the rubric {path} can't be read: {error}") from error
    if not rubric:
        raise ConfigurationError(f"the rubric {path} is empty")
    return rubric


def absolute_prompt(record: str, rubric: str) -> Prompt:
    """Asks for the score of one record."""
    return _prompt("absolute", [record], rubric)


def relative_prompt(records: Sequence[str], rubric: str) -> Prompt:
    """Asks for a score of each of these records, which are numbered from 1 in this order."""
    return _prompt("relative", records, rubric)


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with each `{{name}}` replaced by its value, as it is."""
    return NAMES.sub(lambda found: values[found[1]], template)


def nonce_of(records: Sequence[str]) -> str:
    """128 bits that only these records, in this order, have."""
    return hashlib.sha256(json.dumps(list(records)).encode()).hexdigest()[:32]


def _prompt(kind: str, records: Sequence[str], rubric: str) -> Prompt:
    nonce = nonce_of(records)
    values = {
        "rubric": rubric,
        "nonce": nonce,
        "count": str(len(records)),
        "lowest": str(LOWEST),
        "highest": str(HIGHEST),
        "records": "\n\n".join(_marked(record, number, nonce) for number, record in enumerate(records, start=1)),
    }
    return Prompt(fill(_template(f"{kind}.system.md"), values), fill(_template("records.user.md"), values))


def _marked(record: str, number: int, nonce: str) -> str:
    return f"[begin record {number} {nonce}]\n{record}\n[end record {number} {nonce}]"


@cache
def _template(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8").strip()
