"""First observations of tasks: read with a deadline, from an environment that is closed whatever happens."""

from __future__ import annotations

import asyncio

import pytest

from agentgym_rl.environment import Environment
from agentgym_rl.environments import registry
from agentgym_rl.episode import Limits
from agentgym_rl.errors import DataError, EnvironmentFailed
from agentgym_rl.messages import user
from agentgym_rl.task import Task
from data_preprocess import openings
from data_preprocess.openings import opening_of


class Opened(Environment):
    """A double that opens with its seed, never opens with the seed 0, and notes that it was closed."""

    closed = 0

    async def reset(self, task):
        if task.seed == 0:
            await asyncio.Event().wait()
        return [user(f"Look around, {task.seed}."), user("Go.")]

    async def step(self, action):
        raise AssertionError("only its opening is asked for")

    async def close(self):
        Opened.closed += 1


@pytest.fixture(autouse=True)
def double(monkeypatch):
    monkeypatch.setattr(registry, "make", lambda name: Opened())
    monkeypatch.setattr(Opened, "closed", 0)


def task(seed):
    return Task("t", "opened", seed=seed)


def test_an_opening_is_all_that_the_policy_is_shown_first():
    with opening_of("opened") as opening:
        assert [opening(task(seed)) for seed in (1, 2)] == ["Look around, 1.\nGo.", "Look around, 2.\nGo."]
        assert Opened.closed == 0
    assert Opened.closed == 1


def test_the_environment_is_closed_where_there_are_too_few_openings():
    with pytest.raises(DataError, match="too few"), opening_of("opened"):
        raise DataError("too few")
    assert Opened.closed == 1


def test_a_reset_that_never_ends_is_a_failure(monkeypatch):
    monkeypatch.setattr(openings, "Limits", lambda: Limits(reset_seconds=0.05))
    with pytest.raises(EnvironmentFailed, match="reset of 'opened' gave no answer within 0.05 s"):
        with opening_of("opened") as opening:
            opening(task(0))
    assert Opened.closed == 1
