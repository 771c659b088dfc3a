"""What each step of the data pipeline costs: trajectories a second and peak memory, beside JSON Lines with pandas.

Every step runs in a process of its own, so that its peak of resident memory is its own. Speed is in CPU time, which
other jobs on the machine lengthen little; both ways take the same trajectories and must give equally many.
Target: at least five times as fast as the plain way to read and to filter, and memory that a store of four times the
size does not need more of.
"""

from __future__ import annotations

import importlib
import multiprocessing
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_rl.viewer.chart import Curve, Point
from benchmarks.results import Result, Verdict, machine, parser, write

STEPS = ("write", "read", "columns", "filter", "exact", "near", "export")
TARGET_SPEED, SPEEDS = 5.0, ("read", "columns", "filter")
TARGET_GROWTH = 1.1
"""Peak memory at the largest size against that at the smallest."""
PACKAGES = {"ours": ("pyarrow.dataset", "pyarrow.parquet", "datasketch"), "plain": ("pandas", "datasketch")}
"""Imported before the measurement."""
STREAMED = tuple(step for step in STEPS if step != "near")  # its index remembers a signature of each text


class Cost(NamedTuple):
    """Of one step in one process."""

    given: int
    """Trajectories that came out."""
    cpu: float
    """Seconds."""
    wall: float
    mib_before: float
    mib_peak: float


def measured(way: str, step: str, folder: Path, size: int) -> Cost:
    """Run a step of `ours` or `plain` in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (way, step, folder, size))


def _run(way: str, step: str, folder: Path, size: int) -> Cost:
    for package in PACKAGES[way]:
        importlib.import_module(package)
    function = getattr(importlib.import_module(f"benchmarks.data.{way}"), step)
    before = _mib("VmRSS")
    cpu, wall = time.process_time(), time.perf_counter()
    if step == "write":
        given, spent = function(folder, size)
        return Cost(given, spent.cpu, spent.wall, before, _mib("VmHWM"))
    given = function(folder)
    return Cost(given, time.process_time() - cpu, time.perf_counter() - wall, before, _mib("VmHWM"))


def _mib(name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1024


def main(arguments: Sequence[str] | None = None) -> Result:
    made = parser(__doc__, "data")
    made.add_argument("--size", type=int, default=10_000, help="trajectories, of 20 turns, for both ways")
    made.add_argument("--sizes", type=int, nargs="*", default=[2_500], help="further ones for the store alone")
    made.add_argument("--folder", type=Path, help="where the data lies meanwhile; default: a temporary one")
    options = made.parse_args(arguments)
    state = machine()
    costs: dict[tuple[str, str, int], Cost] = {}
    for size in sorted({options.size, *options.sizes}):
        folder = Path(tempfile.mkdtemp(dir=options.folder))
        try:
            for way in ("ours", "plain") if size == options.size else ("ours",):
                for step in STEPS if size <= options.size else STREAMED:
                    costs[way, step, size] = measured(way, step, folder, size)
        finally:
            shutil.rmtree(folder)
    result = _result(options, costs)
    write(result, state, options.out)
    return result


def _result(options: Any, costs: dict[tuple[str, str, int], Cost]) -> Result:
    for step in STEPS:
        ours, plain = costs["ours", step, options.size], costs["plain", step, options.size]
        assert ours.given == plain.given, (step, ours, plain)
    rows = [
        {
            "step": step,
            "way": {"ours": "store", "plain": "JSON Lines"}[way],
            "trajectories": size,
            "came out": cost.given,
            "a CPU second": size / cost.cpu,
            "a second": size / cost.wall,
            "MiB at most": cost.mib_peak,
            "of them before": cost.mib_before,
        }
        for (way, step, size), cost in sorted(costs.items(), key=lambda one: (STEPS.index(one[0][1]), one[0]))
    ]
    verdicts = []
    for step in SPEEDS:
        ratio = costs["plain", step, options.size].cpu / costs["ours", step, options.size].cpu
        what = f"{step}: times as fast as JSON Lines, CPU"
        verdicts.append(Verdict(what, ratio, f">= {TARGET_SPEED:g}", ratio >= TARGET_SPEED))
    sizes = sorted({size for _, _, size in costs})
    for step in STREAMED if len(sizes) > 1 else ():
        peaks = [costs["ours", step, size].mib_peak for size in (sizes[0], sizes[-1])]
        what = f"{step}: peak memory at {sizes[-1]} against {sizes[0]}"
        verdicts.append(
            Verdict(what, peaks[1] / peaks[0], f"<= {TARGET_GROWTH:g}", peaks[1] <= TARGET_GROWTH * peaks[0])
        )
    curves = [
        Curve(
            step,
            [Point(float(s), costs[w, n, s].mib_peak) for w, n, s in sorted(costs) if (w, n) == ("ours", step)],
            "MiB at most",
        )
        for step in STEPS
    ]
    settings = {"size": options.size, "sizes": options.sizes}
    return Result("pipeline", settings, rows, verdicts, curves, "trajectories in the store")


if __name__ == "__main__":
    main()
