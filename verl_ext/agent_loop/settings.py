"""The `agentgym` section of a training configuration: what our agent loop and trainer read.

Everything has a default, so a stock verl command needs none of it; a recipe states what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_args

from omegaconf import DictConfig, OmegaConf

from agentgym_rl.concurrency import reply_limit
from agentgym_rl.environments.chaos import Faults
from agentgym_rl.environments.registry import Isolation
from agentgym_rl.episode import Limits
from agentgym_rl.errors import ConfigurationError, require_allowed_keys
from agentgym_rl.failure_policy import FailurePolicy
from agentgym_rl.horizon import Horizon
from agentgym_rl.rewards import Split, Weights, split
from agentgym_rl.truncation import Truncations
from verl_ext.agent_loop.history import History
from verl_ext.agent_loop.spares import Oversampling
from verl_ext.agent_loop.summary import Summary
from verl_ext.curriculum import Curriculum
from verl_ext.dynamic_sampling import DynamicSampling
from verl_ext.ray_pool_placement import Placement
from verl_ext.watch import Watch


@dataclass(frozen=True)
class Settings:
    """See each field; unknown keys are an error."""

    rewards: Weights = field(default_factory=lambda: {"outcome": 1.0})
    """Reward name -> weight, or {weight: w, ...} with arguments; the sum is the trajectory's reward. One that compares
    the sessions of a group, such as `relative_judge`, is for training alone: validation has the sum of the others."""
    limits: Limits = field(default_factory=Limits)
    """Turns and deadlines of an episode."""
    turn_tokens: int = 1024
    """Most tokens of one reply."""
    history: History = field(default_factory=History)
    """How much of its own past the policy is shown."""
    horizon: Horizon | None = None
    """Turns of a training episode by step, e.g. {0: 4, 100: 8}; null: `limits.max_turns` from the start."""
    truncations: Truncations = field(default_factory=Truncations)
    """What an episode that a limit cut off counts as."""
    oversampling: Oversampling = field(default_factory=Oversampling)
    """Sessions among `rollout.n` that stand in for others."""
    concurrent_replies: int | str | None = None
    """Most calls of one agent loop worker to the rollout server at a time; "adaptive": as many as that takes well."""
    curriculum: Curriculum | None = None
    """Which tasks are drawn more often; null: all alike, shuffled."""
    dynamic_sampling: DynamicSampling = field(default_factory=DynamicSampling)
    """What `algorithm.filter_groups.enable` may cost."""
    watch: Watch = field(default_factory=Watch)
    """Signs of collapse, and what is done about one."""
    max_turn_logprob_gap: float | None = None
    """Refuse a step with a turn whose mean |log p_trainer - log p_rollout| a token is larger, in nats; null: never."""
    failures: FailurePolicy = field(default_factory=FailurePolicy)
    """What is done about failed episodes, and how many a run may lose."""
    chaos: Faults = field(default_factory=Faults)
    """Faults to inject, to see that the training survives them; none by default."""
    environment_slots: int = 64
    """Environments of a kind that one agent loop worker plays at a time; further sessions wait."""
    pool: Mapping[str, Placement] = field(default_factory=dict)
    """Environment -> where it lives on the cluster, as Ray actors. Empty: in the processes of the agent loops."""
    isolation: Isolation = "thread"
    """Where blocking environments run: "thread", or "process" for those that may hang or crash."""

    def __post_init__(self) -> None:
        if self.turn_tokens < 1:
            raise ConfigurationError(f"agentgym.turn_tokens must be at least 1; given: {self.turn_tokens}")
        if not isinstance(self.environment_slots, int) or self.environment_slots < 1:
            raise ConfigurationError(
                f"agentgym.environment_slots must be a whole number above 0; given: {self.environment_slots!r}"
            )
        if self.isolation not in get_args(Isolation):
            raise ConfigurationError(
                f"agentgym.isolation must be one of {', '.join(get_args(Isolation))}; given: {self.isolation!r}"
            )
        if self.max_turn_logprob_gap is not None and not self.max_turn_logprob_gap > 0:
            raise ConfigurationError(
                f"agentgym.max_turn_logprob_gap must be above 0, or null; given: {self.max_turn_logprob_gap}"
            )
        split(self.rewards)
        reply_limit(self.concurrent_replies)

    @property
    def split_rewards(self) -> Split:
        """The rewards of a session alone, and those that compare it with its siblings."""
        return split(self.rewards)

    @classmethod
    def of(cls, config: DictConfig) -> Settings:
        """Read the section of a whole training configuration.

        Raises:
            ConfigurationError: an unknown key, or a value that can't work.
        """
        section: dict[str, Any] = OmegaConf.to_container(config.get("agentgym") or OmegaConf.create(), resolve=True)
        require_allowed_keys(section, [f.name for f in fields(cls)], "the section agentgym")
        try:
            history = section["history"] = dict(section.get("history") or {})
            if history.get("summary") is not None:
                history["summary"] = _made(Summary, history["summary"], "agentgym.history.summary")
            for name, kind in _SECTIONS.items():
                section[name] = _made(kind, section.get(name) or {}, f"agentgym.{name}")
            section["pool"] = {
                kind: _made(Placement, given or {}, f"agentgym.pool.{kind}")
                for kind, given in (section.get("pool") or {}).items()
            }
            section["horizon"] = Horizon(section["horizon"]) if section.get("horizon") else None
            if section.get("curriculum") is not None:
                section["curriculum"] = _made(Curriculum, section["curriculum"], "agentgym.curriculum")
            section["chaos"] = Faults.of(section.get("chaos") or {})
            return cls(**section)
        except TypeError as error:
            raise ConfigurationError(f"the section agentgym has a value of a wrong type: {error}") from error


_SECTIONS: dict[str, type] = {
    "limits": Limits,
    "history": History,
    "truncations": Truncations,
    "oversampling": Oversampling,
    "dynamic_sampling": DynamicSampling,
    "watch": Watch,
    "failures": FailurePolicy,
}


def _made(kind: type, section: Mapping[str, Any], name: str) -> Any:
    require_allowed_keys(section, [f.name for f in fields(kind)], f"the section {name}")
    return kind(**section)
