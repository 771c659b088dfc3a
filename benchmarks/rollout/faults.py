"""What faults cost: throughput and survivors where 0, 10 and 30% of the episodes meet one, with short deadlines.

On a virtual clock, with every kind of fault in equal shares. The work of a run is the time that its environments spent
on turns that came through; what is lost is the waiting for those that hang, and slots that stand empty:

    share of the throughput that the useful work allows = work / (slots · time)

Crashes fail the call as a dead worker would; that a real one does is for the tests to show. Target: no hang, no session
lost, and at least 90% at 30%.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from agentgym_rl.environments.chaos import Chaos, Fault, Faults
from agentgym_rl.episode import Limits, play
from agentgym_rl.evaluation.chaos import Books, Session
from agentgym_rl.pool import EnvironmentPool
from agentgym_rl.task import Task
from agentgym_rl.viewer.chart import Curve, Point
from benchmarks.results import Result, Verdict, machine, parser, write
from benchmarks.rollout import virtual_clock
from benchmarks.rollout.instant import InstantPolicy
from benchmarks.rollout.latency import tasks, turn_seconds

TARGET_SHARE = 0.9


class Run(NamedTuple):
    """All episodes, and the seconds that they took together."""

    books: Books
    seconds: float


def faults_of(share: float, calls: int, seed: int) -> Faults:
    """Rates a call with which `share` of the episodes of so many calls meet a fault, every kind alike."""
    each = (1 - (1 - share) ** (1 / calls)) / len(Fault)
    return Faults(**{fault.value: each for fault in Fault}, seed=seed)


async def play_all(work: Sequence[Task], slots: int, faults: Faults, limits: Limits) -> Run:
    books = Books()
    async with EnvironmentPool(slots, lease_seconds=2 * limits.episode_seconds) as pool:

        async def session(number: int, task: Task) -> None:
            async with pool.lease(task.environment) as leased:
                books.started.append(number)
                environment = Chaos(leased, faults, task.id, number)
                trajectory = await play(InstantPolicy(), environment, task, limits)
                books.emitted.append(Session(number, trajectory, tuple(environment.injected)))

        await asyncio.gather(*(session(number, task) for number, task in enumerate(work)))
        return Run(books, asyncio.get_running_loop().time())


def main(arguments: Sequence[str] | None = None) -> Result:
    made = parser(__doc__, "rollout")
    made.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.1, 0.3], help="of episodes with a fault")
    made.add_argument("--sessions", type=int, default=2048, help="episodes to play")
    made.add_argument("--slots", type=int, default=64, help="sessions at a time")
    made.add_argument("--turns", type=int, default=20, help="of an episode")
    made.add_argument("--sigma", type=float, default=0.5, help="of the logarithm of a turn's time; its median is 1 s")
    made.add_argument("--step-seconds", type=float, default=10.0, help="deadline of a step and of a reset")
    made.add_argument("--seed", type=int, default=0)
    options = made.parse_args(arguments)
    state = machine()
    work = tasks(options.sessions, options.turns, options.turns, options.sigma, options.seed)
    result = _result(options, [_row(options, work, share) for share in options.shares])
    write(result, state, options.out)
    return result


def _row(options: Any, work: Sequence[Task], share: float) -> dict[str, Any]:
    limits = Limits(
        max_turns=options.turns, reset_seconds=options.step_seconds, step_seconds=options.step_seconds,
        episode_seconds=1000.0 * options.turns,
    )  # fmt: skip
    faults = faults_of(share, options.turns + 1, options.seed)
    books, seconds = virtual_clock.run(play_all(work, options.slots, faults, limits))
    emitted = [session.trajectory for session in books.emitted]
    survivors = [trajectory for trajectory in emitted if not trajectory.failed]
    done = sum(sum(turn_seconds(trajectory.task)[: len(trajectory.turns)]) for trajectory in emitted)
    survived_turns = sum(len(trajectory.turns) for trajectory in survivors)
    return {
        "episodes with a fault": sum(bool(session.injected) for session in books.emitted) / len(work),
        "survivors": len(survivors),
        "failed": books.failed,
        "failed without a fault": sum(books.fates().get(None, {}).values()),
        "lost": len(work) - len(emitted) if books.balance else "books do not balance",
        "turns/s of survivors": survived_turns / seconds,
        "turns/s": sum(len(trajectory.turns) for trajectory in emitted) / seconds,
        "share of the useful work": done / (options.slots * seconds),
    }


def _result(options: Any, rows: Sequence[dict[str, Any]]) -> Result:
    shares = [row["share of the useful work"] for row in rows]
    lost = sum(row["lost"] != 0 for row in rows)
    verdicts = [
        Verdict("runs that lost a session or hung", lost, "0", lost == 0),
        Verdict("least share of the useful work", min(shares), f">= {TARGET_SHARE:g}", min(shares) >= TARGET_SHARE),
    ]
    curves = [
        Curve("turns/s of survivors", _points(options, rows, "turns/s of survivors"), "turns/s"),
        Curve("turns/s", _points(options, rows, "turns/s"), "turns/s"),
        Curve("share", _points(options, rows, "share of the useful work"), "share of the useful work"),
    ]
    settings = {name.replace("_", " "): value for name, value in vars(options).items() if name != "out"}
    notes = ["A fault need not end its episode: slow calls and garbage observations may be survived."]
    return Result("faults", settings, rows, verdicts, curves, "% of episodes that are to meet a fault", notes)


def _points(options: Any, rows: Sequence[dict[str, Any]], column: str) -> list[Point]:
    return [Point(100 * share, row[column]) for share, row in zip(options.shares, rows, strict=True)]


if __name__ == "__main__":
    main()
