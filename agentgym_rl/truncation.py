"""What a trajectory that a limit cut off counts as: one choice for each limit.

Terminated is not truncated: where a limit came first, the rewards say what was earned until then, and not what the
policy was about to earn. A failed trajectory is no truncation; `failure_policy.py` says what becomes of it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum

from agentgym_rl.errors import ConfigurationError, did_you_mean
from agentgym_rl.trajectory import StopReason


class CountsAs(Enum):
    """What a cut-off trajectory is to training. Each leans some way; none is free of it."""

    AS_IS = "as_is"
    # Its rewards stand and nothing follows, as if the task had ended. Right where success within the limit is what is
    # wanted. Else it teaches haste: a long way to a solution is worth no more than no solution.
    BOOTSTRAP = "bootstrap"
    # A critic's value of what would have followed is added. Right where the limit is no part of the task, as far as the
    # critic is. Without a critic, and in metrics of success, the same as AS_IS.
    EXCLUDE = "exclude"
    # It leaves loss, group baseline and metrics of success, but is counted. Survivor bias: what remains are the
    # episodes that were short enough. Long ones are neither learned nor unlearned, be they on the way to a solution or
    # going round in circles, and success is that of the short ones. Without harm only where what cuts is blind to what
    # the policy does.


@dataclass(frozen=True)
class Truncations:
    """One choice a limit: "as_is", "bootstrap" or "exclude" (see `CountsAs`).

    Turns and tokens are the policy's own doing: whoever dawdles runs out of them, on any machine. To exclude these
    would hide that from the loss, so they stand, and a critic adds what it expects.

    Seconds are the machine's doing too: the same replies may be in time today and late on a busy node. What was
    earned until then would be a label that depends on the load, so the default excludes it, as it excludes a call that
    timed out. The price is survivor bias towards episodes that are short in seconds. Hence set the deadline far above
    what an episode takes, watch how many it cuts off, and choose "bootstrap" where it is more than a few.

    Sources: Pardo et al. (2018), "Time limits in reinforcement learning", https://arxiv.org/abs/1712.00378 (when to
    bootstrap); Yu et al. (2025), "DAPO", section 3.4, https://arxiv.org/abs/2503.14476 (leaving cut-off samples out of
    the loss).
    """

    truncated: str = CountsAs.BOOTSTRAP.value
    """The environment's own limit."""
    max_turns: str = CountsAs.BOOTSTRAP.value
    """`limits.max_turns`."""
    token_budget: str = CountsAs.BOOTSTRAP.value
    """No token left for another turn."""
    turn_deadline: str = CountsAs.EXCLUDE.value
    """`limits.turn_seconds`."""
    episode_deadline: str = CountsAs.EXCLUDE.value
    """`limits.episode_seconds`."""

    def __post_init__(self) -> None:
        known = [choice.value for choice in CountsAs]
        for limit in fields(self):
            given = getattr(self, limit.name)
            if given not in known:
                raise ConfigurationError(
                    f"a trajectory that {limit.name} cut off can't count as {given!r}; "
                    f"{did_you_mean(str(given), known)}"
                )

    @property
    def bootstrapped(self) -> frozenset[str]:
        """The limits behind which a critic's value is added, by the values of their stop reasons."""
        return frozenset(limit.name for limit in fields(self) if getattr(self, limit.name) == CountsAs.BOOTSTRAP.value)

    def counts_as(self, stop: StopReason) -> CountsAs:
        """What a trajectory that stopped for this reason counts as; AS_IS where the task came to its own end.

        Raises:
            ValueError: it failed.
        """
        if stop is StopReason.TERMINATED:
            return CountsAs.AS_IS
        if stop is StopReason.FAILED:
            raise ValueError("a failed trajectory counts as nothing; ask the failure policy what becomes of it")
        return CountsAs(getattr(self, stop.value))
