"""Store -> store with what is made of its trajectories by changing them, played in the environment to the end.

The new store is there whole or not at all (`derive`). Which replies are not to be imitated is marked turn by turn
(`sft_parquet.TRAINED`). Seconds are not kept, so that a seed gives the same store again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from agentgym_rl.data.augment_family import SOURCE, Augmentation, Families
from agentgym_rl.data.augment_report import Report
from agentgym_rl.data.derive import derive
from agentgym_rl.data.record import Record
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.environments import registry
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.evaluation.run import PolicyFactory
from agentgym_rl.in_order import in_order


class Augmented(NamedTuple):
    """What an augmentation made."""

    store: TrajectoryStore
    report: Report


def augment_store(
    source: TrajectoryStore,
    out: str | Path,
    wanted: Augmentation,
    make_policy: PolicyFactory,
    concurrency: int = 8,
    isolation: registry.Isolation = "thread",
    on_parent: Callable[[int], None] = lambda kept: None,
) -> Augmented:
    """Write a store of the trajectories and what could be made of them; where it is there already, say what it is.

    Args:
        source: is only read.
        out: folder of the new store; it appears whole or not at all.
        make_policy: of the policy that goes on; called once a try.
        concurrency: how many tries are under way at once.
        isolation: where the environments run.
        on_parent: called with the number of new trajectories so far, as each parent is done.

    Raises:
        ConfigurationError: something else is at `out`, or nothing can be played like this.
    """
    if concurrency < 1:
        raise ConfigurationError(f"concurrency must be at least 1; given: {concurrency}")
    report = Report(wanted.rules)

    def transform(records: Iterator[Record], folder: Path) -> Iterable[Record]:
        families = Families(source, wanted, make_policy, report, concurrency, isolation)
        for family in in_order(map(families.of, records), concurrency):
            on_parent(report.kept)
            yield from family

    step = {
        "name": SOURCE,
        "rules": dict(wanted.rules),
        "policy": wanted.policy,
        "sampling": dict(wanted.sampling),
        "seed": wanted.seed,
        "originals": wanted.keep_originals,
        "max_turns": wanted.limits.max_turns,
    }
    done = derive(source, out, step, transform, report.to_json)
    return Augmented(done.store, Report.from_json(done.report))
