"""Actions of a store's trajectories, by environment: what a policy may do wrong where nothing lists what it may do."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence

from agentgym_rl.data.augment_try import turns_that_went_on
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.messages import Message

DONORS = 512
"""Actions of an environment that are remembered, each as likely as any other."""


def donors_of(store: TrajectoryStore, seed: int) -> Mapping[str, Sequence[Message]]:
    """Environment -> actions that did not end an episode, drawn by reservoir sampling.

    Source: Vitter, ACM TOMS 1985, algorithm R, https://doi.org/10.1145/3147.3165
    """
    chance = random.Random(seed)
    kept: dict[str, list[Message]] = defaultdict(list)
    met: dict[str, int] = defaultdict(int)
    for record in store.records():
        name = record.trajectory.task.environment
        for turn in turns_that_went_on(record.trajectory):
            met[name] += 1
            if met[name] <= DONORS:
                kept[name].append(turn.reply.message)
            elif (place := chance.randrange(met[name])) < DONORS:
                kept[name][place] = turn.reply.message
    return kept
