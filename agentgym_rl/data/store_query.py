"""Which records of a store are asked for, answered from its columns without reading a trajectory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Query:
    """Which records are asked for; what is None does not matter."""

    task: str | None = None
    """Id of the task."""
    environment: str | None = None
    source: str | None = None
    success: bool | None = None
    min_return: float | None = None
    """Lowest sum of the environment's rewards."""

    def expression(self) -> Any:
        """The condition in Arrow's terms; None: all."""
        import pyarrow.compute as pc

        wanted = {"task_id": self.task, "environment": self.environment, "source": self.source, "success": self.success}
        conditions = [pc.field(name) == value for name, value in wanted.items() if value is not None]
        if self.min_return is not None:
            conditions.append(pc.field("return") >= self.min_return)
        joined = None
        for condition in conditions:
            joined = condition if joined is None else joined & condition
        return joined
