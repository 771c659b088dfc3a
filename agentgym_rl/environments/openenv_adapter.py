"""An environment behind an OpenEnv server: of whatever server that speaks OpenEnv's websocket protocol.

A session is opened at each reset and serves one trajectory, so that nothing of one reaches the next.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentgym_rl.environment import Environment, Facts, StepResult
from agentgym_rl.environments.openenv_actions import Actions, NoAction
from agentgym_rl.environments.openenv_session import ActionRefused, Session
from agentgym_rl.environments.turn_limited import whole_number
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed, require_allowed_keys
from agentgym_rl.messages import Message, user
from agentgym_rl.task import Task

DEFAULT_MAX_TURNS = 64


@dataclass(frozen=True)
class _Setup:
    """A task's arguments, read."""

    base_url: str
    max_turns: int
    success_reward: float | None = None
    reset: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task) -> _Setup:
        given = task.arguments
        require_allowed_keys(given, ("base_url", "reset", "success_reward", "max_turns"), "an OpenEnv task")
        address, reset, success = given.get("base_url"), given.get("reset", {}), given.get("success_reward")
        if not isinstance(address, str) or not address.startswith(("http://", "https://")):
            raise ConfigurationError(f"base_url must read 'http://host:port'; given: {address!r}")
        if not isinstance(reset, Mapping) or "seed" in reset:
            raise ConfigurationError(f"reset must be an object without 'seed', which is the task's; given: {reset!r}")
        if success is not None and (isinstance(success, bool) or not isinstance(success, int | float)):
            raise ConfigurationError(f"success_reward must be a number; given: {success!r}")
        max_turns = whole_number(given, "max_turns", DEFAULT_MAX_TURNS)
        return cls(address.rstrip("/"), max_turns, success, reset)


class OpenEnv(Environment):
    """Play whatever an OpenEnv server serves.

    Task: `arguments` holds `base_url` ("http://host:port") and, if wanted, `reset` (further arguments of the server's
        reset), `success_reward` and `max_turns` (default 64). The task's seed goes to the server's reset, where it
        counts if the served environment takes a `seed`.
    Actions: by the schema at the server's /schema. Where an action has a single field, and that holds text, the reply
        is its value, without space around it; otherwise the reply, or its last fenced block, is a JSON object that fits
        the schema. What does not fit, here or by the server's own validation, is not valid; it counts as a turn.
    Observations: the only field of the server's observation, where there is one and it is text; else all as JSON.
    Reward: the server's, of each step; none is 0.
    End: terminated when the server says `done`; truncated after `max_turns` turns.
    Success: the rewards of an episode that the server ended sum to at least `success_reward`; unknown without it.
    Splits: `data_preprocess/openenv.py` gives every task a seed of its own.
    Token: the environment variable OPENMANUS_SERVER_TOKEN is sent as bearer token to the server.
    Sessions: each instance holds one of the server's, from a reset to the next or to its close; a server allows as many
        as its `max_concurrent_envs`, by default 1.
    Left out: listed actions, expert and snapshots, which the protocol has nothing for; the tools that an MCP
        environment would list (`mcp_toolbox` takes the server's /mcp).
    Source: https://github.com/meta-pytorch/OpenEnv; tested against servers of `openenv-core` 0.3.0.
    Licence: of this client that of the project; openenv-core BSD-3-Clause; each environment its own.

    An episode (the tests' server, whose action has the single field `text`; seed 0):
        Guess a number from 1 to 8.
        > 4
        higher
        > 7
        (terminated, reward 1)
    """

    facts = Facts(
        reward_range=(-math.inf, math.inf),
        max_turns=DEFAULT_MAX_TURNS,
        any_text=True,
        domain="any OpenEnv server",
        source="https://github.com/meta-pytorch/OpenEnv",
        licence="BSD-3-Clause",
    )
    host_arguments = frozenset({"base_url"})

    def __init__(self) -> None:
        self._session: Session | None = None
        self._closed = False
        self._turns_left: int | None = None
        """None: not reset yet; 0: over."""

    async def reset(self, task: Task) -> Sequence[Message]:
        if self._closed:
            raise EnvironmentFailed("an OpenEnv server was used after close")
        self._turns_left = None
        self._setup = _Setup.of(task)
        await self._let_go()
        self._session, schema = await Session.opened(self._setup.base_url)
        self._actions = Actions.of(schema)
        self.instructions = f"Act in the environment. {self._actions.instructions}"
        observation, _, done = _read(await self._session.ask("reset", {"seed": task.seed, **self._setup.reset}))
        if done:
            raise EnvironmentFailed(f"{self._setup.base_url} ended the episode in its reset")
        self._return, self._turns_left = 0.0, self._setup.max_turns
        return [user(observation)]

    async def step(self, action: Message) -> StepResult:
        if not self._turns_left or self._session is None:
            when = "before reset" if self._turns_left is None else "after the end of its episode"
            raise EnvironmentFailed(f"an OpenEnv server was stepped {when}")
        try:
            answer = await self._session.ask("step", self._actions.read(action.content))
        except (NoAction, ActionRefused) as refused:
            result = StepResult.going_on(str(refused), valid=False)
        else:
            result = self._result(*_read(answer))
        if self._turns_left == 1 and not result.terminated:
            result = replace(result, truncated=True, success=False)
        self._turns_left = 0 if result.terminated else self._turns_left - 1
        return result

    async def close(self) -> None:
        self._closed = True
        await self._let_go()

    def _result(self, observation: str, reward: float, done: bool) -> StepResult:
        self._return += reward
        if not done:
            return StepResult.going_on(observation, reward)
        least = self._setup.success_reward
        return StepResult.at_end(reward, None if least is None else self._return >= least, observation)

    async def _let_go(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _read(answer: Mapping[str, Any]) -> tuple[str, float, bool]:
    """Observation, reward and whether the episode is over.

    Raises:
        EnvironmentFailed: one of them is malformed.
    """
    observation, reward, done = answer.get("observation"), answer.get("reward"), answer.get("done")
    if not isinstance(observation, dict) or not isinstance(done, bool):
        raise EnvironmentFailed(
            f"the server answered without an object 'observation' and 'done'; given: {answer!r:.200}"
        )
    if not isinstance(reward, int | float | None) or (reward is not None and not abs(reward) <= sys.float_info.max):
        raise EnvironmentFailed(f"the server's 'reward' must be a finite number or null; given: {reward!r:.80}")
    return _shown(observation), float(reward or 0), done


def _shown(observation: Mapping[str, Any]) -> str:
    values = list(observation.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0] if values[0].strip() else "(nothing)"
    return json.dumps(observation, ensure_ascii=False)
