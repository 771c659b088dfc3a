"""A store as it is when this is made, for a step that reads it several times: what is added later is not there."""

from __future__ import annotations

from pathlib import Path

from agentgym_rl.data.store import TrajectoryStore


class HeldStore(TrajectoryStore):
    """The parts that a store has now, to be read only."""

    def __init__(self, store: TrajectoryStore):
        super().__init__(store.folder, store.on_record)
        self._parts = store.parts()

    def parts(self) -> list[Path]:
        return list(self._parts)
