"""What the trainer reports of a step's episodes, and which rows it takes for groups of one."""

from __future__ import annotations

import pytest

from agentgym_rl.failure_policy import Action, FailedEpisode
from verl_ext.episode_metrics import episode_metrics, failure_metrics
from verl_ext.failures import SessionFailure
from verl_ext.trainer_learning import _keys_of_singletons


def episode(**changes: object) -> dict[str, object]:
    fields = {
        "environment": "a",
        "success": True,
        "stop": "terminated",
        "turns": 2,
        "invalid_turns": 0,
        "cut_replies": 0,
        "policy_seconds": 1.0,
        "environment_seconds": 0.5,
        "turn_seconds": [0.5, 1.0],
        "wall_seconds": 2.0,
        "reward_parts": {"outcome": 1.0},
    }
    return {**fields, **changes}


def test_episode_metrics_by_hand():
    metrics = episode_metrics(
        [
            episode(),
            episode(
                success=False, stop="max_turns", turns=6, invalid_turns=3, cut_replies=1, reward_parts={"outcome": 0}
            ),
            episode(
                success=None,
                stop="max_turns",
                turns=2,
                policy_seconds=3.0,
                environment_seconds=2.0,
                turn_seconds=[2.0, 3.0],
                wall_seconds=6.0,
            ),
            episode(environment="b", success=None, turns=1),
        ]
    )
    assert {name: value for name, value in metrics.items() if name.startswith("episode/a/")} == pytest.approx(
        {
            "episode/a/count": 3,
            "episode/a/success": 1 / 2,  # the one that can't be told is no failure
            "episode/a/turns/mean": 10 / 3,
            "episode/a/turns/max": 6,
            "episode/a/invalid_share": 3 / 10,
            "episode/a/cut_share": 1 / 10,
            "episode/a/policy_seconds_per_turn": 5 / 10,
            "episode/a/environment_seconds_per_turn": 3 / 10,
            # 0.5, 0.5, 1, 1, 2, 3 in order: linear between the two nearest, at 2.5, 4.5 and 4.95 of 5
            "episode/a/turn_seconds/p50": 1.0,
            "episode/a/turn_seconds/p90": 2.5,
            "episode/a/turn_seconds/p99": 2.95,
            "episode/a/idle_share": 2 / 10,  # 10 s in all, of which 8 in turns
            "episode/a/stop/terminated": 1 / 3,
            "episode/a/stop/max_turns": 2 / 3,
            "episode/a/reward/outcome": 2 / 3,
        }
    )
    assert metrics["episode/b/count"] == 1
    assert "episode/b/success" not in metrics


def test_no_episode_gives_no_metric():
    assert episode_metrics([]) == {}


def failed(cause: str, action: Action = Action.EXCLUDE) -> SessionFailure:
    return SessionFailure(FailedEpisode("a", "t", cause, "m"), action)


def test_lost_sessions_are_counted_by_cause_and_retried_ones_apart():
    tries = [failed("environment_crashed", Action.RETRY), failed("environment_crashed")]
    tries += [failed("policy_raised"), failed("policy_raised", Action.REPLACE)]
    assert failure_metrics(tries) == {
        "episode/failed": 3,
        "episode/retried": 1,
        "episode/failed/environment_crashed": 1,
        "episode/failed/policy_raised": 2,
    }
    assert failure_metrics([]) == {"episode/failed": 0, "episode/retried": 0}


def test_groups_with_one_session_left_are_found_by_their_keys():
    keys = ["g1_0_0", "g1_1_0", "g2_3_0", "g3_0_0", "g3_0_1", "pad_0_0"]
    tags = [{}, {"is_padding": False}, {}, {}, {}, {"is_padding": True}]
    # two sessions; one; one in two segments; verl's padding
    assert _keys_of_singletons(keys, tags) == ["g2_3_0", "g3_0_0", "g3_0_1"]
