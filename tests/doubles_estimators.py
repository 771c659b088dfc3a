"""An estimator for one long training that tries all of ours: at each call the next one of the registry.

A critic is given the returns of the same one, `trajectory_gae`, at each step, so that it has something to learn.

Loaded by verl in its own processes (VERL_USE_EXTERNAL_MODULES); what each gave is appended to the file named by
ESTIMATORS_TRIED.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

import torch
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, register_adv_est

from verl_ext.advantages.registry import ESTIMATORS

_names = itertools.cycle(ESTIMATORS)


@register_adv_est("each_in_turn")
def each_in_turn(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, **rest: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    name = next(_names)
    given = {"token_level_rewards": token_level_rewards, "response_mask": response_mask, **rest}
    advantages, _ = get_adv_estimator_fn(name)(**given)
    _, returns = get_adv_estimator_fn("trajectory_gae")(**given)
    sampled = response_mask.bool()
    tried = {
        "name": name,
        "finite": bool(advantages.isfinite().all() and returns.isfinite().all()),
        "outside": float((advantages * ~sampled).abs().sum() + (returns * ~sampled).abs().sum()),
        "largest": float(advantages.abs().max()),
        "rows": len(sampled),
        "rewards": float(token_level_rewards.sum()),
    }
    with open(os.environ["ESTIMATORS_TRIED"], "a") as file:
        file.write(json.dumps(tried) + "\n")
    return advantages, returns
