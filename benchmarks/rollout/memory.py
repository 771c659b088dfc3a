"""Memory and threads at 4096 sessions at a time, and whether memory stays flat while episodes come and go.

First as many sessions as the option says play together once: memory a session, and threads. Then the soak: they play
episode after episode out of one pool for `--minutes`, while the process's resident memory is sampled. The slope is that
of least squares over the samples after the first fifth, with its 95% interval (t; samples taken as independent).
Target: no thread for a session, and a slope below 1% of the memory a minute.
"""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import psutil
from scipy import stats

from agentgym_rl.episode import Limits, play
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.viewer.chart import Curve, Point
from benchmarks.results import Result, Verdict, machine, parser, write
from benchmarks.rollout.instant import InstantPolicy
from benchmarks.rollout.latency import tasks

MIB = 2**20
TARGET_PERCENT_A_MINUTE = 1.0
WARM_UP = 0.2
"""Share of the samples that are left out of the slope: the allocator's first growth."""


class Sample(NamedTuple):
    seconds: float
    mib: float
    threads: int
    episodes: int
    """That have ended."""


class Slope(NamedTuple):
    """MiB a minute, with its 95% interval."""

    value: float
    low: float
    high: float


class Soak:
    """Sessions that play one episode after the other, and the samples that are taken meanwhile."""

    def __init__(self, sessions: int, turns: int, seed: int):
        self._tasks = tasks(sessions, turns, turns, 0.5, seed)
        self._limits = Limits(max_turns=turns)
        self._process = psutil.Process()
        self._begin = time.monotonic()
        self.episodes = 0
        self.failed = 0
        self.samples: list[Sample] = []

    async def run(self, seconds: float, every_seconds: float) -> None:
        """Every session plays one episode at least; none begins after the time is up."""
        end = time.monotonic() + seconds
        async with EnvironmentPool(len(self._tasks)) as pool:
            sessions = (self._session(pool, number, end) for number in range(len(self._tasks)))
            await asyncio.gather(self._sample(every_seconds, end), *sessions)

    async def _session(self, pool: EnvironmentPool, number: int, end: float) -> None:
        task = self._tasks[number]
        while True:
            async with pool.lease(task.environment) as environment:
                trajectory = await play(InstantPolicy(), environment, task, self._limits)
            self.failed += trajectory.failed
            self.episodes += 1
            if time.monotonic() >= end:
                return

    async def _sample(self, every_seconds: float, end: float) -> None:
        while time.monotonic() < end:
            await asyncio.sleep(every_seconds)
            self.samples.append(self.sample())

    def sample(self) -> Sample:
        rss = self._process.memory_info().rss / MIB
        return Sample(time.monotonic() - self._begin, rss, threading.active_count(), self.episodes)


def slope(samples: Sequence[Sample]) -> Slope:
    """b ± t · s(b) of the line through memory over time."""
    fit = stats.linregress([s.seconds / 60 for s in samples], [s.mib for s in samples])
    half = stats.t.ppf(0.975, len(samples) - 2) * fit.stderr
    return Slope(float(fit.slope), float(fit.slope - half), float(fit.slope + half))


def main(arguments: Sequence[str] | None = None) -> Result:
    made = parser(__doc__, "rollout")
    made.add_argument("--sessions", type=int, default=4096, help="at a time")
    made.add_argument("--turns", type=int, default=8, help="of an episode; a turn takes about a second")
    made.add_argument("--minutes", type=float, default=1.0, help="length of the soak; 10 tells a slope from noise")
    made.add_argument("--every-seconds", type=float, default=0.5, help="pause between two samples")
    made.add_argument("--seed", type=int, default=0)
    options = made.parse_args(arguments)
    state = machine()
    gc.collect()
    soak = Soak(options.sessions, options.turns, options.seed)
    before = soak.sample()
    asyncio.run(soak.run(options.minutes * 60, options.every_seconds))
    result = _result(options, before, soak)
    write(result, state, options.out)
    return result


def _result(options: Any, before: Sample, soak: Soak) -> Result:
    samples = soak.samples
    counted = samples[math.floor(WARM_UP * len(samples)) :]
    found = slope(counted)
    peak = max(samples, key=lambda sample: sample.mib)
    threads = max(sample.threads for sample in samples)
    percent = 100 * found.high / peak.mib
    row = {
        "sessions": options.sessions,
        "episodes": samples[-1].episodes,
        "failed": soak.failed,
        "minutes": samples[-1].seconds / 60,
        "MiB before": before.mib,
        "MiB at most": peak.mib,
        "KiB a session": 1024 * (peak.mib - before.mib) / options.sessions,
        "threads": threads,
        "slope, MiB/minute": found.value,
        "95% interval": f"{found.low:.3g} to {found.high:.3g}",
    }
    verdicts = [
        Verdict("threads more than before", threads - before.threads, "0", threads == before.threads),
        Verdict(
            "slope's upper end, % of the memory a minute",
            percent,
            f"< {TARGET_PERCENT_A_MINUTE:g}",
            percent < TARGET_PERCENT_A_MINUTE,
        ),
    ]
    curves = [Curve("resident memory", [Point(s.seconds / 60, s.mib) for s in samples], "MiB")]
    settings = {name.replace("_", " "): value for name, value in vars(options).items() if name != "out"}
    return Result("memory", settings, [row], verdicts, curves, "minutes")


if __name__ == "__main__":
    main()
