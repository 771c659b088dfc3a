"""What Harbor found out about a trial, beside the documents of its agent (`atif_read.py`): which task, and the outcome.

A trial's folder has `result.json` and `agent/trajectory.json`. Harbor's verifier gives a reward, which ends up on the
last turn; 1 or more is a success, 0 or less none, what lies between is unknown. A reward that is not finite is none,
which is said. A trial of several steps, each with rewards of its own, is passed over.

Source: Harbor 0.26.0, https://github.com/harbor-framework/harbor (`models/trial/result.py`)
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentgym_rl.errors import DataError
from agentgym_rl.trajectory import Trajectory

logger = logging.getLogger(__name__)

RESULT = "result.json"
REWARD = "reward"
"""Of the verifier's rewards, the one that Harbor itself counts."""


@dataclass(frozen=True)
class HarborTrial:
    """None: it does not say."""

    task: str | None
    reward: float | None

    def judge(self, trajectory: Trajectory, is_last: bool) -> Trajectory:
        """A trajectory of at least one turn, with the outcome; the reward is that of the trial's last."""
        if self.reward is None:
            return trajectory
        success = None if 0 < self.reward < 1 else self.reward >= 1
        *before, end = trajectory.turns
        rewarded = replace(end, reward=end.reward + self.reward) if is_last else end
        return replace(trajectory, turns=(*before, rewarded), success=success)


def trial_of(document: Path) -> HarborTrial | None:
    """Of a document in a trial's folder; None: it is in no such folder.

    Raises:
        DataError: the result is no JSON object.
    """
    file = document.parent.parent / RESULT
    if document.parent.name != "agent" or not file.is_file():
        return None
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{file} is no JSON: {error}") from error
    if not isinstance(result, Mapping):
        raise DataError(f"{file} must hold an object; given: {type(result).__name__}")
    task, reward = result.get("task_name"), _reward(result, file)
    return HarborTrial(task if isinstance(task, str) and task else None, reward)


def _reward(result: Mapping[str, Any], file: Path) -> float | None:
    verified = result.get("verifier_result")
    rewards = verified.get("rewards") if isinstance(verified, Mapping) else None
    reward = rewards.get(REWARD) if isinstance(rewards, Mapping) else None
    if not isinstance(reward, int | float):
        return None
    if not math.isfinite(reward):
        logger.warning("%s: its reward is %s, which is taken for none", file, reward)
        return None
    return float(reward)
