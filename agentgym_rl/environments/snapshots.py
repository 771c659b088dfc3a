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
    """At t: the state before turn t, counted from the last reset or restore."""

    async def reset(self, task: Task) -> Sequence[Message]:
        self.snapshots = ()
        observation = await self.inner.reset(task)
        self.snapshots = (await self.inner.snapshot(),)
        return observation

    async def step(self, action: Message) -> StepResult:
        result = await self.inner.step(action)
        if not (result.terminated or result.truncated):
            self.snapshots = (*self.snapshots, await self.inner.snapshot())
        return result

    async def restore(self, snapshot: bytes) -> None:
        await self.inner.restore(snapshot)
        self.snapshots = (snapshot,)
