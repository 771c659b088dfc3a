"""Where the environments of one kind live on a cluster, and how many may be lent there. Imports no Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from agentgym_rl.environments.registry import Isolation
from agentgym_rl.errors import ConfigurationError


@dataclass(frozen=True)
class Placement:
    """Of one kind of environment."""

    actors: int = 1
    """Ray actors, spread over the nodes that have room for them."""
    slots_per_actor: int = 32
    """Instances that an actor lends at a time."""
    num_cpus: float = 1.0
    """CPUs that Ray reserves for an actor."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """Custom Ray resources that an actor takes, e.g. {browsers: 1}: it lives on nodes that have them."""
    isolation: Isolation = "thread"
    """Where its environments run: in the actor's process, or each in a worker process of its own."""

    def __post_init__(self) -> None:
        for name in ("actors", "slots_per_actor"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"a placement's {name} must be at least 1; given: {getattr(self, name)}")
        for name, amount in {"num_cpus": self.num_cpus, **self.resources}.items():
            if amount < 0:
                raise ConfigurationError(f"a placement's {name} must be at least 0; given: {amount}")
        if self.isolation not in get_args(Isolation):
            raise ConfigurationError(
                f"a placement's isolation must be one of {', '.join(get_args(Isolation))}; given: {self.isolation!r}"
            )
