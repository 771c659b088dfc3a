"""A blocking environment behind the asynchronous interface, on one thread of its own.

One thread an instance: calls of an instance stay in order, and one that hangs holds up nobody else. Such a thread can't
be killed; an environment that may hang or crash its process belongs behind `ProcessEnvironment`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from agentgym_rl.environment import BlockingEnvironment
from agentgym_rl.environments.wrapper import Forwarding
from agentgym_rl.errors import EnvironmentFailed
from agentgym_rl.own_thread import OwnThread


class ThreadedEnvironment(Forwarding):
    """Runs each method of `environment` on this instance's thread; the thread starts with the first call."""

    def __init__(self, environment: BlockingEnvironment):
        super().__init__(environment)
        self._thread = OwnThread(type(environment).__name__, EnvironmentFailed)
        self._closed = False

    async def close(self) -> None:
        if self._closed:
            return
        closing = self._pass_on(self._inner.close)
        try:
            await closing
        finally:
            self._closed = True
            self._thread.stop()

    async def _pass_on(self, method: Callable[..., Any], *arguments: Any) -> Any:
        if self._closed:
            raise EnvironmentFailed(f"{type(self._inner).__name__} was used after close")
        return await self._thread.run(partial(method, *arguments))
