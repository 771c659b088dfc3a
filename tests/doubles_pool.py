"""Environments for the pool's tests: they take what is not theirs, or do what a test tells them and remember it."""

import asyncio
import subprocess
import threading
from dataclasses import replace

import psutil
import pytest
from doubles import Countdown, Guess, name_of, task_for

from agentgym_rl.environment import StepResult
from agentgym_rl.environments import registry
from agentgym_rl.episode import play
from agentgym_rl.messages import Message
from agentgym_rl.policy import ScriptedPolicy


class Takes(Guess):
    """Takes what the action says; any other action is a guess."""

    def step(self, action: Message) -> StepResult:
        what, _, amount = action.content.partition(" ")
        if what == "memory":
            self.taken = b"x" * (int(amount) * 2**20)
            return self.go_on("taken")
        if what == "processes":
            return self.go_on(" ".join(str(_sleeper().pid) for _ in range(int(amount))))
        if what == "detached":
            return self.go_on(" ".join(str(_sleeper(start_new_session=True).pid) for _ in range(int(amount))))
        while what == "forever":
            pass
        return super().step(action)


def _sleeper(**options: bool) -> subprocess.Popen:
    return subprocess.Popen(["sleep", "600"], **options)


class Blocks(Guess):
    """Blocks its thread until the class is opened."""

    opened = threading.Event()

    def step(self, action: Message) -> StepResult:
        self.opened.wait(30)
        return super().step(action)


class Puppet(Countdown):
    """Hangs or raises when told to; knows how often it was closed."""

    made: list["Puppet"] = []

    def __init__(self):
        self.closes = 0
        self.hanging = False
        Puppet.made.append(self)

    async def step(self, action: Message) -> StepResult:
        if action.content == "hang":
            await self.hang()
        if action.content == "raise":
            raise ValueError("as told")
        return await super().step(action)

    async def hang(self) -> None:
        self.hanging = True
        try:
            await asyncio.Event().wait()
        finally:
            self.hanging = False

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closes += 1


class OtherPuppet(Puppet):
    pass


class ThirdPuppet(Puppet):
    pass


class OncePuppet(Puppet):
    facts = replace(Puppet.facts, reusable=False)


class CrampedPuppet(Puppet):
    """Does not even get made."""

    def __init__(self):
        raise OSError("no room")


def register_all() -> None:
    for double in (Takes, Blocks, Puppet, OtherPuppet, ThirdPuppet, OncePuppet, CrampedPuppet):
        registry.register(f"double-{double.__name__.lower()}", f"{__name__}:{double.__name__}")


async def settle(rounds=20):
    for _ in range(rounds):
        await asyncio.sleep(0)


async def until(condition):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it never happened")


def stats(pool, double):
    return pool.statistics()[name_of(double)]


async def played(pool, double, *lines, seconds=None, limits=None):
    """One episode in a lease of its own."""
    async with pool.lease(name_of(double), seconds) as environment:
        return await play(ScriptedPolicy(lines), environment, task_for(double), limits)


def inner(environment):
    return environment._inner


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
