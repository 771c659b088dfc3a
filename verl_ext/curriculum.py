"""Difficulty curriculum: tasks that the policy solves sometimes are drawn more often than all others.

Only tasks whose success is between the bounds can teach a group much; but success changes, so every other task keeps a
floor. Tasks not played yet count as between the bounds. Invariant: what is drawn next follows from the seed, the
updates and the number of draws alone, and the whole state is saved with verl's data loader.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils.data import Sampler

from agentgym_rl.errors import ConfigurationError, did_you_mean


@dataclass(frozen=True)
class Curriculum:
    """Which tasks are preferred. A task's success rate is a mean of its sessions, older ones decayed."""

    low: float = 0.1
    """Tasks with a success rate up to this are too hard for now."""
    high: float = 0.9
    """Tasks with a success rate from this on are mastered."""
    floor: float = 0.1
    """How often such a task is drawn, as a share of how often one between the bounds is; above 0: none is forgotten."""
    decay: float = 0.5
    """What a session counts after its task was played once more; 1: all count alike, 0: only the last time counts."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Environment -> its share of the draws, in any unit. Empty: as many as its tasks weigh."""

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high <= 1:
            raise ConfigurationError(
                f"curriculum.low and high must be success rates, low below high; given: {self.low} and {self.high}"
            )
        if not 0 < self.floor <= 1 or not 0 <= self.decay <= 1:
            raise ConfigurationError(
                "curriculum.floor must be above 0 and at most 1, decay from 0 to 1; given: "
                f"{self.floor} and {self.decay}"
            )
        for environment, share in self.shares.items():
            if not math.isfinite(share) or share <= 0:
                raise ConfigurationError(f"curriculum.shares of {environment!r} must be above 0; given: {share}")


class Row(NamedTuple):
    """What the curriculum needs to know of a row of the dataset."""

    task: str
    environment: str


class Played(NamedTuple):
    """What became of a task in one step."""

    sessions: int
    """That were judged."""
    successes: int


class TaskSampler(Sampler[int]):
    """Draws rows of a dataset, with replacement, but none twice within `apart` draws.

    Its iterators are as long as the dataset. The loader that it is given to must not draw ahead (`num_workers=0`):
    draws that were made before an update would not know of it.

    Args:
        rows: of the dataset, in its order; task ids are unique.
        curriculum: which are preferred.
        seed: of the draws.
        apart: draws between two of one row at least, as far as there are other rows; a batch's size.

    Raises:
        ConfigurationError: no row, an id twice, shares that don't name each environment of the rows and no other.
    """

    def __init__(self, rows: Sequence[Row], curriculum: Curriculum, seed: int, apart: int):
        self._curriculum = curriculum
        self._index = {row.task: index for index, row in enumerate(rows)}
        if not rows or len(self._index) < len(rows):
            raise ConfigurationError(
                f"a curriculum needs tasks with an id each; given: {len(rows)} rows with {len(self._index)} ids"
            )
        names = sorted({row.environment for row in rows})
        self._names_E = names
        self._share_E = _shares(curriculum.shares, names)
        self._environment_N = torch.tensor([names.index(row.environment) for row in rows])
        self._sessions_N, self._successes_N = torch.zeros(2, len(rows), dtype=torch.float64)
        self._apart = min(apart, len(rows) - 1)
        self._recent: list[str] = []
        self._ids = [row.task for row in rows]
        self._generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Draws:
        return Draws(self)

    def update(self, played: Mapping[str, Played]) -> None:
        """Take note of a step: task id -> what became of it. Tasks of other datasets are passed over."""
        for task, (sessions, successes) in played.items():
            index = self._index.get(task)
            if index is not None and sessions:
                for count_N, new in ((self._sessions_N, sessions), (self._successes_N, successes)):
                    count_N[index] = self._curriculum.decay * count_N[index] + new

    def draw(self) -> int:
        """The next row."""
        weight_N = self.weights()
        weight_N[[self._index[task] for task in self._recent]] = 0.0
        drawn = int(torch.multinomial(weight_N, 1, generator=self._generator))
        self._recent = [*self._recent, self._ids[drawn]][-self._apart :] if self._apart else []
        return drawn

    def weights(self) -> torch.Tensor:
        """float64 [N]: how often each row is drawn, beside the others."""
        weight_N = self.preferred().double().clamp(min=self._curriculum.floor)
        if self._share_E is None:
            return weight_N
        total_E = torch.zeros_like(self._share_E).index_add_(0, self._environment_N, weight_N)
        return weight_N * (self._share_E / total_E)[self._environment_N]

    def preferred(self) -> torch.Tensor:
        """bool [N]: between the bounds, or not played yet."""
        rate_N = self._successes_N / self._sessions_N
        between_N = (rate_N > self._curriculum.low) & (rate_N < self._curriculum.high)
        return between_N | (self._sessions_N == 0)

    def metrics(self) -> dict[str, float]:
        """Shares of the tasks that were played, and that are preferred; each environment's share of the next draw."""
        played_N = self._sessions_N > 0
        return {
            "curriculum/played_share": float(played_N.double().mean()),
            "curriculum/between_bounds_share": float((self.preferred() & played_N).double().mean()),
            **{f"curriculum/draws/{name}": share for name, share in self._draw_shares().items()},
        }

    def _draw_shares(self) -> dict[str, float]:
        weight_N = self.weights()
        total_E = torch.zeros(len(self._names_E), dtype=weight_N.dtype).index_add_(0, self._environment_N, weight_N)
        return dict(zip(self._names_E, (total_E / weight_N.sum()).tolist(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """By task id, so that it can be loaded beside a dataset that has grown."""
        counts = zip(self._ids, self._sessions_N.tolist(), self._successes_N.tolist(), strict=True)
        return {
            "generator": self._generator.get_state(),
            "recent": list(self._recent),
            "counts": {task: [sessions, successes] for task, sessions, successes in counts if sessions},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._generator.set_state(state["generator"])
        self._recent = [task for task in state["recent"] if task in self._index][-self._apart :] if self._apart else []
        self._sessions_N.zero_()
        self._successes_N.zero_()
        for task, (sessions, successes) in state["counts"].items():
            if task in self._index:
                self._sessions_N[self._index[task]] = sessions
                self._successes_N[self._index[task]] = successes


class Draws(Iterator[int]):
    """One pass of a sampler: as many draws as there are rows. Saved and loaded beside its sampler's own state."""

    def __init__(self, sampler: TaskSampler):
        self._sampler = sampler
        self._drawn = 0

    def __next__(self) -> int:
        if self._drawn == len(self._sampler):
            raise StopIteration
        self._drawn += 1
        return self._sampler.draw()

    def state_dict(self) -> dict[str, int]:
        return {"drawn": self._drawn}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self._drawn = state["drawn"]


def played_tasks(episodes: Sequence[Mapping[str, Any]]) -> dict[str, Played]:
    """Task id -> its sessions that were judged, of a step's episodes."""
    played: dict[str, Played] = {}
    for episode in episodes:
        if episode["success"] is not None:
            sessions, successes = played.get(episode["task"], Played(0, 0))
            played[episode["task"]] = Played(sessions + 1, successes + bool(episode["success"]))
    return played


def _shares(given: Mapping[str, float], environments: Sequence[str]) -> torch.Tensor | None:
    """float64 [E], or None if there are none."""
    if not given:
        return None
    for name in [*given, *environments]:
        if name not in given or name not in environments:
            known = environments if name in given else list(given)
            raise ConfigurationError(
                f"curriculum.shares and the tasks must name the same environments; {name!r} is in one of them only; "
                + did_you_mean(name, known)
            )
    return torch.tensor([given[name] for name in environments], dtype=torch.float64)
