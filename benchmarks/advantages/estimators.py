"""What each advantage estimator costs on whole trajectories of many turns, against verl's own functions in one run.

All on one thread. Every call gets a batch that nothing has been calculated of. The figure is CPU time of the process,
which other jobs on the core lengthen only through the caches; on an idle core it is the wall time. Targets: estimators
that give one advantage a trajectory at most 1.5 times verl's GRPO; GiGPO and turn-level ones without a critic below
100 milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import torch
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from agentgym_rl.viewer.chart import Curve, Point
from benchmarks.advantages.workload import rows_of, trajectories
from benchmarks.results import Result, Verdict, machine, parser, write
from verl_ext.advantages.batch import TrajectoryBatch
from verl_ext.advantages.registry import ESTIMATORS, estimator

VERL = {
    "trajectory_grpo": "grpo",
    "trajectory_rloo": "rloo",
    "trajectory_reinforce_pp": "reinforce_plus_plus",
    "trajectory_reinforce_pp_baseline": "reinforce_plus_plus_baseline",
    "trajectory_gae": "gae",
}
"""Estimator -> verl's own, on one row a trajectory."""
TURN_LEVEL = ("gigpo", "turn_grpo", "turn_returns")
TARGET_RATIO, TARGET_MILLISECONDS = 1.5, 100.0
Call = Callable[[], Any]


class Cost(NamedTuple):
    """Milliseconds a call."""

    cpu: float
    wall: float


def calls(batch: TrajectoryBatch) -> dict[str, Call]:
    """Name -> what is timed."""
    rows = rows_of(batch)

    def of_verl(name: str) -> Call:
        function = get_adv_estimator_fn(name)
        given = {"token_level_rewards": rows.rewards_BR, "response_mask": rows.mask_BR}
        if name == "gae":
            return lambda: function(**given, values=rows.values_BR, gamma=1.0, lam=1.0)
        return lambda: function(**given, index=rows.group_names, config=AlgoConfig())

    def own(name: str) -> Call:
        made = estimator(name, {})
        return lambda: made(replace(batch))  # a copy has nothing calculated yet

    return {
        **{f"verl {name}": of_verl(name) for name in VERL.values()},
        **{name: own(name) for name in ESTIMATORS},
    }


def costs(timed: dict[str, Call], repeats: int) -> dict[str, Cost]:
    """The median over the repeats; each goes through all of them, so that a busy moment meets no one alone."""
    found: dict[str, list[Cost]] = {name: [] for name in timed}
    for _ in range(repeats):
        for name, call in timed.items():
            cpu, wall = time.process_time(), time.perf_counter()
            call()
            found[name].append(Cost((time.process_time() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3))
    return {name: Cost(median(c.cpu for c in each), median(c.wall for c in each)) for name, each in found.items()}


def main(arguments: Sequence[str] | None = None) -> Result:
    made = parser(__doc__, "advantages")
    made.add_argument("--trajectories", type=int, default=1024, help="of a batch, 8 a task")
    made.add_argument("--tokens", type=int, nargs="+", default=[2048, 4096, 8192], help="of the longest response")
    made.add_argument("--turns", type=int, default=30, help="of the longest trajectory")
    made.add_argument("--repeats", type=int, default=5, help="measurements of each figure; the median counts")
    made.add_argument("--seed", type=int, default=0, help="of the trajectories")
    options = made.parse_args(arguments)
    state = {**machine(), "torch": torch.__version__}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        by_tokens = {
            tokens: costs(
                calls(trajectories(options.trajectories, tokens, options.turns, options.seed)), options.repeats
            )
            for tokens in options.tokens
        }
    finally:
        torch.set_num_threads(threads)
    result = _result(options, by_tokens)
    write(result, state, options.out)
    return result


def _result(options: Any, by_tokens: dict[int, dict[str, Cost]]) -> Result:
    largest = by_tokens[max(by_tokens)]
    rows = [
        {
            "estimator": name,
            "CPU ms": cost.cpu,
            "wall ms": cost.wall,
            "times verl grpo": cost.cpu / largest["verl grpo"].cpu,
            "times verl's own": cost.cpu / largest[f"verl {VERL[name]}"].cpu if name in VERL else "-",
        }
        for name, cost in largest.items()
    ]
    curves = [
        Curve(
            name, [Point(float(tokens), by_tokens[tokens][name].cpu) for tokens in sorted(by_tokens)], "CPU ms a batch"
        )
        for name in largest
    ]
    settings = {name: getattr(options, name) for name in ("trajectories", "tokens", "turns", "repeats", "seed")}
    notes = [f"The table is of {max(by_tokens)} tokens, the plot of all sizes."]
    return Result("estimators", settings, rows, _verdicts(largest), curves, "tokens of the longest response", notes)


def _verdicts(largest: dict[str, Cost]) -> list[Verdict]:
    verdicts = []
    for name in ESTIMATORS:
        cpu, ratio = largest[name].cpu, largest[name].cpu / largest["verl grpo"].cpu
        if name in TURN_LEVEL:
            verdicts.append(Verdict(f"{name}: CPU ms", cpu, f"< {TARGET_MILLISECONDS:g}", cpu < TARGET_MILLISECONDS))
        elif not estimator(name, {}).needs_values:
            verdicts.append(Verdict(f"{name}: times verl grpo", ratio, f"<= {TARGET_RATIO:g}", ratio <= TARGET_RATIO))
    return verdicts


if __name__ == "__main__":
    main()
