"""Over-sampling for verl: the `rollout.n` sessions of a group compete for fewer places.

verl starts the sessions of a group as coroutines of their own, in one process and on one event loop; here they meet.
Invariant: every session is told its fate exactly once, at most `keep` of a group are kept, and exactly `keep` whenever
so many did not fail. What a group left behind goes when its last session has been told.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agentgym_rl.errors import ConfigurationError, did_you_mean
from agentgym_rl.oversample import Choice, Gathering, Outcome, Played, Start

T = TypeVar("T", bound=Played)


@dataclass(frozen=True)
class Oversampling:
    """How many of the `rollout.n` sessions of a group are spare, and which ones are trained on; off by default.

    Either choice replaces failed sessions by others of the group, so that tasks, and ways of playing them, that fail
    more often than others are rarer in what is left of their group; without spares they are too. Beyond that:

    - "drawn_spares" has no bias. The group's uid draws which sessions are spare before any begins; how long a session
      takes has no influence. A session that failed needs no second try to fill its place; stragglers are waited for.
    - "first_finished" prefers short and quick episodes, and whatever goes along with brevity: solving fast and giving
      up early are over-represented, in the loss and in the group's baseline. It waits for no straggler.
    """

    spares: int = 0
    """Sessions of a group that are started and not needed, so that `rollout.n - spares` are trained on; 0: off."""
    choice: str = Choice.DRAWN_SPARES.value
    """"drawn_spares" or "first_finished"."""

    def __post_init__(self) -> None:
        if not isinstance(self.spares, int) or isinstance(self.spares, bool) or self.spares < 0:
            raise ConfigurationError(f"spares must be a whole number, 0 or more; given: {self.spares!r}")
        known = [choice.value for choice in Choice]
        if self.choice not in known:
            raise ConfigurationError(f"no choice {self.choice!r} of spares; {did_you_mean(str(self.choice), known)}")


class Groups:
    """Where the sessions of one worker process meet, group by group."""

    def __init__(self, oversampling: Oversampling):
        self._oversampling = oversampling
        self._meetings: dict[str, _Meeting] = {}

    def __len__(self) -> int:
        """Groups with a session that was not told its fate yet."""
        return len(self._meetings)

    async def settle(self, group: str, session: int, keep: int, play: Start[T]) -> Outcome[T]:
        """Play one session to its end, and wait until it is certain what becomes of it.

        Every session of the group has to come here, before it does anything that may fail: a sibling that might have
        to step back for it waits.

        Args:
            group: uid of the group.
            session: number within the group, from 0 to keep + spares - 1.
            keep: how many sessions of the group are wanted.
            play: plays the session, with its retries. It is cancelled where the session is not needed any more.

        Returns:
            The session's fate, and what `play` returned; None where that was cancelled.

        Raises:
            ConfigurationError: all are spare; no such session, or it came before; `keep` is not what its siblings
                said. And whatever `play` raises; a sibling then takes the session's place, as for one that failed.
        """
        meeting = self._meetings.get(group) or self._new(group, keep)
        meeting.enter(group, session, keep)
        self._meetings[group] = meeting
        try:
            return await meeting.gathering.settle(session, play)
        finally:
            meeting.told += 1
            if meeting.told == meeting.sessions:
                del self._meetings[group]

    def _new(self, group: str, keep: int) -> _Meeting:
        spares = self._oversampling.spares
        sessions = keep + spares
        if keep < 1:
            raise ConfigurationError(
                f"spares must be fewer than the sessions of a group, {sessions} (rollout.n); given: {spares}"
            )
        seed = zlib.crc32(group.encode())  # not hash(): that differs between processes
        return _Meeting(keep, sessions, Gathering(sessions, keep, Choice(self._oversampling.choice), seed))


@dataclass
class _Meeting:
    """The sessions of one group."""

    keep: int
    sessions: int
    gathering: Gathering[Any]
    came: set[int] = field(default_factory=set)
    told: int = 0

    def enter(self, group: str, session: int, keep: int) -> None:
        if keep != self.keep:
            raise ConfigurationError(f"group {group!r} keeps {self.keep} sessions; session {session} says {keep}")
        if session not in range(self.sessions):
            raise ConfigurationError(
                f"group {group!r} has sessions 0 to {self.sessions - 1}, of which {keep} are kept; given: {session}"
            )
        if session in self.came:
            raise ConfigurationError(f"session {session} of group {group!r} came twice")
        self.came.add(session)
