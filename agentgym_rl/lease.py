"""A borrowed environment: passes every call on until its lease ends, and knows whether the instance is still sound.

Invariant: no call outlives the lease. When it ends, by its holder or by force, calls under way are answered with the
lease's typed failure at once and cut off behind it; later ones are refused. A call that raised or was cut off leaves an
instance that nobody should borrow again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from agentgym_rl.environment import Environment
from agentgym_rl.environments.wrapper import Forwarding
from agentgym_rl.errors import EnvironmentFailed, Manner


class LeasedEnvironment(Forwarding):
    """What a holder gets to see of an instance.

    Args:
        environment: the instance.
        count_call: is told 1 when a call begins, and -1 when its caller goes on.
    """

    def __init__(self, environment: Environment, count_call: Callable[[int], None]):
        super().__init__(environment)
        self._count_call = count_call
        self._calls: dict[asyncio.Task[None], asyncio.Future[Any]] = {}
        self._sound = True
        self._aborted: set[asyncio.Task[None]] = set()
        self._end: tuple[str, Manner] | None = None

    @property
    def pid(self) -> int | None:
        """Of the worker process; None: there is none."""
        return getattr(self._inner, "pid", None)

    @property
    def sound(self) -> bool:
        """Every call so far has come back with a result."""
        return self._sound and all(call.done() for call in self._calls)

    @property
    def cut_off(self) -> bool:
        """A call did not come back by itself; its thread may still be busy with it."""
        return bool(self._aborted)

    async def close(self) -> None:
        """Close the instance; whoever lent it takes it back, but won't lend it again."""
        self.spoil()
        await super().close()

    def spoil(self) -> None:
        """Say that nobody should borrow this instance again."""
        self._sound = False

    def end(self, why: str, manner: Manner) -> set[asyncio.Task[None]]:
        """End the lease; calls under way and later ones fail with `why`.

        Returns:
            What was cut off and may take a moment to end.
        """
        self._end = why, manner
        for running, answer in list(self._calls.items()):
            self._abort(running)
            if not answer.done():
                answer.set_exception(EnvironmentFailed(why, manner))
                answer.exception()  # its holder may be gone: then nobody else takes it
        return set(self._calls)

    async def _pass_on(self, method: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        if self._end is not None:
            raise EnvironmentFailed(*self._end)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        running = asyncio.ensure_future(_deliver(answer, method, *arguments))
        self._calls[running] = answer
        running.add_done_callback(self._calls.pop)
        self._count_call(1)
        try:
            return await answer
        except BaseException:
            self._sound = False
            self._abort(running)
            raise
        finally:
            self._count_call(-1)

    def _abort(self, running: asyncio.Task[None]) -> None:
        """Cancel a call once: a second time would interrupt the killing of its worker."""
        if not running.done() and running not in self._aborted:
            self._aborted.add(running)
            running.cancel()


async def _deliver(answer: asyncio.Future[Any], method: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
    """Fill the answer, unless the caller or the lease has gone meanwhile."""
    try:
        result = await method(*arguments)
    except asyncio.CancelledError:
        answer.cancel()
    except (Exception, SystemExit) as error:  # a SystemExit would end the event loop; it belongs to the caller
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(result)
