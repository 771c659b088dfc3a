"""Policies by name, for the command line: a spec such as `expert` or `checkpoint:runs/best` -> a policy factory.

Every factory is a context manager, so that what it holds (a model in memory, a connection) is held exactly as long as
it is used.
"""

from __future__ import annotations

import importlib
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_rl.environment import Environment
from agentgym_rl.errors import ConfigurationError, did_you_mean
from agentgym_rl.evaluation.run import PolicyFactory
from agentgym_rl.policy import ExpertPolicy, HumanPolicy, Policy, RandomPolicy, ScriptedPolicy, ServerPolicy
from agentgym_rl.task import Task

CHECKPOINT_TARGET = "verl_ext.rollout.checkpoint_policy:checkpoint_policies"
"""A name only: this package does not import verl_ext, and neither torch before it is needed."""


@dataclass(frozen=True)
class Sampling:
    """How a policy that samples does so; the others take only the seed from it."""

    temperature: float = 1.0
    """0: greedy."""
    max_tokens: int = 256
    """Of one reply."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ConfigurationError(f"a temperature is at least 0 (greedy); given: {self.temperature}")
        if self.max_tokens < 1:
            raise ConfigurationError(f"max_tokens must be at least 1; given: {self.max_tokens}")


class Kind(NamedTuple):
    """One kind of policy."""

    form: str
    """How its spec is written."""
    factory: Callable[[str, Sampling], AbstractContextManager[PolicyFactory]]
    """Takes what stands behind the colon."""


def policies(spec: str, sampling: Sampling | None = None) -> AbstractContextManager[PolicyFactory]:
    """The policy factory that a spec names, to be used in a `with` statement.

    Raises:
        ConfigurationError: no such policy, or its part behind the colon is missing, superfluous or wrong.
    """
    name, _, argument = spec.partition(":")
    if name not in KINDS:
        raise ConfigurationError(f"no policy {name!r}; {did_you_mean(name, KINDS)} ({forms()})")
    kind = KINDS[name]
    if bool(argument) != (":" in kind.form):
        raise ConfigurationError(f"this policy is written {kind.form}; given: {spec!r}")
    return kind.factory(argument, sampling or Sampling())


def forms() -> str:
    """How each policy is written, in one line."""
    return ", ".join(kind.form for kind in KINDS.values())


def _episode_seed(sampling: Sampling, task: Task, episode: int) -> int:
    """Another one for each episode of each task, and the same one in each run."""
    return zlib.crc32(f"{sampling.seed}/{task.id}/{episode}".encode())


@contextmanager
def _experts(argument: str, sampling: Sampling) -> Iterator[PolicyFactory]:
    yield lambda environment, task, episode: ExpertPolicy(environment)


@contextmanager
def _random_policies(argument: str, sampling: Sampling) -> Iterator[PolicyFactory]:
    yield lambda environment, task, episode: RandomPolicy(environment, _episode_seed(sampling, task, episode))


@contextmanager
def _humans(argument: str, sampling: Sampling) -> Iterator[PolicyFactory]:
    yield lambda environment, task, episode: HumanPolicy(_ask)


def _ask(observation: str) -> str | None:
    """A line from the terminal, where the observation already stands; None at the end of input."""
    try:
        return input("> ")
    except EOFError:
        return None


@contextmanager
def _scripts(argument: str, sampling: Sampling) -> Iterator[PolicyFactory]:
    lines = [line.strip() for line in argument.split(",")]
    yield lambda environment, task, episode: ScriptedPolicy(lines)


@contextmanager
def _server_policies(argument: str, sampling: Sampling) -> Iterator[PolicyFactory]:
    model, _, url = argument.rpartition("@")
    if not model or not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"this policy is written {KINDS['server'].form}; given: {'server:' + argument!r}")
    client = server_client(url)

    def make_policy(environment: Environment, task: Task, episode: int) -> Policy:
        return ServerPolicy(
            client,
            model,
            environment,
            temperature=sampling.temperature,
            max_tokens=sampling.max_tokens,
            seed=_episode_seed(sampling, task, episode),
        )

    yield make_policy


def server_client(url: str) -> Any:
    """A client that keeps no idle connection: one would outlive the event loop that it belongs to."""
    try:
        import openai
    except ModuleNotFoundError as error:
        raise ConfigurationError(f'a server policy needs {error.name!r}: pip install "openmanus-rl[server]"') from error
    key = os.environ.get("OPENAI_API_KEY", "none")
    return openai.AsyncOpenAI(base_url=url, api_key=key, default_headers={"Connection": "close"})


@contextmanager
def _checkpoint_policies(argument: str, sampling: Sampling) -> Iterator[PolicyFactory]:
    if not (Path(argument) / "config.json").is_file():
        what = "holds no config.json" if Path(argument).is_dir() else "does not exist"
        raise ConfigurationError(f"the folder {argument!r} {what}; a checkpoint is a Hugging Face model folder")
    module, _, name = CHECKPOINT_TARGET.partition(":")
    try:
        checkpoint_policies = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"a checkpoint policy needs {error.name!r}: pip install openmanus-rl with torch and transformers"
        ) from error
    with checkpoint_policies(argument, sampling.temperature, sampling.max_tokens, sampling.seed) as make_policy:
        yield make_policy


KINDS: dict[str, Kind] = {
    "expert": Kind("expert", _experts),
    "random": Kind("random", _random_policies),
    "human": Kind("human", _humans),
    "script": Kind("script:ACTION,ACTION,...", _scripts),
    "server": Kind("server:MODEL@URL", _server_policies),
    "checkpoint": Kind("checkpoint:FOLDER", _checkpoint_policies),
}
