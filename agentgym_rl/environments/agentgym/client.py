"""An environment behind an AgentGym HTTP server: AgentGym's own servers, or ours (`openmanus-rl serve`).

An instance on the server is used for one episode after another. One whose call was cut off or whose connection broke is
given back, and one that the server no longer knows is replaced at the next reset.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from agentgym_rl.environment import Environment, Facts, StepResult
from agentgym_rl.environments.agentgym.connection import Connection
from agentgym_rl.environments.agentgym.dialects import DIALECTS, Dialect
from agentgym_rl.environments.wire import ARGUMENTS, RESULTS
from agentgym_rl.errors import (
    AgentGymError,
    ConfigurationError,
    EnvironmentFailed,
    Manner,
    boundary,
    did_you_mean,
    require_allowed_keys,
)
from agentgym_rl.messages import Message, user
from agentgym_rl.task import Task

DEFAULT_MAX_TURNS = 64
CLOSE_SECONDS = 2.0
"""What a server gets to close an instance; many can't, and leases free what was not closed."""


@dataclass(frozen=True)
class _Setup:
    """A task's arguments, read."""

    address: str
    dialect: Dialect
    item: int | None
    max_turns: int

    @classmethod
    def of(cls, task: Task) -> _Setup:
        given = task.arguments
        name = given.get("dialect", "openmanus")
        if name not in DIALECTS:
            raise ConfigurationError(f"no dialect {name!r} of an AgentGym server; {did_you_mean(str(name), DIALECTS)}")
        dialect = DIALECTS[name]
        allowed = ("server", "dialect", "max_turns", "arguments" if dialect.ours else "item")
        require_allowed_keys(given, allowed, f"a task of an AgentGym server with the dialect {name!r}")
        address = given.get("server")
        if not isinstance(address, str) or not address.startswith(("http://", "https://")):
            raise ConfigurationError(f"server must read 'http://host:port'; given: {address!r}")
        item = None if dialect.ours else _whole_number(given, "item", 0)
        if not isinstance(given.get("arguments", {}), Mapping):
            raise ConfigurationError(f"arguments must be an object; given: {given['arguments']!r}")
        max_turns = _whole_number({"max_turns": DEFAULT_MAX_TURNS, **given}, "max_turns", 1)
        return cls(address.rstrip("/") + dialect.path, dialect, item, max_turns)


def _whole_number(given: Mapping[str, Any], name: str, least: int) -> int:
    value = given.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(f"{name} must be a whole number of at least {least}; given: {value!r}")
    return value


class AgentGymEnvironment(Environment):
    """Play whatever an AgentGym environment server serves, over HTTP.

    Task: `arguments` holds `server` ("http://host:port") and, if wanted, `max_turns` (default 64). With the `dialect`
        of one of AgentGym's servers ("babyai", "webshop", ...; all in `DIALECTS`) also `item`, the server's own number
        of the task. With the default dialect "openmanus", our server, `arguments` are the served environment's own,
        and the task's seed counts.
    Actions: what the served environment takes. For most of AgentGym's servers the text after "Action:" is sent.
    Observations: the server's. Reward: the server's, of each step. Success: of AgentGym's servers as `DIALECTS` says.
    End: terminated when the server is done; truncated by the server (where it tells), or after `max_turns` turns.
    Token: the environment variable OPENMANUS_SERVER_TOKEN is sent as bearer token to the server.
    Left out: listed actions, expert and snapshots, which this protocol has no routes for.
    Source: Xi et al., AgentGym, 2024, https://arxiv.org/abs/2406.04151.
    Licence: of this client that of the project; of AgentGym's servers MIT, with licences of their data.
    """

    facts = Facts(
        reward_range=(-math.inf, math.inf),
        max_turns=DEFAULT_MAX_TURNS,
        domain="any AgentGym server",
        source="https://github.com/WooooDyy/AgentGym",
        licence="MIT",
    )
    host_arguments = frozenset({"server"})

    def __init__(self) -> None:
        self._instance: _Instance | None = None
        self._closed = False
        self._setup: _Setup | None = None

    async def reset(self, task: Task) -> Sequence[Message]:
        if self._closed:
            raise EnvironmentFailed("an instance on an AgentGym server was used after close")
        self._setup = None
        setup = _Setup.of(task)
        answer = await self._reset_instance(setup, _reset_body(setup, task))
        self._setup, self._turns, self._earned = setup, 0, 0.0
        if setup.dialect.ours:
            self.instructions = _field(answer, "instructions", str)
            return _decoded("reset", answer, "messages")
        self.instructions = setup.dialect.instructions
        if setup.dialect.opening_by_get and self._instance:
            answer = await self._instance.observation()
        return [user(_opening(setup.dialect, answer))]

    async def step(self, action: Message) -> StepResult:
        setup, instance = self._setup, self._instance
        if setup is None or instance is None:
            raise EnvironmentFailed("an AgentGym server was stepped before reset")
        dialect = setup.dialect
        if dialect.ours:
            answer = await instance.post("/step", {"message": ARGUMENTS["step"].encode(action)})
            result = _decoded("step", answer, "result")
        else:
            answer = await instance.post("/step", {"action": dialect.read_action(action.content)})
            result, self._earned = _step_result(dialect, answer, self._earned)
        self._turns += 1
        if self._turns >= setup.max_turns and not result.terminated and not result.truncated:
            return replace(result, truncated=True, success=False)
        return result

    async def close(self) -> None:
        self._closed = True
        await self._let_go()

    async def _reset_instance(self, setup: _Setup, body: Mapping[str, Any]) -> Any:
        if self._instance and self._instance.intact and self._instance.serves(setup):
            # It fails where the server was started anew or the lease ran out, which no server says in the same way. A
            # task that can't be reset fails on the new instance as well.
            with suppress(EnvironmentFailed):
                return await self._instance.post("/reset", body)
        await self._let_go()
        self._instance = _Instance(setup)
        await self._instance.create()
        return await self._instance.post("/reset", body)

    async def _let_go(self) -> None:
        instance, self._instance = self._instance, None
        if instance:
            await instance.close()


class _Instance:
    """One environment on a server."""

    def __init__(self, setup: _Setup):
        self._address, self._dialect = setup.address, setup.dialect
        self._connection = Connection(setup.address)
        self._id: int | None = None
        self.intact = False
        """The last call was answered: no answer is under way that the next call could get instead."""

    def serves(self, setup: _Setup) -> bool:
        return (self._address, self._dialect) == (setup.address, setup.dialect)

    async def create(self) -> None:
        answer = await self._connection.post("/create", self._dialect.create_body)
        self._id = answer if type(answer) is int else _field(answer, self._dialect.id_field, int)

    async def post(self, route: str, body: Mapping[str, Any]) -> Any:
        self.intact = False
        try:
            answer = await self._connection.post(route, {self._dialect.id_field: self._id, **body})
        except EnvironmentFailed as error:
            self.intact = error.manner is Manner.RAISED
            raise
        self.intact = True
        return answer

    async def observation(self) -> Any:
        return await self._connection.get("/observation", {self._dialect.id_field: self._id})

    async def close(self) -> None:
        try:
            if self._id is not None:
                with suppress(AgentGymError):
                    await boundary(self.post("/close", {}), EnvironmentFailed, "close", CLOSE_SECONDS)
        finally:
            await self._connection.close()


def _reset_body(setup: _Setup, task: Task) -> dict[str, Any]:
    if setup.dialect.ours:
        row = {**task.to_dict(), "arguments": dict(task.arguments.get("arguments", {}))}
        row.pop("prefix", None)  # `play()` plays it
        del row["environment"]  # the server knows what it serves
        del row["reply_form"]  # `play()` reads it here
        return {"task": row}
    return {setup.dialect.item_field: setup.item, **setup.dialect.reset_body}


def _opening(dialect: Dialect, answer: Any) -> str:
    if isinstance(answer, list) and answer:
        answer = answer[0]
    if isinstance(answer, str):
        return answer
    text = "\n".join(_field(answer, name, str) for name in dialect.opening_fields)
    return _with_actions(dialect, answer, text)


def _step_result(dialect: Dialect, answer: Any, earned: float) -> tuple[StepResult, float]:
    """The result, and the reward of the episode so far."""
    text = _with_actions(dialect, answer, _field(answer, dialect.observation_field, str))
    reward = float(_field(answer, "reward", int, float))
    if dialect.reward_so_far:
        reward -= earned
    if _field(answer, dialect.done_field, bool):
        solved = _field(answer, dialect.solved_field, int, float) >= dialect.solved_at
        result = StepResult.at_end(reward, solved, text)
    elif dialect.truncated_field and _field(answer, dialect.truncated_field, bool):
        result = StepResult.cut_off(text, reward)
    else:
        result = StepResult.going_on(text, reward)
    return result, earned + reward


def _with_actions(dialect: Dialect, answer: Any, text: str) -> str:
    if dialect.actions_field is None:
        return text
    return f"{text}\nAvailable actions: {', '.join(map(str, _field(answer, dialect.actions_field, list)))}"


def _decoded(method: str, answer: Any, name: str) -> Any:
    try:
        return RESULTS[method].decode(_field(answer, name, list, dict))
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # a DataError here is the server's fault
        raise EnvironmentFailed(f"the server answered {name!r} malformed: {error}") from error


def _field(answer: Any, name: str, *kinds: type) -> Any:
    if not isinstance(answer, dict) or name not in answer:
        has = ", ".join(map(repr, answer)) if isinstance(answer, dict) else type(answer).__name__
        raise EnvironmentFailed(f"the server answered without {name!r}; given: {has or 'an empty object'}")
    value = answer[name]
    if type(value) not in kinds:
        allowed = " or ".join(kind.__name__ for kind in kinds)
        raise EnvironmentFailed(f"the server's {name!r} must be of type {allowed}; given: {value!r:.80}")
    return value
