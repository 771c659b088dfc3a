"""Snapshots on the way: around an environment, so that any turn of the episode can be forked without a replay."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_rl.environment import StepResult
from agentgym_rl.environments.wrapper import Wrapper
from agentgym_rl.messages import Message
from agentgym_rl.task import Task


class SnapshotRecorder(Wrapper):
    """Keeps a snapshot of each state in which the policy is asked.

    Needs `facts.can_snapshot`. Taking one counts into the deadline of its reset or step, and where it fails, that call
    has failed.
    """

    snapshots: tuple[bytes, ...] = ()
    """At t: the state before turn t of the policy, counted from the last reset, with its prefix, or restore."""
    _prefix_left = 0
    """Steps that are the task's own."""

    async def reset(self, task: Task) -> Sequence[Message]:
        self.snapshots, self._prefix_left = (), len(task.prefix)
        observation = await self.inner.reset(task)
        await self._keep()
        return observation

    async def step(self, action: Message) -> StepResult:
        self._prefix_left = max(self._prefix_left - 1, 0)
        result = await self.inner.step(action)
        if not (result.terminated or result.truncated):
            await self._keep()
        return result

    async def restore(self, snapshot: bytes) -> None:
        await self.inner.restore(snapshot)
        self.snapshots, self._prefix_left = (snapshot,), 0

    async def _keep(self) -> None:
        if not self._prefix_left:
            self.snapshots = (*self.snapshots, await self.inner.snapshot())
