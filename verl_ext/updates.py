"""A fixed number of optimiser steps a training step, whatever number of rows the sessions came in.

verl cuts a batch into mini-batches of `ppo_mini_batch_size * rollout.n` rows: with sessions of several rows the number
of updates would follow the number of rows. Here it is the number that the configuration means, train_batch_size /
ppo_mini_batch_size, and a mean over sequences divides by sessions, not by rows and their padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omegaconf import DictConfig


def rows_of_micro_batches(config: DictConfig, with_critic: bool) -> int:
    """What a process's rows of an update or a forward pass must be a multiple of; 1 where verl cuts by tokens."""
    actor, rollout, ref = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout, config.actor_rollout_ref.ref
    sizes = [
        (actor.use_dynamic_bsz, actor.ppo_micro_batch_size_per_gpu),
        (rollout.log_prob_use_dynamic_bsz, rollout.log_prob_micro_batch_size_per_gpu),
        (ref.log_prob_use_dynamic_bsz, ref.log_prob_micro_batch_size_per_gpu),
    ]
    if with_critic:
        sizes.append((config.critic.use_dynamic_bsz, config.critic.ppo_micro_batch_size_per_gpu))
    return math.lcm(*(size for dynamic, size in sizes if not dynamic and size))


def updates_of_actor(config: DictConfig) -> int:
    """Optimiser steps of the policy a training step and epoch."""
    return _updates(config, config.actor_rollout_ref.actor.ppo_mini_batch_size)


def updates_of_critic(config: DictConfig) -> int:
    """Optimiser steps of the critic a training step and epoch."""
    return _updates(config, config.critic.ppo_mini_batch_size)


def rows_multiple(processes: int, *updates: int) -> int:
    """What the number of rows must be a multiple of, so that every process has the same number in every update."""
    return math.lcm(*(processes * count for count in updates))


@contextmanager
def fixed_updates(worker_group: Any, method: str, updates: int, sessions: int) -> Iterator[None]:
    """Meanwhile `method` of verl's worker group makes `updates` mini-batches of what it is sent.

    Args:
        worker_group: verl's; its `train_mini_batch` (verl/workers/engine_workers.py) takes either form.
        method: the one that the trainer calls with a batch.
        updates: mini-batches an epoch.
        sessions: in the whole batch.
    """
    send = getattr(worker_group, method)

    def send_divided(batch: Any) -> Any:
        del batch.extra_info["mini_batch_size"]
        batch.extra_info |= {"num_mini_batch": updates, "global_batch_size": sessions / updates}
        sent = send(batch)
        del batch.extra_info["num_mini_batch"]
        return sent

    setattr(worker_group, method, send_divided)
    try:
        yield
    finally:
        setattr(worker_group, method, send)


def _updates(config: DictConfig, tasks: int) -> int:
    return max(1, config.data.train_batch_size // tasks)
