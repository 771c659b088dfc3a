"""Faults on purpose, at given rates, in any environment: to see that none of them costs more than its own episode.

Invariant: which fault befalls which call follows from the seed, the task's id, the session's nonce and the number of
the call alone, so a run can be repeated; and every fault is recorded before it happens. An environment keeps its name:
chaos is a setting of whoever opens it.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import random
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, NamedTuple

from agentgym_rl.environment import Environment, StepResult
from agentgym_rl.environments.process import ProcessEnvironment
from agentgym_rl.environments.wrapper import Wrapper
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed, Manner, require_allowed_keys
from agentgym_rl.messages import Message, user
from agentgym_rl.task import Task

HUGE_CHARACTERS = 200_000
"""Length of a huge observation."""


class Fault(Enum):
    """What can befall a call."""

    CRASH = "crash"  # its worker process is killed; without one, the call fails as if it had been
    ERROR = "error"  # it raises an exception
    HANG = "hang"  # it never answers, until it is cancelled
    SLOW = "slow"  # it answers after a delay from a log-normal distribution
    GARBAGE = "garbage"  # the observation is replaced by noise, control characters or a huge text
    NAN_REWARD = "nan_reward"  # the reward is replaced by NaN
    CONNECTION_RESET = "connection_reset"  # it raises ConnectionResetError


OF_STEPS = (Fault.GARBAGE, Fault.NAN_REWARD)
"""A reset is spared these, and so is a task's prefix: a group must see one beginning or the setup is wrong."""


@dataclass(frozen=True)
class Faults:
    """How often which fault befalls a reset or a step: probabilities, at most one fault a call."""

    crash: float = 0.0
    error: float = 0.0
    hang: float = 0.0
    slow: float = 0.0
    garbage: float = 0.0
    nan_reward: float = 0.0
    connection_reset: float = 0.0
    slow_median_seconds: float = 1.0
    """Median of a slow call's delay."""
    slow_sigma: float = 1.0
    """Standard deviation of the logarithm of the delay; 0: always the median."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.seed, int):
            raise ConfigurationError(f"the seed of chaos must be a whole number; given: {self.seed!r}")
        for name, rate in self.rates.items():
            if not 0 <= rate <= 1:
                raise ConfigurationError(f"the rate of {name} must be from 0 to 1; given: {rate}")
        if math.fsum(self.rates.values()) > 1 + 1e-9:
            given = " + ".join(f"{name} {rate:g}" for name, rate in self.rates.items() if rate)
            raise ConfigurationError(f"the rates of all faults must add up to 1 at most; given: {given}")
        if not self.slow_median_seconds > 0 or not self.slow_sigma >= 0:
            raise ConfigurationError(
                "slow_median_seconds must be above 0 and slow_sigma at least 0; given: "
                f"{self.slow_median_seconds} and {self.slow_sigma}"
            )

    @property
    def rates(self) -> dict[str, float]:
        """Name of a fault -> its rate."""
        return {fault.value: getattr(self, fault.value) for fault in Fault}

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Faults:
        """Read a section of a configuration.

        Raises:
            ConfigurationError: an unknown name, no number, or a value that can't work.
        """
        require_allowed_keys(settings, [field.name for field in fields(cls)], "chaos")
        for name, value in settings.items():
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise ConfigurationError(f"{name} of chaos must be a number; given: {value!r}")
        return cls(**settings)

    @classmethod
    def parse(cls, text: str, seed: int = 0) -> Faults:
        """Read `crash=0.05,hang=0.02`; any field but the seed may be named.

        Raises:
            ConfigurationError: see `of`; or a part is not written NAME=NUMBER.
        """
        settings: dict[str, Any] = {"seed": seed}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, number = part.partition("=")
            try:
                settings[name.strip()] = float(number)
            except ValueError as error:
                raise ConfigurationError(f"rates are written NAME=NUMBER,...; given: {part!r}") from error
        return cls.of(settings)


class Injected(NamedTuple):
    """One fault that happened."""

    fault: Fault
    call: int
    """Number of the call in its session; resets and steps count, from 0."""
    turn: int | None
    """The turn whose step it befell, from the last reset; None: a reset."""


class Drawn(NamedTuple):
    """What is in store for a call."""

    fault: Fault | None
    dice: random.Random
    """For all else that is to be drawn for this call."""


def drawn(faults: Faults, task_id: str, nonce: int | str, call: int) -> Drawn:
    """The fault of one call; None: it is spared."""
    dice = random.Random(repr((faults.seed, task_id, nonce, call)))
    point = dice.random()
    for fault, rate in zip(Fault, faults.rates.values(), strict=True):
        if point < rate:
            return Drawn(fault, dice)
        point -= rate
    return Drawn(None, dice)


def chaotic(environment: Environment, faults: Faults, task_id: str, nonce: int | str) -> Environment:
    """The environment with faults injected for one session; itself where every rate is 0."""
    return Chaos(environment, faults, task_id, nonce) if any(faults.rates.values()) else environment


class Chaos(Wrapper):
    """Injects faults into the resets and steps of one session.

    Args:
        inner: the environment; one with a worker process (it has a `pid`) really crashes.
        faults: rates and seed.
        task_id: of the task that is played.
        nonce: tells the sessions of a task apart.
    """

    def __init__(self, inner: Environment, faults: Faults, task_id: str, nonce: int | str):
        super().__init__(inner)
        self._faults = faults
        self._task_id = task_id
        self._nonce = nonce
        self._calls = 0
        self._turn = self._prefix = 0
        self.injected: list[Injected] = []
        """In the order of the calls."""

    async def reset(self, task: Task) -> Sequence[Message]:
        self._turn, self._prefix = 0, len(task.prefix)
        call = self._next(None)
        await self._before("reset", call)
        return await self.inner.reset(task)

    async def step(self, action: Message) -> StepResult:
        call = self._next(self._turn)
        self._turn += 1
        await self._before("step", call)
        return _spoiled(await self.inner.step(action), call)

    def _next(self, turn: int | None) -> Drawn:
        number = self._calls
        self._calls += 1
        call = drawn(self._faults, self._task_id, self._nonce, number)
        if call.fault is None or (call.fault in OF_STEPS and (turn is None or turn < self._prefix)):
            return Drawn(None, call.dice)
        self.injected.append(Injected(call.fault, number, turn))
        return call

    async def _before(self, method: str, call: Drawn) -> None:
        if call.fault is Fault.CRASH:
            await _crash(self.inner, method)
        elif call.fault is Fault.ERROR:
            raise RuntimeError("injected error")
        elif call.fault is Fault.CONNECTION_RESET:
            raise ConnectionResetError(errno.ECONNRESET, "injected connection reset")
        elif call.fault is Fault.HANG:
            await asyncio.Event().wait()
        elif call.fault is Fault.SLOW:
            median, sigma = self._faults.slow_median_seconds, self._faults.slow_sigma
            await asyncio.sleep(call.dice.lognormvariate(math.log(median), sigma))


async def _crash(environment: Environment, method: str) -> None:
    """Kill the worker, so that the call that follows finds it dead; raise where there is none to kill."""
    while isinstance(environment, Wrapper):
        environment = environment.inner
    if isinstance(environment, ProcessEnvironment):
        await environment.start()
    pid = getattr(environment, "pid", None)
    if pid is None:
        raise EnvironmentFailed(f"injected crash in {method}", Manner.CRASHED)
    os.kill(pid, signal.SIGKILL)


def _spoiled(result: StepResult, call: Drawn) -> StepResult:
    if call.fault is Fault.GARBAGE:
        return replace(result, observation=(user(garbage(call.dice)),))
    if call.fault is Fault.NAN_REWARD:
        return replace(result, reward=math.nan)
    return result


def garbage(dice: random.Random) -> str:
    """Noise over all of Unicode (lone surrogates, too), control characters, or a huge text."""
    kind = dice.randrange(3)
    if kind == 0:
        return "".join(chr(dice.randrange(0x110000)) for _ in range(dice.randint(1, 200)))
    if kind == 1:
        return "".join(chr(dice.randrange(0x20)) for _ in range(dice.randint(1, 200)))
    pattern = "".join(chr(dice.randrange(0x20, 0x7F)) for _ in range(100))
    return pattern * (HUGE_CHARACTERS // len(pattern))
