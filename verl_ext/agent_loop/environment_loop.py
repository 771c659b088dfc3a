"""verl's agent loop for any environment: dataset row -> Task -> `play()` with the token policy -> rollout rows.

Selected by the dataset column `agent_name` = "environment". A failed episode is never a reward of 0: it is played
again, or its session is left out. Our trainers get an empty row marked as left out (`survivors.py`); for a stock
trainer the session raises, and verl goes on without it.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, register
from verl.trainer.ppo.utils import need_critic

from agentgym_rl.environment import Environment, Opening
from agentgym_rl.environments.chaos import chaotic
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import AgentGymError, BoundaryError, DataError
from agentgym_rl.failure_policy import Action, FailedEpisode
from agentgym_rl.oversample import Fate
from agentgym_rl.rewards import Reward, weighted_sum
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory
from agentgym_rl.truncation import CountsAs
from verl_ext import failures
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.agent_loop.session_server import SessionServer
from verl_ext.agent_loop.settings import Settings
from verl_ext.agent_loop.token_policy import TokenBudget, TokenPolicy
from verl_ext.agent_loop.training_rows import empty_row, rows_of_session
from verl_ext.agent_loop.turn_rewards import TurnRewardOutput
from verl_ext.agent_loop.worker import worker

VALIDATION = "validation"
"""Column that our trainers add to each row: whether it is validated on. verl does not tell an agent loop."""


class SessionFailed(AgentGymError):
    """This session gives no training row; verl logs it and goes on without it."""


@dataclass(frozen=True)
class _Ended:
    """A session that was played to its end."""

    trajectory: Trajectory
    policy: TokenPolicy
    server: SessionServer
    wall_seconds: float
    failure: FailedEpisode | None
    reward: Reward | None
    """None where it failed."""
    left_out: bool = False
    """A trainer of ours took note of the failure, and wants an empty row."""

    @property
    def failed(self) -> bool:
        return self.failure is not None


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
        """Play the session, beside the spares of its group where there are any, and make its rows."""
        group = str(row.get("uid") or uuid4())

        async def play_tries() -> _Ended:
            return await self._play_tries(task, sampling_params, row, group)

        spares = self._settings.oversampling.spares
        if spares and _is_trained_on(row):
            shared = worker(self._settings)
            keep = self.rollout_config.n - spares
            outcome = await shared.groups.settle(group, row["session_id"], keep, play_tries)
            ended = outcome.episode
            if ended is None or outcome.fate is Fate.SPARE:
                return []
        else:
            ended = await play_tries()
        failures.report_pool(worker(self._settings).pool.end_period())
        if ended.left_out:
            return [self._empty_row(row)]
        if ended.failure:
            raise SessionFailed(f"task {task.id!r}: {ended.failure.cause}: {ended.failure.message}")
        return self._rows(ended)

    async def _play_tries(self, task: Task, sampling_params: dict[str, Any], row: dict[str, Any], group: str) -> _Ended:
        """Play until an episode can be used, or the failure policy gives the session up."""
        limit = worker(self._settings).reply_limit
        for tries in itertools.count(1):
            server = SessionServer(self.server_manager, sampling_params, self._chat.stop_ids, limit)
            policy = TokenPolicy(server.generate, self._chat, self._token_budget, self._settings.history)
            nonce = f"{row.get('global_steps', 0)}-{row.get('session_id', 0)}-{tries}"
            begin = time.monotonic()
            trajectory = await self._play(task, policy, group, nonce, self._limits(row))
            wall_seconds = time.monotonic() - begin
            reward, failure = await self._judge(trajectory, self._failure(trajectory, row))
            ended = _Ended(trajectory, policy, server, wall_seconds, failure, reward)
            if ended.failure is None:
                return ended
            action = self._settings.failures.action(ended.failure.cause, tries)
            validation = row.get(VALIDATION) is True
            counted = failures.report(failures.SessionFailure(ended.failure, action, validation))
            if action is not Action.RETRY:
                return replace(ended, left_out=counted and action is Action.EXCLUDE)
        raise AssertionError("unreachable")

    async def _play(self, task: Task, policy: TokenPolicy, group: str, nonce: str, limits: Limits) -> Trajectory:
        shared = worker(self._settings)

        def same_start(start: Opening) -> None:
            shared.require_same_start(group, task, start)

        async with shared.pool.lease(task.environment, limits.lease_seconds) as leased:
            harmed = chaotic(leased, self._settings.chaos, task.id, nonce)
            played, played_task = self._as_played(harmed, task)
            trajectory = await play(policy, played, played_task, limits, on_opening=same_start)
            if trajectory.failed:
                leased.spoil()  # an answer that only play() can tell to be wrong, such as a reward of NaN
            return replace(trajectory, task=task)

    def _as_played(self, environment: Environment, task: Task) -> tuple[Environment, Task]:
        """What the policy gets to see of an environment and its task."""
        return environment, task

    def _limits(self, row: dict[str, Any]) -> Limits:
        """A horizon that grows is for training; what is validated is the whole one."""
        limits, horizon = self._settings.limits, self._settings.horizon
        if horizon is None or not _is_trained_on(row):
            return limits
        return replace(limits, max_turns=min(limits.max_turns, horizon.max_turns(row.get("global_steps", 0))))

    def _failure(self, trajectory: Trajectory, row: dict[str, Any]) -> FailedEpisode | None:
        """Why a trajectory is not trained on; None if it is."""
        failed = failed_episode(trajectory)
        if failed or not _is_trained_on(row):
            return failed
        if self._settings.truncations.counts_as(trajectory.stop) is not CountsAs.EXCLUDE:
            return None
        message = f"cut off after {len(trajectory.turns)} turns"
        return FailedEpisode(trajectory.task.environment, trajectory.task.id, trajectory.stop.value, message)

    async def _judge(
        self, trajectory: Trajectory, failure: FailedEpisode | None
    ) -> tuple[Reward | None, FailedEpisode | None]:
        """What a trajectory earned; a judge that fails leaves it without a reward, and untrained on."""
        if failure is not None:
            return None, failure
        try:
            return await weighted_sum(self._settings.rewards)(trajectory), None
        except BoundaryError as error:
            failed = replace(trajectory, stop=StopReason.FAILED, failure=Failure.from_error(error))
            return None, failed_episode(failed)

    def _rows(self, ended: _Ended) -> list[TurnRewardOutput]:
        trajectory, policy, reward = ended.trajectory, ended.policy, ended.reward
        assert reward is not None, "an episode that did not fail has a reward"
        policy.keep_turns(len(trajectory.turns))
        if self._has_critic and self._settings.truncations.counts_as(trajectory.stop) is CountsAs.BOOTSTRAP:
            policy.observe_end(trajectory.messages)
        return rows_of_session(trajectory, policy.segments, reward, ended.server, ended.wall_seconds)

    def _empty_row(self, row: dict[str, Any]) -> TurnRewardOutput:
        gives_logprobs = self.rollout_config.calculate_log_probs
        return empty_row(self.tokenizer.eos_token_id, row.get("global_steps", 0), gives_logprobs)


def _is_trained_on(row: dict[str, Any]) -> bool:
    """With a stock trainer nobody knows, and what is for training alone is left out."""
    return row.get(VALIDATION) is False


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


def failed_episode(trajectory: Trajectory) -> FailedEpisode | None:
    """Why a trajectory can't be used; None if it can."""
    failure, task = trajectory.failure, trajectory.task
    if failure is not None:
        return FailedEpisode(task.environment, task.id, failure.cause, failure.message, failure.traceback)
    if not trajectory.turns:
        message = f"the episode ended ({trajectory.stop.value}) before the policy could take a turn"
        return FailedEpisode(task.environment, task.id, "nothing_sampled", message)
    return None
