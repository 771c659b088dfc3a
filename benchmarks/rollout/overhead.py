"""What `play()` costs a turn, with a policy and an environment that take no time, at 1 to 4096 sessions on one core.

Side by side in one run: `play()` with every deadline armed, a lock-step loop without deadlines, and `skyrl-gym` where
it is installed. The figure is CPU time of the process, which other jobs on the core do not lengthen much; on an idle
core it is the wall time. Target: below 100 microseconds a turn, and at 4096 sessions at most twice that of 64.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from statistics import median
from typing import Any, NamedTuple

from agentgym_rl.episode import Limits, play
from agentgym_rl.viewer.chart import Curve, Point
from benchmarks.results import Result, Verdict, machine, parser, write
from benchmarks.rollout import skyrl
from benchmarks.rollout.instant import TASK, InstantEnvironment, InstantPolicy
from benchmarks.rollout.lock_step import Session, play_in_lock_step

Loop = Callable[[int, int, int], Coroutine[Any, Any, None]]
"""Plays sessions, turns each, hops a call."""
TARGET_MICROSECONDS, TARGET_RATIO = 100.0, 2.0
KINDS = {0: "answers at once", 1: "waits one round"}


class Cost(NamedTuple):
    """Microseconds a turn."""

    cpu: float
    wall: float


async def asynchronous(sessions: int, turns: int, hops: int) -> None:
    limits = Limits(max_turns=turns)
    playing = (play(InstantPolicy(hops), InstantEnvironment(hops), TASK, limits) for _ in range(sessions))
    for trajectory in await asyncio.gather(*playing):
        assert len(trajectory.turns) == turns


async def lock_step(sessions: int, turns: int, hops: int) -> None:
    made = [Session(InstantPolicy(hops), InstantEnvironment(hops), TASK) for _ in range(sessions)]
    await play_in_lock_step(made, turns)


def cost(loop: Loop, sessions: int, turns: int, hops: int, repeats: int) -> Cost:
    """The median over the repeats; a single session plays more turns, so that there is something to time."""
    turns = max(turns, 1000 // sessions)
    costs = []
    for _ in range(repeats):
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        asyncio.run(loop(sessions, turns, hops))
        scale = 1e6 / (sessions * turns)
        costs.append(Cost((time.process_time() - cpu) * scale, (time.perf_counter() - wall) * scale))
    return Cost(median(c.cpu for c in costs), median(c.wall for c in costs))


def main(arguments: Sequence[str] | None = None) -> Result:
    made = parser(__doc__, "rollout")
    made.add_argument("--sessions", type=int, nargs="+", default=[1, 64, 512, 4096], help="concurrent sessions")
    made.add_argument("--turns", type=int, default=32, help="turns of a session")
    made.add_argument("--repeats", type=int, default=3, help="measurements of each figure; the median counts")
    made.add_argument(
        "--gc-threshold", type=int, default=gc.get_threshold()[0], help="allocations between two young collections"
    )
    made.add_argument("--core", type=int, default=0, help="index among the cores that may be used")
    options = made.parse_args(arguments)
    state = machine()
    peer, why_not = skyrl.load()
    loops: dict[str, Loop] = {"play()": asynchronous, "lock-step": lock_step} | ({"skyrl-gym": peer} if peer else {})
    allowed, thresholds = os.sched_getaffinity(0), gc.get_threshold()
    gc.set_threshold(options.gc_threshold)
    os.sched_setaffinity(0, {sorted(allowed)[options.core]})
    try:
        costs = {
            (name, hops, sessions): cost(loop, sessions, options.turns, hops, options.repeats)
            for sessions in options.sessions
            for hops in KINDS
            for name, loop in loops.items()
        }
    finally:
        os.sched_setaffinity(0, allowed)
        gc.set_threshold(*thresholds)
    result = _result(options, costs, [why_not] if why_not else [])
    write(result, state, options.out)
    return result


def _result(options: Any, costs: dict[tuple[str, int, int], Cost], notes: list[str]) -> Result:
    rows = [
        {"loop": name, "a call": KINDS[hops], "sessions": number, "CPU us/turn": found.cpu, "wall us/turn": found.wall}
        for (name, hops, number), found in sorted(costs.items())
    ]
    names = sorted({(name, hops) for name, hops, _ in costs})
    curves = [
        Curve(
            f"{name}, {KINDS[hops]}",
            [Point(float(number), costs[name, hops, s].cpu) for number, s in enumerate(options.sessions)],
            "CPU microseconds a turn",
        )
        for name, hops in names
    ]
    few, many = (64 if 64 in options.sessions else options.sessions[0]), options.sessions[-1]
    verdicts = []
    for hops, kind in KINDS.items():
        worst = max(costs["play()", hops, s].cpu for s in options.sessions)
        ratio = costs["play()", hops, many].cpu / costs["play()", hops, few].cpu
        target = f"< {TARGET_MICROSECONDS:g}"
        verdicts += [
            Verdict(f"play(), {kind}: worst CPU us/turn", worst, target, worst < TARGET_MICROSECONDS),
            Verdict(f"play(), {kind}: {many} against {few}", ratio, f"<= {TARGET_RATIO:g}", ratio <= TARGET_RATIO),
        ]
    settings = {"sessions": options.sessions, "turns": options.turns, "repeats": options.repeats}
    settings["gc threshold"] = options.gc_threshold
    x = "sessions: " + ", ".join(f"{number} = {sessions}" for number, sessions in enumerate(options.sessions))
    return Result("overhead", settings, rows, verdicts, curves, x, notes)


if __name__ == "__main__":
    main()
