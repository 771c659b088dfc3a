"""Every environment that is installed here: resets and steps through our worker against its bare package, and memory.

Target: at least 70% of the bare steps a second where a bare step takes 1 ms or more; below that the overhead in
microseconds a step says what a step costs, whatever it does. What can't be played here is named with its reason.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_rl.environments import registry
from agentgym_rl.errors import AgentGymError
from agentgym_rl.viewer.chart import Curve, Point
from benchmarks.environments.measure import Measured, measured
from benchmarks.results import Result, Verdict, machine, parser, write

TARGET_SHARE, FROM_SECONDS = 0.7, 1e-3
PLOTTED = ("steps, share", "us more a step", "PSS MiB")


def main(arguments: Sequence[str] | None = None) -> Result:
    made = parser(__doc__, "environments")
    made.prog = "python -m benchmarks.environments"
    made.add_argument("--names", nargs="+", default=[], help="environments; none given: all that are registered")
    made.add_argument("--tasks", type=int, default=4, help="episodes of a round, one a task")
    made.add_argument("--rounds", type=int, default=10, help="of all sides in turn; of each call the quickest counts")
    made.add_argument("--seed", type=int, default=0, help="of the tasks")
    options = made.parse_args(arguments)
    state = machine()
    found, skipped = [], {}
    for name in options.names or registry.names():
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            found.append(asyncio.run(measured(name, options.tasks, options.rounds, options.seed)))
        except AgentGymError as error:
            skipped[name] = str(error)
            print(f"{name} SKIPPED: {error}", file=sys.stderr, flush=True)
    if not found:
        raise SystemExit(f"none of {len(skipped)} environments can be measured here")
    result = _result(options, sorted(found, key=lambda one: one.bare.step), skipped)
    write(result, state, options.out)
    return result


def _result(options: Any, found: Sequence[Measured], skipped: Mapping[str, str]) -> Result:
    rows = [_row(number, one) for number, one in enumerate(found, start=1)]
    verdicts = [
        Verdict(f"{row['environment']}: steps, share", row["steps, share"], f">= {TARGET_SHARE:g}", is_met(row))
        for row, one in zip(rows, found, strict=True)
        if one.bare.step >= FROM_SECONDS
    ]
    curves = [
        Curve(f"{column}, by the table's rows", [Point(row["row"], row[column]) for row in rows], column)
        for column in PLOTTED
    ]
    settings = {name: getattr(options, name) for name in ("tasks", "rounds", "seed")}
    notes = [
        "Bare is the package by itself, or our class in the process that calls it (class) where there is nothing else.",
        f"Skipped {len(skipped)} of {len(skipped) + len(found)} environments.",
        *(f"Skipped {name}: {' '.join(why.split())}" for name, why in skipped.items()),
    ]
    return Result("environments", settings, rows, verdicts, curves, "row of the table", notes)


def _row(number: int, one: Measured) -> dict[str, Any]:
    bare, worker = one.bare, one.worker
    return {
        "row": number,
        "environment": one.name,
        "bare": one.compared_with,
        "bare ms a step": 1e3 * bare.step,
        "worker ms a step": 1e3 * worker.step,
        "bare steps/s": 1 / bare.step,
        "worker steps/s": 1 / worker.step,
        "steps, share": bare.step / worker.step,
        "us more a step": 1e6 * (worker.step - bare.step),
        "of it by our class": 1e6 * (one.times["class"].step - bare.step),
        "bare resets/s": 1 / bare.reset,
        "worker resets/s": 1 / worker.reset,
        "resets, share": bare.reset / worker.reset,
        "RSS MiB": one.rss_mib,
        "PSS MiB": one.pss_mib,
        "steps a round": len(worker.steps),
    }


def is_met(row: Mapping[str, Any]) -> bool:
    return row["steps, share"] >= TARGET_SHARE


if __name__ == "__main__":
    main()
