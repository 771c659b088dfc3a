"""`fork()`: several continuations of one episode, from a turn of it on, each in an environment of its own.

Invariant: the continuations share the turns before (the same objects), and nothing else. `play()` plays them.
Left out: choosing where to fork, and sharing out the reward of a tree.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from agentgym_rl.beginning import Beginning
from agentgym_rl.environment import Environment
from agentgym_rl.environments import registry
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.evaluation.run import PolicyFactory
from agentgym_rl.together import all_or_cancel
from agentgym_rl.trajectory import Trajectory

Opened = Callable[[str], AbstractAsyncContextManager[Environment]]
"""Lends an environment by its name."""


async def fork(
    make_policy: PolicyFactory,
    trajectory: Trajectory,
    turn: int,
    k: int,
    limits: Limits | None = None,
    snapshot: bytes | None = None,
    opened: Opened = registry.opened,
) -> tuple[Trajectory, ...]:
    """Play `k` continuations of an episode, at once.

    Args:
        make_policy: environment, task, number of the continuation -> its policy.
        trajectory: the episode; it may have failed or been cut off.
        turn: the first one that is played anew, from 0.
        k: how many, >= 1.
        limits: turns of the whole episode, and deadlines.
        snapshot: the environment's state before that turn (see `SnapshotRecorder`). None: each environment plays the
            turns before again, which is checked; where it does not do the same, the continuation is a failure with the
            cause `environment_diverged`.
        opened: lends the environments.

    Raises:
        ConfigurationError, DataError: there is no such turn, or the environment can be neither restored nor replayed.
    """
    if k < 1:
        raise ConfigurationError(f"a fork has at least 1 continuation; given: {k}")
    task = trajectory.task
    beginning = Beginning.of(trajectory, turn, snapshot)

    async def continuation(number: int) -> Trajectory:
        async with opened(task.environment) as environment:
            policy = make_policy(environment, task, number)
            return await play(policy, environment, task, limits, beginning=beginning)

    return tuple(await all_or_cancel(continuation(number) for number in range(k)))
