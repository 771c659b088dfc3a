"""The trainers that know about episodes: verl's own, with whole trajectories, failures as data, and a watch.

Selected by `trainer.v1.trainer_mode`: `agentgym` is verl's synchronous trainer, `agentgym_async` its colocated
asynchronous one. What they add is mixed in before verl's class, a concern a file.
"""

from __future__ import annotations

from omegaconf import DictConfig
from verl.trainer.ppo.v1 import PPOTrainerColocateAsync, PPOTrainerSync, register_trainer

from verl_ext.trainer_learning import WholeTrajectories
from verl_ext.trainer_sessions import NAMES, Sessions
from verl_ext.trainer_watch import Watched

__all__ = ["NAMES", "AsyncEpisodeTrainer", "EpisodeTrainer"]


@register_trainer("agentgym")
class EpisodeTrainer(Watched, WholeTrajectories, Sessions, PPOTrainerSync):
    """Rollout and training take turns."""


@register_trainer("agentgym_async")
class AsyncEpisodeTrainer(Watched, WholeTrajectories, Sessions, PPOTrainerColocateAsync):
    """Long episodes go on over several steps, on newer and newer weights.

    What was sampled by older weights is weighted by how likely the trainer's find it, a token at a time, unless
    `algorithm.rollout_correction.rollout_is` says otherwise. Replies stand still while the weights are trained, and
    `agentgym.limits` count that time: set `reply_seconds` and `episode_seconds` far above the seconds of a step.
    """

    def __init__(self, config: DictConfig):
        correction = config.algorithm.rollout_correction
        if correction.rollout_is is None and not correction.bypass_mode:
            correction.rollout_is = "token"
        super().__init__(config)
