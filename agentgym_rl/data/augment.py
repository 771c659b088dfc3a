"""Store -> store with what is made of its trajectories by changing them, played in the environment to the end.

The new store is there whole or not at all. Until then each family that is done is kept beside its place (`unfinished`,
`families_file`), so an augmentation that was stopped goes on, and gives the store that it would have given; what other
code had done before stays, and its records name their `code_version`. What the policy failed, as all does while its
server is down, the next one plays again. Which replies are not to be imitated is marked turn by turn
(`sft_parquet.TRAINED`). Seconds are not kept, so that a seed gives the same store again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_rl.data.appender import Appender
from agentgym_rl.data.augment_family import SOURCE, Augmentation, Families
from agentgym_rl.data.augment_report import Report
from agentgym_rl.data.derive import done_before, origin_of, write_whole
from agentgym_rl.data.families_file import FamiliesFile
from agentgym_rl.data.record import Record
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.store_held import HeldStore
from agentgym_rl.data.unfinished import unfinished
from agentgym_rl.environments import registry
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.evaluation.run import PolicyFactory
from agentgym_rl.together import all_or_cancel

FAMILIES_FILE = "families.jsonl"


class Augmented(NamedTuple):
    """What an augmentation made."""

    store: TrajectoryStore
    report: Report
    is_whole: bool
    """False: the policy failed tries, and there is no store yet; the same augmentation again plays them."""


def augment_store(
    source: TrajectoryStore,
    out: str | Path,
    wanted: Augmentation,
    make_policy: PolicyFactory,
    concurrency: int = 8,
    isolation: registry.Isolation = "thread",
    on_parent: Callable[[int, int], None] = lambda done, kept: None,
    finish: bool = False,
) -> Augmented:
    """Write a store of the trajectories and what could be made of them; where it is there already, say what it is.

    Args:
        source: is only read; what is added to it meanwhile does not count.
        out: folder of the new store; it appears whole or not at all.
        make_policy: of the policy that goes on; called once a try.
        concurrency: how many tries are under way at once.
        isolation: where the environments run.
        on_parent: called at the start and as each parent is done, with the numbers of parents that are done and of new
            trajectories so far.
        finish: what the policy failed is not played again, and the store appears without it.

    Raises:
        ConfigurationError: something else is at `out`, nothing can be played like this, or another process is at it;
            the families that were done are kept.
        DataError: likewise, a trajectory can't be read or written.
    """
    if concurrency < 1:
        raise ConfigurationError(f"concurrency must be at least 1; given: {concurrency}")
    out, held = Path(out), HeldStore(source)
    origin = origin_of(held, _step(wanted))

    def fill(folder: Path) -> None:
        with Appender(TrajectoryStore(folder)) as new:
            for number, parent in enumerate(held.records()):
                for record in [parent] * wanted.keep_originals + families.made_of(number):
                    new.append(record)

    with unfinished(out, origin) as folder:
        if there := done_before(out, origin):
            return Augmented(there.store, Report.from_json(there.report), True)
        with FamiliesFile(folder / FAMILIES_FILE, wanted.rules, finish) as families:
            on_parent(len(families), families.report.kept)
            made = Families(held, wanted, make_policy, concurrency, isolation)
            missing = ((number, parent) for number, parent in enumerate(held.records()) if number not in families)
            asyncio.run(all_or_cancel(_play(missing, made, families, on_parent) for _ in range(concurrency)))
            if families.report.policy_failures and not finish:
                return Augmented(TrajectoryStore(out), families.report, False)
            done = write_whole(out, origin, fill, families.report.to_json)
    return Augmented(done.store, families.report, True)


async def _play(
    missing: Iterator[tuple[int, Record]], made: Families, families: FamiliesFile, on_parent: Callable[[int, int], None]
) -> None:
    """Play one parent after the other while there are any; others take from the same ones."""
    for number, parent in missing:
        families.add(number, await made.of(parent))
        on_parent(len(families), families.report.kept)


def _step(wanted: Augmentation) -> dict[str, Any]:
    return {
        "name": SOURCE,
        "rules": dict(wanted.rules),
        "policy": wanted.policy,
        "sampling": dict(wanted.sampling),
        "seed": wanted.seed,
        "originals": wanted.keep_originals,
        "max_turns": wanted.limits.max_turns,
    }
