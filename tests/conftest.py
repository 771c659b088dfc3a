"""Puts this folder on the import path, so that tests share their doubles, and registers the doubles' environments."""

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

import doubles
import doubles_pool

doubles.register_all()
doubles_pool.register_all()
# How long an example takes says nothing about the code on a busy machine.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def chats():
    """`ChatTokens` for each chat template, by name."""
    from doubles_chat import all_chats  # takes seconds to import: only for tests that ask for it

    return all_chats()


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory):
    """A default policy of BabyAI's words with random weights."""
    from agentgym_rl.environments.babyai import ACTIONS
    from verl_ext.default_policy import make_default_policy

    texts = [*ACTIONS, "Guess a number from 1 to 8.", "higher", "lower", "red ball two ahead one left"]
    return make_default_policy(tmp_path_factory.mktemp("policy") / "tiny", texts, hidden_size=32, max_tokens=2048)


@pytest.fixture(scope="session")
def untrained_policy(tmp_path_factory):
    """A default policy for whole trainings."""
    from verl_ext.default_policy import make_default_policy

    texts = ["Mission: go to the red ball. You see a red ball, two ahead.", "turn left", "move forward", "Play."]
    return make_default_policy(tmp_path_factory.mktemp("policy") / "start", texts * 20)


@pytest.fixture
async def pool_of():
    """Makes a pool; it is closed at the end. A test that waits for a slot that never comes is cancelled."""
    from agentgym_rl.pool import EnvironmentPool

    doubles_pool.Puppet.made.clear()
    async with AsyncExitStack() as stack:

        async def make(*args, **options):
            watchdog = asyncio.get_running_loop().call_later(20, asyncio.current_task().cancel)
            stack.callback(watchdog.cancel)
            return await stack.enter_async_context(EnvironmentPool(*args, **options))

        yield make
