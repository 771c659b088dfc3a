"""Any environment or toolbox as tools of verl's own `tool_agent` loop, one live environment a trajectory.

verl makes and releases a tool at every call; here the first call of a trajectory opens its environment, later ones, of
any tool of that environment, go on with it, and it is closed when the trajectory is gone (`tool_session.py`).

The dataset's rows bring the task (`agentgym_rl.data.tool_rows` writes them): in `extra_info.tools_kwargs`, the only
part of a row that verl hands to tools. What a trajectory came to goes into its `extra_fields`, where the reward
function `verl_ext.tool_reward` finds it; verl itself adds no tool's reward to anything.

A failed environment is no observation with reward 0, as verl makes of what a tool raises: the trajectory is marked, and
the reward function, or a trainer of ours, takes it out.

The loop is verl's: it cuts answers to `multi_turn.max_tool_response_length` characters (256 by default), and it does
not carry out the calls of its last turn where `max_assistant_turns` is set; leave that null, and the environment's own
limit ends episodes. The agent loop `environment_tools` has neither trait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any
from weakref import WeakKeyDictionary

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse

from agentgym_rl.data.tool_rows import OPENING_KEY, TASK_KEY
from agentgym_rl.environment import Opening
from agentgym_rl.environments.tool_calling import told
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import AgentGymError, ConfigurationError, DataError, require_allowed_keys
from agentgym_rl.exported_tools import from_config
from agentgym_rl.failure_policy import Action, FailedEpisode
from agentgym_rl.messages import Message, ToolCall
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Trajectory, Turn
from verl_ext import failures
from verl_ext.survivors import EXCLUDED
from verl_ext.tool_schema import WholeToolSchema
from verl_ext.tool_session import Answer, EpisodeFailed, Playing, Sessions, ToolSession

FAILURE, SUCCESS = "tool_failure", "tool_success"
"""Keys in a trajectory's `extra_fields`: why it can't be used; whether the task was solved, once that is certain."""
_KEYS = ("type", "environment", "text_argument", "tool", "isolation", "limits", "environment_slots")

sessions = Sessions()
"""Of this process."""
_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], EnvironmentPool]] = WeakKeyDictionary()


class EnvironmentTool(BaseTool):
    """One tool of an environment, in the file that `openmanus-rl export-tools` writes.

    Its `config` is an `ExportedTool`, and what differs from the defaults of:

        isolation: "thread", or "process" for environments that may hang or crash.
        limits: of an episode, e.g. {step_seconds: 10}; `reply_seconds` does not hold here.
        environment_slots: environments of a kind that one agent loop worker plays at a time (64).

    The agent loop `environment_tools` goes by the section `agentgym` of the configuration instead.
    """

    def __init__(self, config: dict[str, Any], tool_schema: Any = None):
        del tool_schema  # verl has cut it down already; the whole one is in the configuration
        require_allowed_keys(config, _KEYS, "the config of a tool")
        self.exported = from_config(config)
        self._limits = _limits(config.get("limits") or {})
        self._isolation = config.get("isolation", "thread")
        self._slots = config.get("environment_slots", 64)
        super().__init__(config, WholeToolSchema.of(self.exported.schema))

    async def execute(
        self, instance_id: str, parameters: Any, *, agent_data: Any, **_: Any
    ) -> tuple[ToolResponse, float, dict]:
        """Carry one call out.

        Args:
            instance_id: verl's, another one at each call.
            parameters: whatever JSON the policy wrote as the call's arguments.
            agent_data: verl's, of the trajectory.

        Raises:
            EpisodeFailed, ConfigurationError, DataError: verl's loop shows them to the policy; the mark is what counts.
        """
        marks = agent_data.extra_fields
        try:
            session = sessions.of(agent_data, lambda: self._playing(agent_data.tools_kwargs))
            message = self._told(parameters)
            answer = Answer(message) if isinstance(message, str) else await session.call(message)
        except Exception as error:
            if FAILURE not in marks:
                marks[FAILURE] = str(error)
                if failures.report(_failure(error, self.exported.environment)):
                    marks[EXCLUDED] = True
            raise
        if answer.ended:
            marks[SUCCESS] = bool(answer.success)
        return ToolResponse(text=answer.text), answer.reward, {}

    def _told(self, parameters: Any) -> Message | str:
        if not isinstance(parameters, dict):
            return f"{self.name} takes a JSON object as its arguments; given: {str(parameters)[:200]}"
        return told(self.exported, ToolCall(self.name, parameters))

    def _playing(self, row: Mapping[str, Any]) -> Playing:
        """How the row's task is played."""
        task = _task(row)
        if task.environment != self.exported.environment:
            raise ConfigurationError(
                f"tool {self.name!r} is one of environment {self.exported.environment!r}, and the row's task "
                f"{task.id!r} is of {task.environment!r}: the row must name its tools in extra_info.tool_selection"
            )

        async def playing(session: ToolSession, on_turn: Callable[[Turn], None]) -> Trajectory:
            lease = _pool(self._isolation, self._slots).lease(task.environment, self._limits.lease_seconds)
            async with lease as leased:
                trajectory = await play(session, leased, task, self._limits, on_turn, _same_start(task, row))
                if trajectory.failed:
                    leased.spoil()
                return trajectory

        return playing


def _limits(given: Mapping[str, Any]) -> Limits:
    require_allowed_keys(given, [field.name for field in fields(Limits)], "the limits of a tool")
    return Limits(**{**given, "reply_seconds": float("inf")})  # the policy takes its time; the episode's deadline holds


def _task(row: Mapping[str, Any]) -> Task:
    if not row or not row.get(TASK_KEY):
        raise DataError(
            f"a row for an environment's tools needs its task as JSON in extra_info.tools_kwargs[{TASK_KEY!r}] "
            f"(see agentgym_rl.data.tool_rows); given: {', '.join(row or ()) or 'nothing'}"
        )
    return Task.from_json(row[TASK_KEY])


def _same_start(task: Task, row: Mapping[str, Any]) -> Callable[[Opening], None]:
    """Hold the environment to the first observation that stands in the row's prompt."""

    def check(start: Opening) -> None:
        written = row.get(OPENING_KEY)
        if written and written != start.fingerprint:
            raise ConfigurationError(
                f"task {task.id!r} of environment {task.environment!r} starts with another observation than the one in "
                f"its row's prompt ({start.fingerprint}, {written}): write the rows again"
            )

    return check


def _pool(isolation: Any, slots: int) -> EnvironmentPool:
    pools = _pools.setdefault(asyncio.get_running_loop(), {})
    return pools.setdefault((isolation, slots), EnvironmentPool(slots, isolation))


def _failure(error: Exception, environment: str) -> failures.SessionFailure:
    if isinstance(error, EpisodeFailed):
        failure, task = error.trajectory.failure, error.trajectory.task
        assert failure is not None
        failed = FailedEpisode(task.environment, task.id, failure.cause, failure.message, failure.traceback)
        return failures.SessionFailure(failed, Action.EXCLUDE)
    message = str(error) if isinstance(error, AgentGymError) else f"{type(error).__name__}: {error}"
    return failures.SessionFailure(
        FailedEpisode(environment, "unknown", "configuration", message), Action.STOP, fatal=True
    )
