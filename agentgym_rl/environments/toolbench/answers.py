"""What the server answers to a request, and a folder that keeps answers.

Invariant: a file of the folder is a whole answer or not there. It is named by a hash of the whole request, so that
another argument, another way to strip or another key is another file; the key itself is in none. An answer with an
error is not kept: the next one who asks may have more luck.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_rl.errors import ConfigurationError

Request = Mapping[str, str]
"""category, tool_name, api_name, tool_input (JSON text), strip and toolbench_key."""


class Answer(NamedTuple):
    """As the API, or the server on its behalf, gave it."""

    error: str
    """Empty: there was none."""
    response: Any
    """A JSON value."""

    @property
    def is_result(self) -> bool:
        """No error was given, and something was."""
        return not self.error and self.response not in ("", None, [], {})

    def to_text(self) -> str:
        return json.dumps(self._asdict(), ensure_ascii=False)

    @classmethod
    def of(cls, value: Any) -> Answer:
        """Read a server's JSON value, which a model may have written.

        Raises:
            ValueError: it is no object with an error or a response.
        """
        if not isinstance(value, dict) or not ({"error", "response"} & value.keys()):
            raise ValueError(f"an answer is an object with 'error' and 'response'; given: {value!r:.200}")
        error = value.get("error") or ""
        return cls(error if isinstance(error, str) else json.dumps(error), value.get("response", ""))


class AnswerFolder:
    """Answers by request, on disk; may be shared by processes.

    Reading and writing block: a file is a few kilobytes, and a thread would take longer.

    Raises:
        ConfigurationError: the folder can't be made.
    """

    def __init__(self, folder: str):
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"the cache {folder!r} is no folder that can be made: {error}") from error

    def get(self, request: Request) -> Answer | None:
        """None: there is none, or its file was damaged by others."""
        try:
            return Answer.of(json.loads(self._path(request).read_bytes())["answer"])
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None

    def put(self, request: Request, answer: Answer) -> None:
        """Keep an answer, unless it has an error."""
        if answer.error:
            return
        shown = {name: value for name, value in request.items() if name != "toolbench_key"}
        path = self._path(request)
        path.parent.mkdir(exist_ok=True)
        handle, unfinished = tempfile.mkstemp(dir=path.parent, suffix=".unfinished")
        try:
            with open(handle, "w", encoding="ascii") as file:
                json.dump({"request": shown, "answer": answer._asdict()}, file, indent=1)
            os.replace(unfinished, path)
        except BaseException:
            os.unlink(unfinished)
            raise

    def _path(self, request: Request) -> Path:
        name = hashlib.sha256(json.dumps(dict(request), sort_keys=True).encode()).hexdigest()
        return self._folder / name[:2] / f"{name}.json"
