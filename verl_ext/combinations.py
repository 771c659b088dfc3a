"""Settings that can't work together, found before anything starts: each would train on something else than it says."""

from __future__ import annotations

from omegaconf import DictConfig
from verl.trainer.ppo.core_algos import AdvantageEstimator

from agentgym_rl.errors import ConfigurationError
from verl_ext.agent_loop.settings import Settings

_OF_VERL = frozenset(estimator.value for estimator in AdvantageEstimator)


def require_workable(config: DictConfig, settings: Settings, mode: str) -> None:
    """Hold a configuration to what its parts need of each other.

    Args:
        config: of the whole training.
        settings: its section `agentgym`.
        mode: verl's, "sync" or "colocate_async".

    Raises:
        ConfigurationError: names the two that clash.
    """
    rollout, estimator = config.actor_rollout_ref.rollout, config.algorithm.adv_estimator
    bypassed = config.algorithm.get("rollout_correction", {}).get("bypass_mode", False)
    if settings.history.splits and estimator in _OF_VERL:
        raise ConfigurationError(
            f"agentgym.history may split a session into several rows, and verl's estimator {estimator!r} does not put "
            "them together: choose one of verl_ext.advantages.registry, e.g. trajectory_grpo"
        )
    if settings.oversampling.spares >= rollout.n:
        raise ConfigurationError(
            f"agentgym.oversampling.spares must be below rollout.n, {rollout.n}; given: {settings.oversampling.spares}"
        )
    if mode == "colocate_async" and not rollout.calculate_log_probs:
        raise ConfigurationError(
            "trainer_mode=agentgym_async weighs tokens by their log-probs in the rollout: rollout.calculate_log_probs "
            "must be true"
        )
    if mode == "colocate_async" and settings.watch.action == "rollback":
        raise ConfigurationError(
            "agentgym.watch.action=rollback needs trainer.v1.trainer_mode=agentgym: with agentgym_async there are "
            "always sessions under way, which can't go back"
        )
    if settings.max_turn_logprob_gap is not None and (bypassed or not rollout.calculate_log_probs):
        raise ConfigurationError(
            "agentgym.max_turn_logprob_gap compares the trainer's log-probs with the rollout's: it needs "
            "rollout.calculate_log_probs=true and rollout_correction.bypass_mode=false"
        )
    bounds_entropy = settings.watch.min_entropy is not None or settings.watch.max_entropy is not None
    if bounds_entropy and bypassed:
        raise ConfigurationError("agentgym.watch's bounds of entropy need rollout_correction.bypass_mode=false")
