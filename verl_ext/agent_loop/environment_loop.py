"""verl's agent loop for any environment: dataset row -> Task -> `play()` with the token policy -> rollout row.

Selected by the dataset column `agent_name` = "environment". A session that fails raises, so that verl leaves it out of
the batch: a failure is never a reward of 0. Sessions of a group must see the same first observation.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register
from verl.workers.rollout.replica import TokenOutput

from agentgym_rl.environment import Opening
from agentgym_rl.environments.registry import opened
from agentgym_rl.episode import play
from agentgym_rl.errors import AgentGymError, ConfigurationError, DataError
from agentgym_rl.policy import SampledTokens
from agentgym_rl.rewards import weighted_sum
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason, Trajectory
from verl_ext import failures
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.agent_loop.settings import Settings
from verl_ext.agent_loop.token_policy import TokenBudget, TokenPolicy
from verl_ext.agent_loop.turn_rewards import TurnRewardOutput

_REMEMBERED_GROUPS = 4096
_first_observations: OrderedDict[str, str] = OrderedDict()
"""Group -> fingerprint; all sessions of a group run in one worker process."""


class SessionFailed(AgentGymError):
    """This session gives no training row; verl logs it and goes on without it."""


@register("environment")
class EnvironmentAgentLoop(AgentLoopBase):
    """One session: one episode of one task."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._settings = Settings.of(self.config)
        self._chat = ChatTokens(self.tokenizer, self.apply_chat_template_kwargs)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Play the row's task.

        Raises:
            SessionFailed: environment or policy failed, or nothing was sampled.
            ConfigurationError, DataError: the row or the setup can't work. These, and a reward function's own errors,
                are reported as fatal.
        """
        environment = "unknown"
        try:
            task = task_of(row)
            environment = task.environment
            return await self._play(task, sampling_params, str(row.get("uid") or uuid4()))
        except SessionFailed:
            raise
        except Exception as error:  # verl would log it and go on without the session
            message = str(error) if isinstance(error, AgentGymError) else f"{type(error).__name__}: {error}"
            failures.report(failures.SessionFailure(environment, "configuration", message, fatal=True))
            raise

    async def _play(self, task: Task, sampling_params: dict[str, Any], group: str) -> AgentLoopOutput:
        server = _Server(self.server_manager, sampling_params, self._chat.stop_ids)
        budget = TokenBudget(
            self.rollout_config.prompt_length, self.rollout_config.response_length, self._settings.turn_tokens
        )
        policy = TokenPolicy(server.generate, self._chat, budget)

        def same_start(start: Opening) -> None:
            require_same_start(group, task, start)

        async with opened(task.environment, self._settings.isolation) as environment:
            trajectory = await play(policy, environment, task, self._settings.limits, on_opening=same_start)
        _require_usable(trajectory)
        policy.keep_turns(len(trajectory.turns))
        return self._row(trajectory, policy, server)

    def _row(self, trajectory: Trajectory, policy: TokenPolicy, server: _Server) -> AgentLoopOutput:
        reward = weighted_sum(self._settings.rewards)(trajectory)
        return TurnRewardOutput(
            prompt_ids=policy.prompt_ids,
            response_ids=policy.response_ids,
            response_mask=policy.response_mask,
            response_logprobs=policy.response_logprobs if server.gives_logprobs else None,
            reward_score=reward.total,
            rewards_T=list(reward.per_turn_T),
            turn_ends_T=policy.turn_ends,
            num_turns=len(trajectory.messages),
            metrics=AgentLoopMetrics(
                generate_sequences=sum(turn.policy_seconds for turn in trajectory.turns),
                tool_calls=sum(turn.environment_seconds for turn in trajectory.turns),
            ),
            extra_fields={
                **server.weight_versions,
                "reward_extra_info": {"acc": float(bool(trajectory.success)), "turns": len(trajectory.turns)},
                "episode": episode_facts(trajectory, reward.parts),
            },
        )


class _Server:
    """verl's client for one session: sampling parameters, sticky request id, weight versions seen."""

    def __init__(self, client: Any, sampling_params: dict[str, Any], stop_ids: frozenset[int]):
        self._client = client
        self._sampling = {**sampling_params, "stop_token_ids": sorted(stop_ids)}
        self._session = uuid4().hex
        self.gives_logprobs = True
        self.weight_versions: dict[str, int | None] = {}

    async def generate(self, ids: list[int], max_tokens: int) -> SampledTokens:
        # A new dictionary each time: servers pop keys from it.
        output: TokenOutput = await self._client.generate(
            request_id=self._session, prompt_ids=ids, sampling_params={**self._sampling, "max_tokens": max_tokens}
        )
        seen = output.extra_fields
        self.weight_versions.setdefault("min_global_steps", seen.get("min_global_steps"))
        self.weight_versions["max_global_steps"] = seen.get("max_global_steps")
        if output.log_probs is None:
            self.gives_logprobs = False
        return SampledTokens(tuple(output.token_ids), tuple(output.log_probs or [0.0] * len(output.token_ids)))


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


def episode_facts(trajectory: Trajectory, reward_parts: Any) -> dict[str, Any]:
    """What the trainer's metrics need of a trajectory; small, since it travels with the row."""
    turns = trajectory.turns
    return {
        "environment": trajectory.task.environment,
        "success": trajectory.success,
        "stop": trajectory.stop.value,
        "turns": len(turns),
        "invalid_turns": sum(not turn.valid for turn in turns),
        "cut_replies": sum(not turn.reply.complete for turn in turns),
        "policy_seconds": sum(turn.policy_seconds for turn in turns),
        "environment_seconds": sum(turn.environment_seconds for turn in turns),
        "reward_parts": dict(reward_parts),
    }


def _require_usable(trajectory: Trajectory) -> None:
    failure = trajectory.failure
    if failure is None and trajectory.turns:
        return
    cause = failure.cause if failure else f"no_turn_{StopReason(trajectory.stop).value}"
    message = failure.message if failure else "the episode ended before the policy could take a turn"
    failures.report(failures.SessionFailure(trajectory.task.environment, cause, message))
    raise SessionFailed(f"task {trajectory.task.id!r}: {cause}: {message}")
