"""The folder of a step that takes hours, for what is done of it: `.NAME.unfinished`, beside the store that it will be.

Invariant: the work in it is of one step on one state of its source, as `_step.json` says; no other step goes on with it
or removes it. It is there until the store is, and one process at a time has it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentgym_rl.data.derive import STEP_FILE, difference
from agentgym_rl.data.only_writer import only_writer
from agentgym_rl.data.replaced import replaced
from agentgym_rl.errors import ConfigurationError


@contextmanager
def unfinished(out: Path, origin: Mapping[str, Any]) -> Iterator[Path]:
    """The folder; work is every file that holds something and whose name does not begin with "_".

    Args:
        out: the folder of the new store. Where that is there, and nothing is left over, this one is not even made.
        origin: as `derive.origin_of` says.

    Raises:
        ConfigurationError: there is work of another origin, or another process is at it.
    """
    folder = out.parent / f".{out.name}.unfinished"  # not `with_name`: "." has none
    if out.exists() and not folder.exists():
        yield folder
        return
    with only_writer(folder):
        _require_same(folder, origin)
        mine, finished = os.stat(folder), False
        try:
            yield folder
            finished = out.exists()
        finally:
            if _is_still(folder, mine) and (finished or not _has_work(folder)):
                _remove(folder)


def _require_same(folder: Path, origin: Mapping[str, Any]) -> None:
    if not _has_work(folder):
        with replaced(folder / STEP_FILE) as beside:
            beside.write_text(json.dumps(origin, indent=1), encoding="utf-8")
        return
    try:
        found = json.loads((folder / STEP_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        found = {}
    if said := difference(found, origin):
        raise ConfigurationError(
            f"{folder} holds what another step had done when it was stopped ({said}); give that step again, or another "
            "folder for the new store, or remove it"
        )


def _is_still(folder: Path, mine: os.stat_result) -> bool:
    """Whether nobody has removed the folder, and perhaps made another."""
    return folder.exists() and os.path.samestat(os.stat(folder), mine)


def _has_work(folder: Path) -> bool:
    return any(path.stat().st_size for path in folder.iterdir() if not path.name.startswith(("_", ".")))


def _remove(folder: Path) -> None:
    """In one step, for whoever waits for the lock; a kill then leaves what every step removes."""
    away = folder.with_suffix(f".{os.getpid()}")
    os.rename(folder, away)
    shutil.rmtree(away)
