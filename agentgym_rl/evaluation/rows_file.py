"""The rows of an evaluation under way, one line each as the episodes finish, so that it can go on after a stop.

The first line holds the settings: rows of other settings are never mixed in. A last line that was cut off while it was
written is dropped. A failed episode is played again; its new row stands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.evaluation.result import EpisodeRow


class RowsFile:
    """Opens or begins the file at `path`.

    Raises:
        ConfigurationError: its rows were played with other settings.
        DataError: it is no rows file.
    """

    def __init__(self, path: str | Path, settings: Mapping[str, Any]):
        self._path = Path(path)
        lines = self._whole_lines()
        if lines:
            self._require_same_settings(lines[0], settings)
        else:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps({"settings": dict(settings)}) + "\n", encoding="utf-8")
        read = [self._read_row(line, number) for number, line in enumerate(lines[1:], start=2)]
        self.done = {(row.task, row.episode): row for row in read if row.failure is None}

    def append(self, row: EpisodeRow) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row)) + "\n")

    def _whole_lines(self) -> list[str]:
        if not self._path.exists():
            return []
        content = self._path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            with open(self._path, "r+b") as file:
                file.truncate(len(whole))
        return whole.decode("utf-8").split("\n")[:-1]

    def _require_same_settings(self, header: str, settings: Mapping[str, Any]) -> None:
        given = json.loads(json.dumps(dict(settings)))
        try:
            found = json.loads(header)["settings"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{self._path} holds no rows of an evaluation") from error
        for key in sorted(found.keys() | given.keys()):
            if found.get(key) != given.get(key):
                raise ConfigurationError(
                    f"{self._path} has the rows of an unfinished evaluation with {key} = {found.get(key)!r}; "
                    f"given: {given.get(key)!r}. Give the same settings, or delete that file."
                )

    def _read_row(self, line: str, number: int) -> EpisodeRow:
        try:
            return EpisodeRow.from_dict(json.loads(line))
        except (json.JSONDecodeError, DataError) as error:
            raise DataError(f"line {number} of {self._path}: {error}") from error
