"""What a step's episodes say, as verl metrics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_rl.failure_policy import Action
from verl_ext.failures import SessionFailure


def episode_metrics(episodes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Per environment: success, turns, invalid actions, stop reasons, reward parts and seconds, as verl metrics."""
    metrics: dict[str, float] = {}
    for name in sorted({episode["environment"] for episode in episodes}):
        own = [episode for episode in episodes if episode["environment"] == name]
        turns = sum(episode["turns"] for episode in own)
        judged = [episode["success"] for episode in own if episode["success"] is not None]
        prefix = f"episode/{name}"
        metrics[f"{prefix}/count"] = len(own)
        if judged:
            metrics[f"{prefix}/success"] = float(np.mean(judged))
        metrics[f"{prefix}/turns/mean"] = turns / len(own)
        metrics[f"{prefix}/turns/max"] = max(episode["turns"] for episode in own)
        metrics[f"{prefix}/invalid_share"] = sum(episode["invalid_turns"] for episode in own) / turns
        metrics[f"{prefix}/cut_share"] = sum(episode["cut_replies"] for episode in own) / turns
        metrics[f"{prefix}/policy_seconds_per_turn"] = sum(episode["policy_seconds"] for episode in own) / turns
        metrics[f"{prefix}/environment_seconds_per_turn"] = (
            sum(episode["environment_seconds"] for episode in own) / turns
        )
        turn_seconds = [seconds for episode in own for seconds in episode["turn_seconds"]]
        for percentile in (50, 90, 99):
            metrics[f"{prefix}/turn_seconds/p{percentile}"] = float(np.percentile(turn_seconds, percentile))
        # Neither generating nor in a step: reset, closing, and waiting for this process.
        idle = sum(episode["wall_seconds"] - sum(episode["turn_seconds"]) for episode in own)
        metrics[f"{prefix}/idle_share"] = idle / sum(episode["wall_seconds"] for episode in own)
        for reason, count in Counter(episode["stop"] for episode in own).items():
            metrics[f"{prefix}/stop/{reason}"] = count / len(own)
        for part in own[0]["reward_parts"]:
            metrics[f"{prefix}/reward/{part}"] = float(np.mean([episode["reward_parts"][part] for episode in own]))
    return metrics


def failure_metrics(tries: Sequence[SessionFailure]) -> dict[str, float]:
    """How many sessions were lost to which cause, and how many tries were played again."""
    lost = Counter(failure.episode.cause for failure in tries if failure.action is not Action.RETRY)
    metrics: dict[str, float] = {"episode/failed": lost.total(), "episode/retried": len(tries) - lost.total()}
    return metrics | {f"episode/failed/{cause}": count for cause, count in lost.items()}


def mean_accuracy(
    sources: Sequence[str], prompts: Sequence[str], infos: Mapping[str, Sequence[Any]]
) -> dict[str, float]:
    """Per data source the mean over its prompts of their sessions' mean accuracy.

    verl names a prompt's mean by its own number of sessions, and counts only prompts with the most: those that lost one
    would drop out of the figure.
    """
    judged: dict[str, dict[str, list[float]]] = {}
    for source, prompt, accuracy in zip(sources, prompts, infos.get("acc", ()), strict=False):
        if accuracy is not None and not math.isnan(accuracy):
            judged.setdefault(source, {}).setdefault(prompt, []).append(accuracy)
    return {
        f"val-core/{source}/acc/mean@{max(map(len, of_prompts.values()))}": float(
            np.mean([np.mean(accuracies) for accuracies in of_prompts.values()])
        )
        for source, of_prompts in judged.items()
    }
