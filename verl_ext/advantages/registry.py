"""Name in `algorithm.adv_estimator` -> estimator, registered with verl, whose rows it turns into trajectories.

Settings stand in `algorithm.advantage`, beside `loss_weight`; those called `gamma`, `lam` and `normalise` are verl's
own `algorithm.gamma`, `algorithm.lam` and `algorithm.norm_adv_by_std_in_grpo`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from agentgym_rl.errors import ConfigurationError, did_you_mean, require_allowed_keys
from verl_ext.advantages.batch import Estimator
from verl_ext.advantages.loss_weights import LossWeight, loss_weights
from verl_ext.advantages.rows import joined

ESTIMATORS = {
    "trajectory_grpo": "verl_ext.advantages.grpo:TrajectoryGrpo",
    "dr_grpo": "verl_ext.advantages.grpo:DrGrpo",
    "trajectory_rloo": "verl_ext.advantages.rloo:TrajectoryRloo",
    "trajectory_reinforce_pp": "verl_ext.advantages.reinforce_pp:TrajectoryReinforcePlusPlus",
    "trajectory_reinforce_pp_baseline": "verl_ext.advantages.reinforce_pp:TrajectoryReinforcePlusPlusBaseline",
    "maxrl": "verl_ext.advantages.maxrl:MaxRl",
    "pass_at_k": "verl_ext.advantages.pass_at_k:PassAtK",
    "gigpo": "verl_ext.advantages.gigpo:GiGpo",
    "turn_grpo": "verl_ext.advantages.turn_grpo:TurnGrpo",
    "turn_returns": "verl_ext.advantages.turn_returns:TurnReturns",
    "trajectory_gae": "verl_ext.advantages.gae:TrajectoryGae",
    "turn_gae": "verl_ext.advantages.turn_gae:TurnGae",
}
_OF_VERL = {"gamma": ("gamma", 1.0), "lam": ("lam", 1.0), "normalise": ("norm_adv_by_std_in_grpo", True)}
"""Setting of an estimator -> key of verl's section `algorithm` and its default there."""


def register() -> None:
    """Make every name known to verl."""
    for name in ESTIMATORS:
        register_adv_est(name)(_function(name))


def estimator(name: str, algorithm: Mapping[str, Any]) -> Estimator:
    """The estimator of a configuration.

    Args:
        name: one of `ESTIMATORS`.
        algorithm: verl's section of that name.

    Raises:
        ConfigurationError: a setting that this estimator does not have, or a value that can't work.
    """
    module, _, kind_name = ESTIMATORS[name].partition(":")
    kind = getattr(importlib.import_module(module), kind_name)
    names = [field.name for field in fields(kind)]
    section = {key: value for key, value in _section(algorithm).items() if key != "loss_weight"}
    own = [field for field in names if field not in _OF_VERL]
    require_allowed_keys(section, own, f"the section algorithm.advantage for {name}")
    shared = {field: algorithm.get(*_OF_VERL[field]) for field in names if field in _OF_VERL}
    return kind(**section, **shared)


def loss_weight(algorithm: Mapping[str, Any]) -> LossWeight:
    """What weighs the same in the loss, as configured; by default every token.

    Raises:
        ConfigurationError: no such thing.
    """
    given = _section(algorithm).get("loss_weight", LossWeight.TOKEN.value)
    names = [kind.value for kind in LossWeight]
    if given not in names:
        raise ConfigurationError(f"no algorithm.advantage.loss_weight {given!r}; {did_you_mean(str(given), names)}")
    return LossWeight(given)


def _section(algorithm: Mapping[str, Any]) -> Mapping[str, Any]:
    return algorithm.get("advantage") or {}


def _function(name: str) -> Any:
    def estimate(
        token_level_rewards: torch.Tensor,
        response_mask: torch.Tensor,
        config: Mapping[str, Any],
        index: Sequence[str],
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """verl's signature: [N, R] rewards and mask, N groups -> [N, R] advantages and returns."""
        made = estimator(name, config)
        rows = joined(token_level_rewards, response_mask, index)
        if rows is None:
            nothing = torch.zeros_like(token_level_rewards)
            return nothing, nothing
        _require(name, made, rows.batch)
        given = made(rows.batch)
        weighted_BR = given.advantages_BR * loss_weights(rows.batch, loss_weight(config))
        return rows.split(weighted_BR) * response_mask, rows.split(given.returns_BR) * response_mask

    return estimate


def _require(name: str, made: Estimator, batch: Any) -> None:
    wanting = "use trainer.v1.trainer_mode=agentgym (or agentgym_async)"
    if made.needs_states and batch.state_keys is None:
        raise ConfigurationError(f"the estimator {name} compares states, which only our trainers know: {wanting}")
    if made.needs_values and batch.values_BR is None:
        raise ConfigurationError(f"the estimator {name} needs a critic: set critic.enable=true, and {wanting}")
