"""What was done of a plan: one file in its folder, replaced whole each time a stage begins or ends.

A stage is remembered with its command. A done stage is never run again, and a stage that was begun goes on with the
command it was begun with: a plan that says something else is refused rather than mixed with what is there.
"""

from __future__ import annotations

import json
import shlex
from itertools import zip_longest
from pathlib import Path
from typing import Any

from agentgym_rl.data.replaced import replaced
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.training.plan import Plan, Stage

STATE_FILE = "state.json"


class State:
    """The state of the plan in this folder.

    Raises:
        ConfigurationError: the folder holds something else.
        DataError: its state can't be read.
    """

    def __init__(self, folder: Path):
        self._path = folder / STATE_FILE
        self._stages: dict[str, dict[str, Any]] = {}
        """Name -> {"command": [...], "done": bool}, in the order in which they were begun."""
        if self._path.exists():
            self._read()
        elif folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir()):  # locks may be there
            raise ConfigurationError(f"{folder} holds something that is no run of a plan; give another folder")

    def require_same(self, plan: Plan) -> None:
        """Raise a ConfigurationError that names the first stage which was begun with another command."""
        stages = {stage.name: stage for stage in plan.stages}
        for name, known in self._stages.items():
            if name not in stages:
                raise ConfigurationError(f"stage {name!r} was {self._was(name)} in {self._path.parent}; {_ADVICE}")
            before, now = known["command"], list(stages[name].command)
            if before != now:
                was, given = _first_difference(before, now)
                raise ConfigurationError(
                    f"stage {name!r} was {self._was(name)} with another command: it had {was}, the plan now says "
                    f"{given}; {_ADVICE}"
                )

    def is_done(self, stage: Stage) -> bool:
        return self._stages.get(stage.name, {}).get("done", False)

    def is_begun(self, stage: Stage) -> bool:
        return stage.name in self._stages

    def create(self) -> None:
        """Claim the folder; only who holds its lock may."""
        for left in self._path.parent.glob(f".{STATE_FILE}.*"):  # by a run that was killed while it wrote
            left.unlink()
        if not self._path.exists():
            self._write()

    def begin(self, stage: Stage) -> None:
        self._stages[stage.name] = {"command": list(stage.command), "done": False}
        self._write()

    def finish(self, stage: Stage) -> None:
        self._stages[stage.name]["done"] = True
        self._write()

    def _was(self, name: str) -> str:
        return "done" if self._stages[name]["done"] else "begun"

    def _read(self) -> None:
        try:
            stages = json.loads(self._path.read_text(encoding="utf-8"))["stages"]
            self._stages = {name: {"command": s["command"], "done": s["done"]} for name, s in stages.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{self._path} is no state of a plan: {error}") from error

    def _write(self) -> None:
        with replaced(self._path) as beside:
            beside.write_text(json.dumps({"stages": self._stages}, indent=1) + "\n", encoding="utf-8")


_ADVICE = "take the plan as it was, or another folder"


def _first_difference(before: list[str], now: list[str]) -> tuple[str, str]:
    pairs = zip_longest(before, now)
    was, given = next((was, given) for was, given in pairs if was != given)
    return _shown(was), _shown(given)


def _shown(word: str | None) -> str:
    return "nothing more" if word is None else shlex.quote(word)
