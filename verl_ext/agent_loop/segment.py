"""One training row of a session: a prompt, and what was sampled and observed after it, as token ids that only grow.

A session is one segment as long as each prompt continues the last; a history that was rewritten or cut starts another.
Invariant: `prompt_ids + response_ids` is what the model saw and said; `mask` is 1 exactly on the ids that it sampled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Segment:
    """`response_ids`, `mask` and `logprobs` are aligned rows of R tokens; log-probs are 0 on what was not sampled."""

    prompt_ids: list[int]
    response_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turn_ends: list[int] = field(default_factory=list)
    """Index in the response of the last token of each turn."""
    state_of_summary: str | None = None
    """Names what the policy knew when it summed the segment up, behind the last turn; None: it did not."""

    @property
    def ids(self) -> list[int]:
        return self.prompt_ids + self.response_ids

    @property
    def last_turn(self) -> list[int]:
        """The ids from the last turn's last token on."""
        return self.response_ids[self.turn_ends[-1] :]

    def observe(self, ids: Sequence[int]) -> None:
        """Append what the policy is shown."""
        self._append(ids, [0.0] * len(ids), 0)

    def sample(self, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """Append a turn of the policy."""
        self._append(ids, logprobs, 1)
        self.turn_ends.append(len(self.response_ids) - 1)

    def sum_up(self, request: Sequence[int], ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """Append the policy's own summary, with what asked for it."""
        self.observe(request)
        self.state_of_summary = f"summary of {hashlib.sha256(repr(self.ids).encode()).hexdigest()[:16]}"
        self._append(ids, logprobs, 1)

    def keep_turns(self, turns: int) -> None:
        """Forget what follows the first so many turns, a summary too."""
        self.state_of_summary = None
        del self.turn_ends[turns:]
        end = self.turn_ends[-1] + 1 if self.turn_ends else 0
        for row in (self.response_ids, self.mask, self.logprobs):
            del row[end:]

    def _append(self, ids: Sequence[int], logprobs: Sequence[float], sampled: int) -> None:
        self.response_ids.extend(ids)
        self.mask.extend([sampled] * len(ids))
        self.logprobs.extend(logprobs)
