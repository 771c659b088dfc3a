"""Answers of a judge on disk, one file each, named by a hash of model, prompt and parameters.

A file is whole or not there. What can't be read as an answer counts as not there, and is written anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentgym_rl.data.replaced import replaced

logger = logging.getLogger(__name__)


class AnswerCache:
    """Answers in a folder; None: remembers nothing."""

    def __init__(self, folder: str | Path | None):
        self._folder = Path(folder) if folder is not None else None

    def get(self, request: Mapping[str, Any]) -> str | None:
        """The answer to a request, which holds all that it depends on."""
        if self._folder is None:
            return None
        try:
            answer = json.loads(self._path(self._folder, request).read_text(encoding="utf-8"))["answer"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return answer if isinstance(answer, str) else None

    def put(self, request: Mapping[str, Any], answer: str) -> None:
        """Keep an answer; where the disk takes none, that is logged, for the answer itself was paid for and stands."""
        if self._folder is None:
            return
        try:
            with replaced(self._path(self._folder, request)) as new:
                new.write_text(json.dumps({"answer": answer}), encoding="utf-8")
        except OSError as error:
            logger.warning("an answer could not be kept in %s: %s", self._folder, error)

    def _path(self, folder: Path, request: Mapping[str, Any]) -> Path:
        key = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
        return folder / key[:2] / f"{key}.json"  # a folder of a million files is slow on many disks
