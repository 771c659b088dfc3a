"""First observations of tasks, by which data sets tell them apart, whatever process or interpreter plays them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agentgym_rl.environments import registry
from agentgym_rl.episode import Limits
from agentgym_rl.errors import EnvironmentFailed, boundary
from agentgym_rl.task import Task


@contextmanager
def opening_of(name: str) -> Iterator[Callable[[Task], str]]:
    """A function that resets an environment of this name for a task, and returns what the policy would see first."""
    loop = asyncio.new_event_loop()

    async def make() -> registry.Environment:
        return registry.make(name)

    def opening(task: Task) -> str:
        reset = boundary(environment.reset(task), EnvironmentFailed, f"reset of {name!r}", Limits().reset_seconds)
        return "\n".join(message.content for message in loop.run_until_complete(reset))

    try:
        environment = loop.run_until_complete(make())
        try:
            yield opening
        finally:
            loop.run_until_complete(environment.close())
    finally:
        loop.close()
