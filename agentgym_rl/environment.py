"""What an environment is: reset, step, close; what it promises stands in its `facts`.

Invariant: after `reset(task)` an instance's behaviour depends on the task and on the actions alone. `terminated` (the
task came to its own end) and `truncated` (a limit cut it off) are never mixed up. Constructors are cheap; whatever
costs time happens in `reset`, which runs under a deadline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.messages import Message, user
from agentgym_rl.rephrasing import Rephrasing
from agentgym_rl.task import Task
from agentgym_rl.tools import ToolSchema


@dataclass(frozen=True)
class Facts:
    """What an environment promises; `check_environment()` holds it to each line."""

    reward_range: tuple[float, float]
    """Lowest and highest reward of one step."""
    max_turns: int
    """Every episode ends by this many turns, unless the task sets its own limit."""
    expert_success: float | None = None
    """Share of tasks that `expert_action` solves at least; None: there is no expert."""
    deterministic: bool = True
    """Same task and same actions give the same episode."""
    reusable: bool = True
    """May be reset for another task; otherwise a new instance is made for each episode."""
    can_snapshot: bool = False
    """`snapshot` and `restore` work."""
    lists_actions: bool = False
    """`actions` names every action that is allowed now."""
    any_text: bool = False
    """Any text is an action, such as the answer to a question; none is refused."""
    domain: str = ""
    """What kind of task it is, such as "grid world", "text game", "tool use"."""
    source: str = ""
    licence: str = ""


@dataclass(frozen=True)
class StepResult:
    """What an environment answers to an action. Made by a named constructor that says what happened."""

    observation: tuple[Message, ...]
    reward: float
    terminated: bool
    truncated: bool
    success: bool | None = None
    """Whether the task was solved; None while it is open, or where the environment can't tell."""
    valid: bool = True
    """False: the action could not be understood; the observation says why."""
    info: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def going_on(cls, observation: str, reward: float = 0.0, valid: bool = True, **info: Any) -> StepResult:
        """The episode continues with this observation."""
        return cls((user(observation),), reward, False, False, None, valid, info)

    @classmethod
    def at_end(cls, reward: float, success: bool | None, observation: str = "", **info: Any) -> StepResult:
        """The task came to its own end."""
        seen = (user(observation),) if observation else ()
        return cls(seen, reward, True, False, success, True, info)

    @classmethod
    def cut_off(cls, observation: str = "", reward: float = 0.0, valid: bool = True, **info: Any) -> StepResult:
        """A limit of the environment ended the episode; the task was not solved by then."""
        seen = (user(observation),) if observation else ()
        return cls(seen, reward, False, True, False, valid, info)


class Environment:
    """The asynchronous interface that `play()` drives. Subclass it where the environment itself awaits."""

    facts: Facts
    instructions: str = ""
    """System prompt for tasks that bring none; may change with a reset."""
    own_process: bool = False
    """Needs a process of its own (a JVM, state in globals), whatever the isolation says."""
    tools: Sequence[ToolSchema] = ()
    """Of an instance: what the policy's server or chat template is to show, to be called by a message's `tool_calls`;
    empty where the instructions tell of the tools, or there are none; may change with a reset. Of the class: all."""
    host_arguments: frozenset[str] = frozenset()
    """Arguments of a task that name files, addresses or code. A server of ours takes them from whoever serves, never
    from a client. Of the class."""
    rephrasing: Rephrasing | None = None
    """Which parts of an observation may read otherwise; None: no word of it. Of the class."""
    task_command: Sequence[str] = ()
    """Module and options that `python -m` runs to write tasks of it, less the options that every script of
    `data_preprocess` has. Empty: `data_preprocess.NAME`, if there is one. Of the class."""

    async def reset(self, task: Task) -> Sequence[Message]:
        """Set the task up and return the first observation.

        Raises:
            ConfigurationError: the task's arguments can't work.
        """
        raise NotImplementedError

    async def step(self, action: Message) -> StepResult:
        """Carry the assistant's message out."""
        raise NotImplementedError

    async def close(self) -> None:
        """Free everything; may be called twice, and after a failure."""

    async def expert_action(self) -> str:
        """What the expert would do now (`facts.expert_success`)."""
        raise ConfigurationError(f"{type(self).__name__} has no expert")

    async def actions(self) -> Sequence[str]:
        """Every action that is allowed now (`facts.lists_actions`)."""
        raise ConfigurationError(f"{type(self).__name__} does not list its actions")

    async def snapshot(self) -> bytes:
        """The whole state of the episode (`facts.can_snapshot`)."""
        raise ConfigurationError(f"{type(self).__name__} can't be snapshot")

    async def restore(self, snapshot: bytes) -> None:
        """Go back to a snapshot of this or another instance (`facts.can_snapshot`)."""
        raise ConfigurationError(f"{type(self).__name__} can't be restored")


class BlockingEnvironment:
    """The same interface for ordinary blocking code; the registry runs it off the event loop.

    Methods and attributes mean what they mean in `Environment`.
    """

    facts: Facts
    instructions: str = ""
    own_process: bool = False
    tools: Sequence[ToolSchema] = ()
    host_arguments: frozenset[str] = frozenset()
    rephrasing: Rephrasing | None = None
    task_command: Sequence[str] = ()

    def reset(self, task: Task) -> Sequence[Message]:
        raise NotImplementedError

    def step(self, action: Message) -> StepResult:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def expert_action(self) -> str:
        raise ConfigurationError(f"{type(self).__name__} has no expert")

    def actions(self) -> Sequence[str]:
        raise ConfigurationError(f"{type(self).__name__} does not list its actions")

    def snapshot(self) -> bytes:
        raise ConfigurationError(f"{type(self).__name__} can't be snapshot")

    def restore(self, snapshot: bytes) -> None:
        raise ConfigurationError(f"{type(self).__name__} can't be restored")


class Opening(NamedTuple):
    """The messages before the first turn, those of the task's prefix too, and a fingerprint of what was observed."""

    messages: tuple[Message, ...]
    fingerprint: str


def opening(task: Task, instructions: str, observation: Sequence[Message]) -> Opening:
    """System prompt and first observation as a policy gets to see them.

    The fingerprint is the same for every trajectory of a group, or the group did not play the same task.
    """
    prompt = task.system_prompt(instructions)
    head = (Message("system", prompt),) if prompt else ()
    return Opening(head + tuple(observation), fingerprint(observation))


def fingerprint(observation: Sequence[Message]) -> str:
    """Of roles and texts; any text has one, also one with lone surrogates, which UTF-8 has no bytes for."""
    text = "\x1e".join(f"{m.role}\x1f{m.content}" for m in observation)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
