"""What all sessions of one agent loop worker share: they run in one process, on one event loop.

verl makes an agent loop object a session, so none of this can live there. All sessions of a group are played by the
same worker, which holds them to one first observation.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import nullcontext
from weakref import WeakKeyDictionary

from agentgym_rl.concurrency import AdaptiveLimit, reply_limit
from agentgym_rl.environment import Opening
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.task import Task
from verl_ext.agent_loop.comparisons import Comparisons
from verl_ext.agent_loop.settings import Settings
from verl_ext.agent_loop.spares import Groups
from verl_ext.ray_pool import POOL, RayPool

REMEMBERED_GROUPS = 4096


class Worker:
    """One worker process.

    Args:
        settings: of the run; the same for all of its sessions.
    """

    def __init__(self, settings: Settings):
        self.pool: EnvironmentPool | RayPool = (
            RayPool.connect(POOL, settings.pool)
            if settings.pool
            else EnvironmentPool(settings.environment_slots, settings.isolation)
        )
        self.groups = Groups(settings.oversampling)
        compared = settings.split_rewards.compared
        self.comparisons = Comparisons(compared) if compared else None
        self.reply_limit: AdaptiveLimit | nullcontext[None] = reply_limit(settings.concurrent_replies)
        self._first_observations: OrderedDict[str, str] = OrderedDict()

    def require_same_start(self, group: str, task: Task, start: Opening) -> None:
        """Hold a group to one first observation.

        Raises:
            ConfigurationError: this session started elsewhere than its siblings.
        """
        known = self._first_observations.setdefault(group, start.fingerprint)
        while len(self._first_observations) > REMEMBERED_GROUPS:
            self._first_observations.popitem(last=False)
        if known != start.fingerprint:
            raise ConfigurationError(
                f"the sessions of one group did not start alike: task {task.id!r} of environment {task.environment!r} "
                f"gave the first observations {known} and {start.fingerprint}; "
                "its reset must depend on the task's seed alone"
            )


_workers: WeakKeyDictionary[asyncio.AbstractEventLoop, Worker] = WeakKeyDictionary()


def worker(settings: Settings) -> Worker:
    """The worker that the running event loop belongs to."""
    loop = asyncio.get_running_loop()
    if loop not in _workers:
        _workers[loop] = Worker(settings)
    return _workers[loop]
