"""Report cards as files: one JSON a card, so that a run that was cut off goes on, and a table of all.

Invariant: a card is taken from its file only where the same code on the same packages would be measured with the same
settings; one that says why nothing could be played is never taken, nor is one of another interpreter, whose
packages are not seen from here. Every file is written whole or not at all.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from agentgym_rl.data.replaced import replaced
from agentgym_rl.environments import registry
from agentgym_rl.environments.interpreter import variable_of
from agentgym_rl.errors import DataError
from agentgym_rl.evaluation.report_card import CardSettings, ReportCard


class CardFiles:
    """The cards of one folder.

    Args:
        folder: gets `NAME.json` of each environment.
        settings: of the cards.
        tasks: a digest of the user's own tasks; empty: they are drawn.
    """

    def __init__(self, folder: Path, settings: CardSettings, tasks: str = ""):
        self._folder = folder
        self._settings = {**asdict(settings), "given_tasks": tasks}

    def kept(self, name: str) -> ReportCard | None:
        """The card that would come out again; None: it has to be made."""
        if os.environ.get(variable_of(name)):
            return None
        try:
            row = json.loads(self._path(name).read_text(encoding="utf-8"))
            card = ReportCard.from_dict(row["card"])
        except (OSError, ValueError, KeyError, TypeError, DataError):  # there is none, or of another form
            return None
        return card if row.get("key") == self._key(name) and not card.reason else None

    def keep(self, card: ReportCard) -> None:
        write_json(self._path(card.environment), {"key": self._key(card.environment), "card": card.to_dict()})

    def _path(self, name: str) -> Path:
        return self._folder / (re.sub(r"[^\w.-]", "_", name) + ".json")

    def _key(self, name: str) -> dict[str, Any]:
        interpreter = os.environ.get(variable_of(name), "")
        return {"code": _code(), "module": _module(name), "interpreter": interpreter, "settings": self._settings}


def write_json(path: Path, row: Any) -> None:
    write_text(path, json.dumps(row, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    with replaced(path) as beside:
        beside.write_text(text, encoding="utf-8")


@cache
def _code() -> str:
    """A digest of this package, the data sets' scripts and the versions of all that is installed."""
    digest = hashlib.sha256()
    for package in ("agentgym_rl", "data_preprocess"):
        for folder in _folders(package):
            for file in sorted(folder.rglob("*.py")):
                digest.update(file.read_bytes())
    installed = sorted(f"{found.metadata['Name']} {found.version}" for found in distributions())
    digest.update("\n".join(installed).encode())
    return digest.hexdigest()[:16]


def _module(name: str) -> str:
    """A digest of the module that has the class, which need not be of this package; empty: there is no such file."""
    try:
        found = importlib.util.find_spec(registry.target(name).partition(":")[0])
    except ModuleNotFoundError:  # of the package that it would lie in
        return ""
    if found is None or not found.has_location or found.origin is None:
        return ""
    return hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()[:16]


def _folders(package: str) -> Sequence[Path]:
    found = importlib.util.find_spec(package)
    return [Path(folder) for folder in (found.submodule_search_locations or [])] if found else []
