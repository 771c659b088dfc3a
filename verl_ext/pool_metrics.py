"""The environment pools of a training step as verl metrics: most running, leased and waiting at a time, and killed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict

from agentgym_rl.pool_statistics import PoolPeriod, summed
from verl_ext import failures
from verl_ext.ray_pool import RayPool


def step_periods(pool: RayPool | None) -> dict[str, PoolPeriod]:
    """Environment -> what happened since the last call, over the whole run; for the trainer.

    Args:
        pool: the run's pool on the cluster; None: each agent loop worker has a pool of its own, and reports all of it.
    """
    reported = failures.drain_pools()
    return summed([reported, asyncio.run(pool.end_period_of_actors())]) if pool else reported


def pool_metrics(periods: Mapping[str, PoolPeriod]) -> dict[str, float]:
    """E.g. `episode/babyai/pool/leased_max`; peaks of several processes are added up, so they are upper bounds."""
    return {
        f"episode/{kind}/pool/{name}": number
        for kind, period in sorted(periods.items())
        for name, number in asdict(period).items()
    }
