"""Small real environments and policies for the tests: two that keep the contract, and each fault once.

`Guess` (blocking) and `Countdown` (awaiting) are whole environments; every other class breaks one thing of one of them.
`register_all()` gives each the name "double-<class name in lower case>".
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from agentgym_rl.environment import BlockingEnvironment, Environment, Facts, StepResult
from agentgym_rl.environments import registry
from agentgym_rl.errors import ConfigurationError, DataError, Manner, ToolFailed
from agentgym_rl.messages import Message, user
from agentgym_rl.task import Task
from agentgym_rl.tools import ToolSchema


class Guess(BlockingEnvironment):
    """Find the number from 1 to 8 that the task's seed draws.

    Actions: a number. Observations: "higher" or "lower". Reward: 1 when found. End: found, or after max_turns guesses.
    The expert halves the interval, so it needs four guesses at most.
    """

    facts = Facts(
        reward_range=(0.0, 1.0), max_turns=6, expert_success=1.0, can_snapshot=True, lists_actions=True, source="own"
    )
    instructions = "Find the number."

    def reset(self, task: Task) -> Sequence[Message]:
        self.low, self.high, self.turns = 1, 8, 0
        self.max_turns = task.arguments.get("max_turns", self.facts.max_turns)
        if self.max_turns < 1:
            raise ConfigurationError(f"max_turns must be at least 1; given: {self.max_turns}")
        self.secret = self.draw(task)
        return [user("Guess a number from 1 to 8.")]

    def draw(self, task: Task) -> int:
        return random.Random(task.seed).randint(1, 8)

    def step(self, action: Message) -> StepResult:
        self.turns += 1
        if action.content not in self.actions():
            return self.go_on(f"Say a number from {self.low} to {self.high}.", valid=False)
        guess = int(action.content)
        if guess == self.secret:
            return StepResult.at_end(1.0, True, "found")
        if guess < self.secret:
            self.low = guess + 1
            return self.go_on("higher")
        self.high = guess - 1
        return self.go_on("lower")

    def go_on(self, observation: str, valid: bool = True) -> StepResult:
        if self.turns >= self.max_turns:
            return StepResult.cut_off(observation, valid=valid)
        return StepResult.going_on(observation, valid=valid)

    def actions(self) -> Sequence[str]:
        return [str(number) for number in range(self.low, self.high + 1)]

    def expert_action(self) -> str:
        return str((self.low + self.high) // 2)

    def snapshot(self) -> bytes:
        return json.dumps(vars(self)).encode()

    def restore(self, snapshot: bytes) -> None:
        vars(self).update(json.loads(snapshot))


class Countdown(Environment):
    """Take 1 or 2 from a number until it is 0; awaits between the lines.

    Observations: what is left. Reward: -1 a step. End: at 0, which solves the task, or below, which does not.
    """

    facts = Facts(reward_range=(-1.0, 0.0), max_turns=5, expert_success=1.0)

    async def reset(self, task: Task) -> Sequence[Message]:
        await asyncio.sleep(0)
        self.left, self.turns = 3 + task.seed % 3, 0
        return [user(f"{self.left} left")]

    async def step(self, action: Message) -> StepResult:
        await asyncio.sleep(0)
        self.turns += 1
        if action.content not in ("1", "2"):
            if self.turns >= self.facts.max_turns:
                return StepResult.cut_off("say 1 or 2", reward=-1.0, valid=False)
            return StepResult.going_on("say 1 or 2", reward=-1.0, valid=False)
        self.left -= int(action.content)
        if self.left <= 0:
            return StepResult.at_end(-1.0, self.left == 0)
        if self.turns >= self.facts.max_turns:
            return StepResult.cut_off(reward=-1.0)
        return StepResult.going_on(f"{self.left} left", reward=-1.0)

    async def expert_action(self) -> str:
        return "2" if self.left >= 2 else "1"


# Faults of reset


class RaisesInReset(Guess):
    def reset(self, task: Task) -> Sequence[Message]:
        raise ValueError("the level file is broken")


class ExitsInReset(Guess):
    def reset(self, task: Task) -> Sequence[Message]:
        print("no room left", file=sys.stderr, flush=True)
        os._exit(3)


class HangsInReset(Countdown):
    async def reset(self, task: Task) -> Sequence[Message]:
        await asyncio.Event().wait()
        return []


class ReturnsNothingFromReset(Guess):
    def reset(self, task: Task) -> Sequence[Message]:
        return None  # type: ignore[return-value]


# Faults of step


class Raises(Guess):
    """Raises what the task's argument names."""

    errors = {
        "ValueError": ValueError("seven"),
        "StopIteration": StopIteration("seven"),
        "SystemExit": SystemExit(7),
        "ConfigurationError": ConfigurationError("seven"),
        "DataError": DataError("seven"),
        "ToolFailed": ToolFailed("seven", Manner.TIMED_OUT),
    }

    def reset(self, task: Task) -> Sequence[Message]:
        self.error = self.errors[task.arguments.get("error", "ValueError")]
        return super().reset(task)

    def step(self, action: Message) -> StepResult:
        raise self.error


class RaisesAwaiting(Countdown):
    async def step(self, action: Message) -> StepResult:
        raise Raises.errors[action.content]


class Hangs(Guess):
    """Blocks its thread for a minute."""

    def step(self, action: Message) -> StepResult:
        time.sleep(60)
        return super().step(action)


class HangsAwaiting(Countdown):
    async def step(self, action: Message) -> StepResult:
        await asyncio.Event().wait()
        return await super().step(action)


class IgnoresCancellation(Countdown):
    """Hangs until `released`, whoever cancels it."""

    released = False

    @classmethod
    async def release(cls) -> None:
        """Let the steps that are under way end, and later ones hang again."""
        cls.released = True
        await asyncio.sleep(0.1)
        cls.released = False

    async def step(self, action: Message) -> StepResult:
        while not type(self).released:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return await super().step(action)


class CancelsItself(Countdown):
    async def step(self, action: Message) -> StepResult:
        raise asyncio.CancelledError


class Crashes(Guess):
    """Ends its process the way the action says."""

    def step(self, action: Message) -> StepResult:
        print("about to end", file=sys.stderr, flush=True)
        if action.content == "segfault":
            ctypes.string_at(0)
        if action.content == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if action.content == "exit":
            os._exit(3)
        if action.content == "sys.exit":
            sys.exit(4)
        return super().step(action)


class CrashesAtOnce(Guess):
    """Ends its process whatever the action says."""

    def step(self, action: Message) -> StepResult:
        os._exit(3)


class ReturnsNothing(Guess):
    def step(self, action: Message) -> StepResult:
        return None  # type: ignore[return-value]


class NanReward(Guess):
    def step(self, action: Message) -> StepResult:
        return StepResult.at_end(float("nan"), True)


# What an environment may do to its process


class Prints(Guess):
    """Writes to descriptor 1 as a library in C would, reads descriptor 0, and says both in Python, too."""

    def step(self, action: Message) -> StepResult:
        os.write(1, b'{"result": "not the protocol"}\n')
        print("hello", flush=True)
        read = sys.stdin.read()
        return StepResult.at_end(1.0, True, f"read {read!r}")


class Tells(Guess):
    """Answers with what the action asks about its process."""

    def step(self, action: Message) -> StepResult:
        told = {
            "pid": os.getpid(),
            "executable": sys.executable,
            "hash": hash("agent"),
            "variable": os.environ.get("DOUBLE"),
            "python_path": os.environ.get("PYTHONPATH"),
        }
        return StepResult.going_on(str(told[action.content]))


class Huge(Guess):
    """Answers as many characters as the action says."""

    def step(self, action: Message) -> StepResult:
        return StepResult.going_on("ü" * int(action.content))


class HasChildren(Guess):
    """Starts a process that outlives it, and says its pid; then it hangs."""

    def step(self, action: Message) -> StepResult:
        if action.content == "hang":
            time.sleep(60)
        child = subprocess.Popen(["sleep", "600"])
        return StepResult.going_on(str(child.pid))


class Everything(Environment):
    """Gives every field of every type that crosses a pipe, and echoes the action's tool calls."""

    facts = Facts((-2.0, float("inf")), 9, None, False, False, False, False, True, source="own", licence="MIT")
    instructions = "Say everything."
    tools = (ToolSchema("say", "Say it.", {"type": "object", "properties": {"it": {"type": "array"}}}),)

    async def reset(self, task: Task) -> Sequence[Message]:
        self.instructions = "Go on."
        self.tools = (*type(self).tools, ToolSchema("go_on", "", {}))
        return [Message("tool", json.dumps(dict(task.arguments)), (), "call-1"), user("zwölf\n\u2028")]

    async def step(self, action: Message) -> StepResult:
        seen = (Message("tool", "1", (), "a"), Message("assistant", "", action.tool_calls), user(action.content))
        return StepResult(seen, -1.5, False, True, None, False, {"score": [1, {"a": None}]})


class InfoIsNoJson(Guess):
    def step(self, action: Message) -> StepResult:
        return StepResult.going_on("fine", score=object())


class Recorder(Guess):
    """Counts its closes on the class."""

    closes = 0

    def close(self) -> None:
        type(self).closes += 1


class HangsInClose(Countdown):
    async def close(self) -> None:
        await asyncio.Event().wait()


# One broken rule of the contract each


class NoFacts(Guess):
    facts = None  # type: ignore[assignment]


class WantsArguments(Guess):
    def __init__(self, level: str):
        self.level = level


class ReversedRange(Guess):
    facts = Facts(reward_range=(1.0, 0.0), max_turns=6)


class NoTurns(Guess):
    facts = Facts(reward_range=(0.0, 1.0), max_turns=0)


class OverclaimingFacts(Guess):
    facts = Facts(reward_range=(0.0, 1.0), max_turns=6, expert_success=90.0)


class EmptyOpening(Guess):
    def reset(self, task: Task) -> Sequence[Message]:
        super().reset(task)
        return [user("  ")]


class SystemOpening(Guess):
    def reset(self, task: Task) -> Sequence[Message]:
        return [Message("system", "Find it."), *super().reset(task)]


class SilentTurns(Guess):
    def go_on(self, observation: str, valid: bool = True) -> StepResult:
        return super().go_on("" if valid else observation, valid)


class RewardTooHigh(Guess):
    facts = Facts(reward_range=(0.0, 0.5), max_turns=6, expert_success=1.0)


class NeverEnds(Guess):
    def go_on(self, observation: str, valid: bool = True) -> StepResult:
        return StepResult.going_on(observation, valid=valid)


class InvalidTurnsAreFree(Guess):
    def step(self, action: Message) -> StepResult:
        result = super().step(action)
        if not result.valid:
            self.turns -= 1
            return StepResult.going_on("a number, please", valid=False)
        return result


class BothEndings(Guess):
    def step(self, action: Message) -> StepResult:
        result = super().step(action)
        return StepResult(result.observation, result.reward, True, True, True) if result.success else result


class Unseeded(Guess):
    draws = 0

    def draw(self, task: Task) -> int:
        type(self).draws += 1
        return 1 + type(self).draws % 8


class DifferentOpening(Guess):
    resets = 0

    def reset(self, task: Task) -> Sequence[Message]:
        super().reset(task)
        type(self).resets += 1
        return [user(f"Game number {type(self).resets}.")]


class DriftingReward(Guess):
    resets = 0

    def reset(self, task: Task) -> Sequence[Message]:
        type(self).resets += 1
        return super().reset(task)

    def step(self, action: Message) -> StepResult:
        result = super().step(action)
        return replace(result, reward=1 / type(self).resets) if result.success else result


class HonestlyRandom(DifferentOpening):
    facts = Facts(reward_range=(0.0, 1.0), max_turns=6, expert_success=1.0, deterministic=False)


class SharedSecret(Guess):
    """Keeps its secret on the class: alone it plays right."""

    def reset(self, task: Task) -> Sequence[Message]:
        seen = super().reset(task)
        SharedSecret.secret = self.__dict__.pop("secret")
        return seen


class OnlyFew(Guess):
    """Two instances at once are fine, more are not."""

    playing = 0

    def reset(self, task: Task) -> Sequence[Message]:
        if "secret" not in vars(self):
            if OnlyFew.playing == 2:
                raise RuntimeError("no free slot")
            OnlyFew.playing += 1
        return super().reset(task)

    def restore(self, snapshot: bytes) -> None:
        OnlyFew.playing += "secret" not in vars(self)
        super().restore(snapshot)

    def close(self) -> None:
        OnlyFew.playing -= vars(self).pop("secret", None) is not None


class ClosesOnce(Countdown):
    closed = False

    async def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


class ClosesOnlyWhatWasReset(Guess):
    def close(self) -> None:
        del self.secret


class ClosesOnlyWhatWorked(Guess):
    failed = False

    def step(self, action: Message) -> StepResult:
        self.failed = "secret" not in vars(self)
        return super().step(action)

    def close(self) -> None:
        if self.failed:
            raise RuntimeError("it is broken")


class MustBeFinished(Guess):
    def reset(self, task: Task) -> Sequence[Message]:
        if getattr(self, "turns", 0) and not self.over:
            raise RuntimeError("finish the last one first")
        return super().reset(task)

    def step(self, action: Message) -> StepResult:
        result = super().step(action)
        self.over = result.terminated or result.truncated
        return result


class ResetsOnce(Guess):
    def reset(self, task: Task) -> Sequence[Message]:
        if "secret" in vars(self):
            raise RuntimeError("make a new one")
        return super().reset(task)


class ResetsOnceAndSaysSo(ResetsOnce):
    facts = Facts(reward_range=(0.0, 1.0), max_turns=6, expert_success=1.0, reusable=False)


class KeepsOldBounds(Guess):
    def reset(self, task: Task) -> Sequence[Message]:
        low = getattr(self, "low", 1)
        seen = super().reset(task)
        self.low = low
        return seen


class PoorExpert(Guess):
    def expert_action(self) -> str:
        return str(self.low)


class ForgetfulSnapshot(Guess):
    """Leaves the secret out of its snapshot."""

    def snapshot(self) -> bytes:
        return json.dumps({"low": 1, "high": 8, "turns": 0, "max_turns": self.max_turns, "secret": 0}).encode()


class RestoresOnlyItself(Guess):
    """Its snapshot names a state that lies in the instance."""

    def snapshot(self) -> bytes:
        self.kept = super().snapshot()
        return b"kept"

    def restore(self, snapshot: bytes) -> None:
        super().restore(self.kept)


class TextSnapshot(Guess):
    def snapshot(self) -> bytes:
        return super().snapshot().decode()  # type: ignore[return-value]


class ListsTooMuch(Guess):
    facts = Facts(reward_range=(0.0, 1.0), max_turns=6, lists_actions=True)

    def actions(self) -> Sequence[str]:
        return [*super().actions(), "0"]

    def step(self, action: Message) -> StepResult:
        if action.content == "0":
            self.turns += 1
            return self.go_on("0 is no number from 1 to 8", valid=False)
        return super().step(action)


class ListsNothing(Guess):
    facts = Facts(reward_range=(0.0, 1.0), max_turns=6, lists_actions=True)

    def actions(self) -> Sequence[str]:
        return []


class RaisesOnGarbage(Guess):
    def step(self, action: Message) -> StepResult:
        int(action.content)
        return super().step(action)


class TakesGarbage(Guess):
    def go_on(self, observation: str, valid: bool = True) -> StepResult:
        return super().go_on(observation, valid=True)


class RefusesWithoutAWord(Guess):
    def go_on(self, observation: str, valid: bool = True) -> StepResult:
        return super().go_on(observation if valid else "", valid)


class GarbageSolves(Guess):
    def step(self, action: Message) -> StepResult:
        return super().step(action) if action.content.isdigit() else StepResult.at_end(1.0, True)


class AnyText(TakesGarbage):
    facts = replace(TakesGarbage.facts, any_text=True)


class AnyTextSolves(GarbageSolves):
    facts = replace(GarbageSolves.facts, any_text=True)


def name_of(double: type) -> str:
    return f"double-{double.__name__.lower()}"


def task_for(double: type, id: str = "t", seed: int = 0, **arguments: object) -> Task:
    return Task(id, name_of(double), arguments, seed=seed)


def tasks_for(double: type, count: int = 3) -> list[Task]:
    return [task_for(double, f"t{seed}", seed) for seed in range(count)]


def register_all() -> None:
    for thing in list(globals().values()):
        if isinstance(thing, type) and thing.__module__ == __name__:
            registry.register(name_of(thing), f"{__name__}:{thing.__name__}")
