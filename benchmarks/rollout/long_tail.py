"""Episodes of 1 to 50 turns with log-normal turn times: asynchronous rollouts against lock-step, with the same slots.

On a virtual clock, so the result is exact and depends on the seed alone. The bound: S slots do S seconds of work in a
second, and no episode is shorter than itself,

    turns a second <= turns / max(work / S, longest episode)

Target: at least 3 times lock-step, and at least 90% of the bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agentgym_rl.episode import Limits, play
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.task import Task
from agentgym_rl.viewer.chart import Curve, Point
from benchmarks.results import Result, Verdict, machine, parser, write
from benchmarks.rollout import virtual_clock
from benchmarks.rollout.instant import InstantPolicy
from benchmarks.rollout.latency import LatentEnvironment, tasks, turn_seconds
from benchmarks.rollout.lock_step import Session, play_in_lock_step

TARGET_SPEEDUP, TARGET_SHARE = 3.0, 0.9
NO_CUT = Limits(max_turns=1000, step_seconds=1e6, episode_seconds=1e7)
"""Deadlines are armed, and none is met: both loops have to do all the work."""


async def asynchronous_seconds(work: Sequence[Task], slots: int) -> float:
    """Time until all is played when a session that ends frees its slot at once."""
    async with EnvironmentPool(slots, lease_seconds=1e7) as pool:

        async def session(task: Task) -> None:
            async with pool.lease(task.environment) as environment:
                trajectory = await play(InstantPolicy(), environment, task, NO_CUT)
            assert trajectory.success

        await asyncio.gather(*map(session, work))
        return asyncio.get_running_loop().time()


async def lock_step_seconds(work: Sequence[Task], slots: int) -> float:
    """Time until all is played in batches of as many sessions as there are slots."""
    for first in range(0, len(work), slots):
        batch = [Session(InstantPolicy(), LatentEnvironment(), task) for task in work[first : first + slots]]
        await play_in_lock_step(batch, NO_CUT.max_turns)
    return asyncio.get_running_loop().time()


def least_seconds(work: Sequence[Task], slots: int) -> float:
    """What no schedule can beat."""
    episodes = [sum(turn_seconds(task)) for task in work]
    return max(sum(episodes) / slots, *episodes)


def main(arguments: Sequence[str] | None = None) -> Result:
    made = parser(__doc__, "rollout")
    made.add_argument("--sessions-per-slot", type=int, default=32, help="episodes to play for each slot")
    made.add_argument("--slots", type=int, nargs="+", default=[16, 64, 256], help="sessions at a time")
    made.add_argument("--turns", type=int, nargs=2, default=[1, 50], help="fewest and most turns of an episode")
    made.add_argument("--sigma", type=float, default=1.0, help="of the logarithm of a turn's time")
    made.add_argument("--seed", type=int, default=0)
    options = made.parse_args(arguments)
    state = machine()
    result = _result(options, [_row(options, slots) for slots in options.slots])
    write(result, state, options.out)
    return result


def _row(options: Any, slots: int) -> dict[str, Any]:
    fewest, most = options.turns
    work = tasks(slots * options.sessions_per_slot, fewest, most, options.sigma, options.seed)
    turns = sum(task.arguments["turns"] for task in work)
    asynchronous = virtual_clock.run(asynchronous_seconds(work, slots))
    lock_step = virtual_clock.run(lock_step_seconds(work, slots))
    least = least_seconds(work, slots)
    return {
        "slots": slots,
        "episodes": len(work),
        "turns": turns,
        "lock-step turns/s": turns / lock_step,
        "asynchronous turns/s": turns / asynchronous,
        "bound turns/s": turns / least,
        "speed-up": lock_step / asynchronous,
        "share of the bound": least / asynchronous,
    }


def _result(options: Any, rows: Sequence[dict[str, Any]]) -> Result:
    slowest, furthest = min(row["speed-up"] for row in rows), min(row["share of the bound"] for row in rows)
    verdicts = [
        Verdict("least speed-up against lock-step", slowest, f">= {TARGET_SPEEDUP:g}", slowest >= TARGET_SPEEDUP),
        Verdict("least share of the bound", furthest, f">= {TARGET_SHARE:g}", furthest >= TARGET_SHARE),
    ]
    curves = [
        Curve(name, [Point(row["slots"], row[f"{name} turns/s"] / row["slots"]) for row in rows], "turns/s of a slot")
        for name in ("lock-step", "asynchronous", "bound")
    ]
    settings = {
        "sessions per slot": options.sessions_per_slot,
        "turns": options.turns,
        "sigma": options.sigma,
        "seed": options.seed,
    }
    return Result("long_tail", settings, rows, verdicts, curves, "slots")


if __name__ == "__main__":
    main()
