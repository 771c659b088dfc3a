"""The expert of Gymnasium environments that expose their model `P`: value iteration, once a model.

V(s) = max_a sum_k p_k (r_k + gamma (1 - done_k) V(s_k)); the expert takes the first action that attains it.

Source: Sutton and Barto, Reinforcement Learning, 2018, section 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_rl.errors import ConfigurationError

GAMMA = 0.999
"""Near 1: a long sure way is better than a short one that may fail; below 1: of sure ways the short one is better."""
TOLERANCE = 1e-10
MOST_SWEEPS = 50_000

Model = Mapping[int, Mapping[int, Sequence[tuple[float, int, float, bool]]]]
"""State -> action -> (probability, next state, reward, done) of each outcome."""


def model_of(world: Any) -> Model:
    """Of an environment.

    Raises:
        ConfigurationError: it does not expose its model.
    """
    if not isinstance(getattr(world.unwrapped, "P", None), Mapping):
        raise ConfigurationError(f"{world.spec.id} has no expert: it does not expose its transitions as `P`")
    return world.unwrapped.P


def value_iteration(model: Model) -> list[int]:
    """The best action in each state, the first of equally good ones. States are numbered from 0."""
    import numpy as np

    share_SAK, next_SAK, reward_SAK, goes_on_SAK = _arrays(model)
    value_S = np.zeros(len(model))
    for _ in range(MOST_SWEEPS):
        gain_SA = (share_SAK * (reward_SAK + GAMMA * goes_on_SAK * value_S[next_SAK])).sum(-1)
        change = np.abs(gain_SA.max(1) - value_S).max()
        value_S = gain_SA.max(1)
        if change < TOLERANCE:
            break
    return [int(action) for action in np.round(gain_SA, 8).argmax(1)]


def _arrays(model: Model) -> tuple[Any, Any, Any, Any]:
    """[S, A, K] of probability, next state, reward, and 1 where the episode goes on; short rows are filled with 0."""
    import numpy as np

    most = max(len(outcomes) for actions in model.values() for outcomes in actions.values())
    filled = [
        [[*model[s][a], *[(0.0, 0, 0.0, True)] * (most - len(model[s][a]))] for a in range(len(model[s]))]
        for s in range(len(model))
    ]
    table = np.array(filled, dtype=float)
    return table[..., 0], table[..., 1].astype(int), table[..., 2], 1.0 - table[..., 3]
