"""Whose failure it was that a try came to nothing: what the policy failed may come another time."""

from __future__ import annotations

from collections import Counter

import pytest
from doubles_augment import record_of
from doubles_cli import Stairs, stairs
from doubles_store import store_of

from agentgym_rl.data.augment import augment_store
from agentgym_rl.data.augment_family import Augmentation
from agentgym_rl.data.augment_report import Report, RuleCounts
from agentgym_rl.episode import Limits
from agentgym_rl.errors import Manner, PolicyFailed
from agentgym_rl.policy import ScriptedPolicy


@pytest.mark.parametrize("manner", Manner)
def test_every_manner_in_which_a_policy_fails_is_its_failure_and_no_other(manner):
    report = Report(["prefix", "recovery"])
    others = {f"{whose}_{manner.value}": 5 for whose in ("environment", "tool", "judge")}
    rejected = Counter({PolicyFailed("x", manner).cause_name: 2, "not solved": 3, **others})
    report.rules["prefix"] = RuleCounts(kept=1, rejected=rejected)
    report.rules["recovery"].rejected[f"policy_{manner.value}"] = 1
    report.rules["recovery"].passed_over["not solved"] = 7
    assert report.policy_failures == 3


class Fails:
    def __init__(self, manner):
        self._manner = manner

    async def reply(self, conversation):
        raise PolicyFailed("no answer", self._manner)


@pytest.mark.parametrize("manner", [Manner.RAISED, Manner.TIMED_OUT, Manner.CRASHED])
def test_what_the_policy_failed_in_any_manner_is_played_again(tmp_path, manner):
    source = store_of(tmp_path / "s", *(record_of(stairs(name), "up", "down", "down") for name in "ab"))
    wanted = Augmentation({"prefix": 1}, policy="m", limits=Limits(max_turns=20))
    failing = {"b"}

    def make_policy(environment, task, episode):
        return Fails(manner) if task.id in failing else ScriptedPolicy(["up"] * 9)

    failed = augment_store(source, tmp_path / "out", wanted, make_policy)
    assert failed.report.rules["prefix"].rejected == {f"policy_{manner.value}": 1}
    assert (failed.report.policy_failures, failed.is_whole) == (1, False)
    assert not (tmp_path / "out").exists()
    failing.clear()
    Stairs.played.clear()
    done = augment_store(source, tmp_path / "out", wanted, make_policy)
    assert (done.report.policy_failures, done.report.kept, done.is_whole) == (0, 2, True)
    assert set(Stairs.played) == {"b"}
