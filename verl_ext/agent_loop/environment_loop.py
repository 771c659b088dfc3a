"""verl's agent loop for any environment: dataset row -> Task -> `play()` with the token policy -> rollout row.

Selected by the dataset column `agent_name` = "environment". A failed episode is never a reward of 0: it is played
again, or its session is left out. Our trainers get an empty row marked as left out (`survivors.py`); for a stock
trainer the session raises, and verl goes on without it. Sessions of a group must see the same first observation.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import OrderedDict
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, register
from verl.trainer.ppo.utils import need_critic

from agentgym_rl.environment import Opening
from agentgym_rl.environments.chaos import chaotic
from agentgym_rl.episode import play
from agentgym_rl.errors import AgentGymError, ConfigurationError, DataError
from agentgym_rl.failure_policy import Action, FailedEpisode
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.rewards import weighted_sum
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason, Trajectory
from verl_ext import failures
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.agent_loop.session_server import SessionServer
from verl_ext.agent_loop.settings import Settings
from verl_ext.agent_loop.token_policy import TokenBudget, TokenPolicy
from verl_ext.agent_loop.training_rows import empty_row, rows_of_session
from verl_ext.agent_loop.turn_rewards import TurnRewardOutput
from verl_ext.ray_pool import POOL, RayPool

_REMEMBERED_GROUPS = 4096
_first_observations: OrderedDict[str, str] = OrderedDict()
"""Group -> fingerprint; all sessions of a group run in one worker process."""
_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, EnvironmentPool | RayPool] = WeakKeyDictionary()
"""One a worker process: all its sessions run on one event loop."""
LEASE_MARGIN = 60.0
"""Seconds that a lease outlives its episode's own deadline; play() ends first, the lease is the net below it."""


class SessionFailed(AgentGymError):
    """This session gives no training row; verl logs it and goes on without it."""


@register("environment")
class EnvironmentAgentLoop(AgentLoopBase):
    """One session: one episode of one task."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._settings = Settings.of(self.config)
        self._chat = ChatTokens(self.tokenizer, self.apply_chat_template_kwargs)
        self._token_budget = TokenBudget(
            self.rollout_config.prompt_length, self.rollout_config.response_length, self._settings.turn_tokens
        )
        self._has_critic = need_critic(self.config)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[TurnRewardOutput]:
        """Play the row's task.

        Raises:
            SessionFailed: environment or policy failed, or nothing was sampled, and no trainer of ours takes note.
            ConfigurationError, DataError: the row or the setup can't work. These, and a reward function's own errors,
                are reported as fatal.
        """
        environment = name = "unknown"
        try:
            task = task_of(row)
            environment, name = task.environment, task.id
            return await self._session(task, sampling_params, row)
        except SessionFailed:
            raise
        except Exception as error:  # verl would log it and go on without the session
            message = str(error) if isinstance(error, AgentGymError) else f"{type(error).__name__}: {error}"
            failed = FailedEpisode(environment, name, "configuration", message)
            failures.report(failures.SessionFailure(failed, Action.STOP, fatal=True))
            raise

    async def _session(
        self, task: Task, sampling_params: dict[str, Any], row: dict[str, Any]
    ) -> list[TurnRewardOutput]:
        """Play until an episode can be used, or the failure policy gives the session up."""
        group = str(row.get("uid") or uuid4())
        for tries in itertools.count(1):
            server = SessionServer(self.server_manager, sampling_params, self._chat.stop_ids)
            policy = TokenPolicy(server.generate, self._chat, self._token_budget, self._settings.history)
            nonce = f"{row.get('global_steps', 0)}-{row.get('session_id', 0)}-{tries}"
            begin = time.monotonic()
            trajectory = await self._play(task, policy, group, nonce)
            failed = failed_episode(trajectory)
            if failed is None:
                policy.keep_turns(len(trajectory.turns))
                if self._has_critic and trajectory.stop is not StopReason.TERMINATED:
                    policy.observe_end(trajectory.messages)
                reward = weighted_sum(self._settings.rewards)(trajectory)
                return rows_of_session(trajectory, policy.segments, reward, server, time.monotonic() - begin)
            action = self._settings.failures.action(failed.cause, tries)
            counted = failures.report(failures.SessionFailure(failed, action))
            if action is Action.EXCLUDE and counted:
                return [
                    empty_row(
                        self.tokenizer.eos_token_id,
                        row.get("global_steps", 0),
                        self.rollout_config.calculate_log_probs,
                    )
                ]
            if action is not Action.RETRY:
                raise SessionFailed(f"task {task.id!r}: {failed.cause}: {failed.message}")
        raise AssertionError("unreachable")

    async def _play(self, task: Task, policy: TokenPolicy, group: str, nonce: str) -> Trajectory:
        def same_start(start: Opening) -> None:
            require_same_start(group, task, start)

        limits = self._settings.limits
        async with worker_pool(self._settings).lease(task.environment, limits.episode_seconds + LEASE_MARGIN) as leased:
            played = chaotic(leased, self._settings.chaos, task.id, nonce)
            trajectory = await play(policy, played, task, limits, on_opening=same_start)
            if trajectory.failed:
                leased.spoil()  # an answer that only play() can tell to be wrong, such as a reward of NaN
            return trajectory


def worker_pool(settings: Settings) -> EnvironmentPool | RayPool:
    """The environments that this worker process plays: its own, or the run's Ray actors."""
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        _pools[loop] = (
            RayPool.connect(POOL, settings.pool)
            if settings.pool
            else EnvironmentPool(settings.environment_slots, settings.isolation)
        )
    return _pools[loop]


def task_of(row: dict[str, Any]) -> Task:
    """The task in a dataset row.

    Raises:
        DataError: the row has none, or it can't be read.
    """
    if not isinstance(row.get("task"), str):
        raise DataError(
            "an environment row needs the column 'task' (one task as JSON, see agentgym_rl.data.parquet); "
            f"given: {', '.join(sorted(row))}"
        )
    return Task.from_json(row["task"])


def require_same_start(group: str, task: Task, start: Opening) -> None:
    """Hold a group to one first observation.

    Raises:
        ConfigurationError: this session started elsewhere than its siblings.
    """
    known = _first_observations.setdefault(group, start.fingerprint)
    while len(_first_observations) > _REMEMBERED_GROUPS:
        _first_observations.popitem(last=False)
    if known != start.fingerprint:
        raise ConfigurationError(
            f"the sessions of one group did not start alike: task {task.id!r} of environment {task.environment!r} gave "
            f"the first observations {known} and {start.fingerprint}; its reset must depend on the task's seed alone"
        )


def failed_episode(trajectory: Trajectory) -> FailedEpisode | None:
    """Why a trajectory can't be trained on; None if it can."""
    failure, task = trajectory.failure, trajectory.task
    if failure is not None:
        return FailedEpisode(task.environment, task.id, failure.cause, failure.message, failure.traceback)
    if not trajectory.turns:
        message = f"the episode ended ({trajectory.stop.value}) before the policy could take a turn"
        return FailedEpisode(task.environment, task.id, "nothing_sampled", message)
    return None
