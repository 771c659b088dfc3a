"""The reward of a trajectory of verl's `tool_agent` loop: what its environment gave, call by call.

Named in a configuration as `reward.custom_reward_function.path=pkg://verl_ext.tool_reward`. verl's loop keeps what
tools return as rewards and adds it to nothing; its reward managers `naive`, `remote` and `rate_limited` pass it on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentgym_rl.errors import EnvironmentFailed
from verl_ext.survivors import EXCLUDED
from verl_ext.tools import FAILURE, SUCCESS


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any], **_: Any
) -> dict[str, float]:
    """The sum of the environment's rewards as `score`, and whether it says that the task was solved as `acc`.

    Raises:
        EnvironmentFailed: the environment failed, so this trajectory has no reward: verl then leaves its session out.
            A trainer of ours has left it out already.
    """
    if FAILURE in extra_info and EXCLUDED not in extra_info:
        raise EnvironmentFailed(f"a trajectory of {data_source!r} has no reward: {extra_info[FAILURE]}")
    score = float(sum(extra_info.get("tool_rewards") or ()))
    return {"score": score, "acc": float(bool(extra_info.get(SUCCESS)))}
