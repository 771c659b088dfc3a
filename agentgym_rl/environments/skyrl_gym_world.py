"""How an environment of skyrl-gym is made, and what it leaves unsaid: why it ended, a failed server, an expert."""

from __future__ import annotations

import importlib
import math
import socket
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_type_hints
from urllib.parse import urlsplit

from agentgym_rl.errors import ConfigurationError, Manner, ToolFailed, did_you_mean, require_allowed_keys

INSTALL = (
    'pip install "openmanus-rl[skyrl-gym]", or name an interpreter that has it: '
    "OPENMANUS_PYTHON_SKYRL_GYM=/path/to/python"
)
REACH_SECONDS = 5.0
"""Within these, a retrieval server must take a connection."""

_SEARCH_FAILED = '{"result": "Search error: '
"""How the package's search tool says that its server failed; what a document quotes would be escaped."""
_EXPERTS = {
    "aime": "Answer: {}",
    "gsm8k": "#### {}",
    "gsm8k_multi_turn": "#### {}",
    "search": "<answer>{}</answer>",
    "searchcode": "<solution>#### {}</solution>",
    "text2sql": "<think>The query is known.</think><solution>{}</solution>",
}
"""The reply that gives the ground truth as the answer."""


def make_world(name: str, config: Mapping[str, Any], extras: Mapping[str, Any]) -> Any:
    """One of skyrl-gym's registered environments.

    Args:
        name: its id, such as "text2sql"; "module:id" imports the module that registers it.
        config: its `env_config`; what is left out has the environment's own default.
        extras: what its data set's row says beside the prompt.

    Raises:
        ConfigurationError: skyrl-gym is not installed, has no such environment, or can't make it of these.
        ToolFailed: the retrieval server that it asks can't be reached.
    """
    registration = _registration()
    module, _, own_name = name.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigurationError(f"the module of {name!r} can't be imported: {error}") from error
    if own_name not in registration.registry:
        known = did_you_mean(own_name, registration.registry)
        raise ConfigurationError(f"skyrl-gym has no environment {own_name!r}; {known}")
    try:
        settings = _settings(registration, own_name, config)
        world = registration.make(own_name, env_config=settings, extras=dict(extras))
    except ConfigurationError:
        raise
    except (AssertionError, AttributeError, LookupError, NotImplementedError, OSError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ConfigurationError(
            f"skyrl-gym can't make {own_name!r} with config {dict(config)} and the extras "
            f"{', '.join(extras) or '(none)'}: {why:.300}"
        ) from error
    for url in _search_urls(world):
        _require_reachable(url)
    return world


def limit_ended(world: Any, reply: str) -> bool:
    """Whether an episode that is done came to its limit of turns, and not to an end of its own.

    skyrl-gym does not tell them apart. Its environments with tools ask their `_is_done` about the limit and the reply.
    """
    if world.turns < world.max_turns:
        return False
    if not hasattr(world, "_is_done"):
        return True
    limit, world.max_turns = world.max_turns, math.inf
    try:
        return not world._is_done(reply)
    finally:
        world.max_turns = limit


def require_search_answered(text: str) -> None:
    """
    Raises:
        ToolFailed: an observation says that the retrieval server gave no answer.
    """
    if _SEARCH_FAILED in text:
        raise ToolFailed(f"the retrieval server failed: {text.partition(_SEARCH_FAILED)[2]:.300}")


def expert_reply(name: str, extras: Mapping[str, Any]) -> str:
    """The reply that solves a task of the package's own environments.

    Raises:
        ConfigurationError: the environment has no expert.
    """
    if name not in _EXPERTS:
        raise ConfigurationError(f"skyrl-gym's {name!r} has no expert; those with one: {', '.join(_EXPERTS)}")
    truth = extras["reward_model" if name == "aime" else "reward_spec"]["ground_truth"]
    if name == "search":
        truth = truth["target"] if isinstance(truth["target"], str) else truth["target"][0]
    return _EXPERTS[name].format(truth)


@cache
def _registration() -> Any:
    try:
        return importlib.import_module("skyrl_gym.envs.registration")
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"skyrl-gym needs {str(error.name).partition('.')[0]!r}: {INSTALL}") from error


def _settings(registration: Any, name: str, config: Mapping[str, Any]) -> Any:
    """The `env_config` that a trainer would hand over: the defaults that the environment declares, and `config`."""
    from omegaconf import OmegaConf

    creator = registration.registry[name].entry_point
    creator = registration.load_env_creator(creator) if isinstance(creator, str) else creator
    declared = get_type_hints(creator.__init__).get("env_config")
    defaults = next((kind for kind in (declared, *get_args(declared)) if is_dataclass(kind)), None)
    if defaults is None:
        return OmegaConf.create(dict(config))
    require_allowed_keys(config, [field.name for field in fields(defaults)], f"the config of {name!r}")
    return OmegaConf.merge(OmegaConf.structured(defaults), dict(config))


def _search_urls(world: Any) -> list[str]:
    """Of the retrieval servers that its tools ask."""
    return [group.search_url for group in getattr(world, "tool_groups", ()) if hasattr(group, "search_url")]


def _require_reachable(url: str) -> None:
    """Known at once: the package would try ten times, for 45 seconds, and then go on without."""
    parts = urlsplit(url)
    if parts.hostname is None:
        raise ConfigurationError(f"a retrieval server's address is a URL; given: {url!r}")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname, port), REACH_SECONDS).close()
    except OSError as error:
        raise ToolFailed(f"the retrieval server {url} can't be reached: {error}", Manner.CRASHED) from error
