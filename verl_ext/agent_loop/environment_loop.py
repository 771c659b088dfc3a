"""verl's agent loop for any environment: dataset row -> Task -> `play()` with the token policy -> rollout rows.

Selected by the dataset column `agent_name` = "environment". A failed episode is never a reward of 0: it is played
again, or its session is left out. Our trainers get an empty row marked as left out (`survivors.py`); for a stock
trainer the session raises, and verl goes on without it.
"""

from __future__ import annotations

import itertools
import logging
import time
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, register
from verl.trainer.ppo.utils import need_critic

from agentgym_rl.environment import Environment, Opening
from agentgym_rl.environments.chaos import chaotic
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import AgentGymError, BoundaryError, ConfigurationError, DataError
from agentgym_rl.failure_policy import Action, FailedEpisode
from agentgym_rl.oversample import Fate
from agentgym_rl.rewards import Reward, weighted_sum
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory
from agentgym_rl.truncation import CountsAs
from verl_ext import failures
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.agent_loop.comparisons import Comparisons, Seat
from verl_ext.agent_loop.session_server import SessionServer
from verl_ext.agent_loop.settings import Settings
from verl_ext.agent_loop.token_policy import TokenBudget, TokenPolicy
from verl_ext.agent_loop.training_rows import empty_row, rows_of_session
from verl_ext.agent_loop.turn_rewards import TurnRewardOutput
from verl_ext.agent_loop.worker import worker

logger = logging.getLogger(__name__)

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
    """A trainer of ours took note of the failure, if there was one, and wants an empty row."""

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
        """Play the session, be compared with its siblings where a reward does that, and make its rows."""
        group = str(row.get("uid") or uuid4())
        comparisons = self._comparisons(row)
        if comparisons is None:
            ended = await self._played(task, sampling_params, row, group)
        else:
            async with comparisons.seat(group, row["session_id"], self.rollout_config.n) as seat:
                ended = await self._played(task, sampling_params, row, group)
                if ended is not None and not ended.failed:
                    ended = await self._compared(ended, seat, row)
        if ended is None:
            return []
        failures.report_pool(worker(self._settings).pool.end_period())
        if ended.left_out:
            return [self._empty_row(row)]
        if ended.failure:
            raise SessionFailed(f"task {task.id!r}: {ended.failure.cause}: {ended.failure.message}")
        return self._rows(ended)

    def _comparisons(self, row: dict[str, Any]) -> Comparisons | None:
        """Where the session meets its siblings; None: no reward compares them, or it is validated on.

        Raises:
            ConfigurationError: with a stock trainer, nobody knows which.
        """
        comparisons = worker(self._settings).comparisons
        if comparisons is not None and row.get(VALIDATION) is None:
            raise ConfigurationError(
                f"reward {', '.join(map(repr, self._settings.split_rewards.compared))} compares the sessions of a "
                "training group, and needs a trainer that says which sessions are: trainer.v1.trainer_mode=agentgym or "
                "agentgym_async"
            )
        return comparisons if _is_trained_on(row) else None

    async def _played(
        self, task: Task, sampling_params: dict[str, Any], row: dict[str, Any], group: str
    ) -> _Ended | None:
        """Play the session, beside the spares of its group where there are any; None: it is not needed."""

        async def play_tries() -> _Ended:
            return await self._play_tries(task, sampling_params, row, group)

        spares = self._settings.oversampling.spares
        if not spares or not _is_trained_on(row):
            return await play_tries()
        keep = self.rollout_config.n - spares
        outcome = await worker(self._settings).groups.settle(group, row["session_id"], keep, play_tries)
        return None if outcome.fate is Fate.SPARE else outcome.episode

    async def _compared(self, ended: _Ended, seat: Seat, row: dict[str, Any]) -> _Ended:
        """Add what the comparison with its siblings earns the session.

        If the comparison fails, all of them have, and none is played again: to retry is to compare once more. A session
        whose siblings are all gone has no such reward, which is not one of 0: it is left out.
        """
        assert ended.reward is not None, "an episode that did not fail has a reward"
        for tries in itertools.count(1):
            try:
                reward = await seat.compared(ended.trajectory, tries)
            except BoundaryError as error:
                failed = replace(ended, reward=None, failure=_failed_by(error, ended.trajectory))
                given_up = self._given_up(failed, tries, row)
                if given_up is not None:
                    return given_up
            else:
                if reward is None:
                    logger.warning("task %r: no sibling is left to compare a session with", ended.trajectory.task.id)
                    return replace(ended, reward=None, left_out=True)
                return replace(ended, reward=ended.reward.plus(reward))
        raise AssertionError("unreachable")

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
            done = ended if ended.failure is None else self._given_up(ended, tries, row)
            if done is not None:
                return done
        raise AssertionError("unreachable")

    def _given_up(self, ended: _Ended, tries: int, row: dict[str, Any]) -> _Ended | None:
        """Report a failed session; None: the failure policy has it tried again."""
        assert ended.failure is not None, "only what failed is given up"
        action = self._settings.failures.action(ended.failure.cause, tries)
        validation = row.get(VALIDATION) is True
        counted = failures.report(failures.SessionFailure(ended.failure, action, validation))
        return None if action is Action.RETRY else replace(ended, left_out=counted and action is Action.EXCLUDE)

    async def _play(self, task: Task, policy: TokenPolicy, group: str, nonce: str, limits: Limits) -> Trajectory:
        shared = worker(self._settings)

        def same_start(start: Opening) -> None:
            shared.require_same_start(group, task, start)

        async with shared.pool.lease(task.environment, limits.lease_seconds) as leased:
            played, played_task = self._as_played(leased, task)
            harmed = chaotic(played, self._settings.chaos, task.id, nonce)
            trajectory = await play(policy, harmed, played_task, limits, on_opening=same_start)
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
        """What a trajectory earned by itself; a judge that fails leaves it without a reward, and untrained on."""
        if failure is not None:
            return None, failure
        try:
            return await weighted_sum(self._settings.split_rewards.alone)(trajectory), None
        except BoundaryError as error:
            return None, _failed_by(error, trajectory)

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


def _failed_by(error: BoundaryError, trajectory: Trajectory) -> FailedEpisode | None:
    """A trajectory that was sound until something about it was asked."""
    return failed_episode(replace(trajectory, stop=StopReason.FAILED, failure=Failure.from_error(error)))


def failed_episode(trajectory: Trajectory) -> FailedEpisode | None:
    """Why a trajectory can't be used; None if it can."""
    failure, task = trajectory.failure, trajectory.task
    if failure is not None:
        return FailedEpisode(task.environment, task.id, failure.cause, failure.message, failure.traceback)
    if not trajectory.turns:
        message = f"the episode ended ({trajectory.stop.value}) before the policy could take a turn"
        return FailedEpisode(task.environment, task.id, "nothing_sampled", message)
    return None
