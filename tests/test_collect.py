"""What is collected is kept as it was played, once, however often the collection is stopped."""

from __future__ import annotations

import asyncio

import pytest
from doubles_cli import STAIRS, Stairs, stairs
from doubles_store import ids

from agentgym_rl.data import collect as collecting
from agentgym_rl.data import versions
from agentgym_rl.data.collect import Collected, collect
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.episode import Limits
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.policy import ExpertPolicy, ScriptedPolicy


@pytest.fixture(autouse=True)
def _forget_earlier_episodes():
    Stairs.played.clear()
    Stairs.open_now = 0


def expert(environment, task, episode):
    return ExpertPolicy(environment)


async def test_every_episode_is_kept_with_its_provenance_failed_ones_too(tmp_path):
    store = TrajectoryStore(tmp_path)
    tasks = [stairs("low"), stairs("high", height=9), stairs("broken", breaks=True)]
    done = await collect(expert, tasks, store, "expert", {"seed": 3}, Limits(max_turns=4), episodes_per_task=2)
    assert done == Collected(found=0, played=6, solved=2, failed=2)
    kept = list(store.records())
    assert sorted((one.trajectory.task.id, one.provenance.episode) for one in kept) == [
        (task, episode) for task in ("broken", "high", "low") for episode in (0, 1)
    ]
    low = next(one for one in kept if one.trajectory.task.id == "low")
    assert low.trajectory.success is True
    assert [turn.reply.message.content for turn in low.trajectory.turns] == ["up", "up"]
    assert low.provenance.source == "collect"
    assert low.provenance.policy == "expert"
    assert low.provenance.sampling == {"seed": 3, "max_turns": 4}
    assert low.provenance.environment_version == "doubles_cli"
    assert low.provenance.code_version == versions.code_version()


async def test_a_second_run_plays_nothing_and_more_episodes_play_only_what_is_missing(tmp_path):
    store, tasks = TrajectoryStore(tmp_path), [stairs("a"), stairs("b", breaks=True)]
    await collect(expert, tasks, store, "expert")
    before = ids(store)
    assert await collect(expert, tasks, store, "expert") == Collected(2, 0, 0, 0)
    assert ids(store) == before
    seen = []
    more = await collect(expert, tasks, store, "expert", episodes_per_task=2, on_episode=seen.append)
    assert more == Collected(found=2, played=2, solved=1, failed=1)
    assert len(set(ids(store))) == 4
    assert sorted(Stairs.played) == ["a", "a", "b", "b"]
    assert [one is None for one in seen] == [True, True, False, False]


@pytest.mark.parametrize(
    "changed",
    [
        {"policy": "other"},
        {"sampling": {"seed": 1}},
        {"limits": Limits(max_turns=5)},
        {"tasks": [stairs("a", height=1)]},
    ],
)
async def test_episodes_of_another_policy_sampling_limit_or_task_are_others(tmp_path, changed):
    store = TrajectoryStore(tmp_path)
    same = {"tasks": [stairs("a")], "policy": "expert", "sampling": {"seed": 0}, "limits": Limits(max_turns=4)}
    await collect(expert, store=store, **same)
    assert (await collect(expert, store=store, **{**same, **changed})).played == 1
    assert len(set(ids(store))) == 2


async def test_what_had_finished_when_a_collection_was_stopped_is_not_played_again(tmp_path):
    tasks, store = [stairs("a"), stairs("b"), stairs("c")], TrajectoryStore(tmp_path)

    def make_policy(environment, task, episode):
        if task.id == "c":
            raise ConfigurationError("this policy has no model")
        return ExpertPolicy(environment)

    with pytest.raises(ConfigurationError, match="this policy has no model"):
        await collect(make_policy, tasks, store, "expert", concurrency=1)
    assert [one.trajectory.task.id for one in store.records()] == ["a", "b"]
    assert await collect(expert, tasks, store, "expert") == Collected(2, 1, 1, 0)
    assert Stairs.open_now == 0


async def test_finished_episodes_are_on_disk_while_others_are_under_way(tmp_path, monkeypatch):
    monkeypatch.setattr(collecting, "FLUSH_SECONDS", 0.01)
    store, tasks = TrajectoryStore(tmp_path), [stairs("a"), stairs("slow", hangs=True)]
    running = asyncio.ensure_future(collect(expert, tasks, store, "expert", limits=Limits(step_seconds=3600)))
    while not store.parts():
        await asyncio.sleep(0.01)
    assert [one.trajectory.task.id for one in store.records()] == ["a"]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert Stairs.open_now == 0


async def test_an_episode_that_can_not_be_written_ends_the_collection_and_loses_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(collecting, "FLUSH_SECONDS", 0.01)
    store, tasks = TrajectoryStore(tmp_path), [stairs("a"), stairs("\ud800"), stairs("slow", hangs=True)]
    with pytest.raises(DataError, match="records .* can't be written: .*surrogates not allowed"):
        await collect(expert, tasks, store, "expert", limits=Limits(step_seconds=0.5))
    assert [one.trajectory.task.id for one in store.records()] == ["a", "slow"]


async def test_two_collections_into_one_store_at_once_are_refused(tmp_path):
    store, tasks = TrajectoryStore(tmp_path), [stairs("slow", hangs=True)]
    running = asyncio.ensure_future(collect(expert, tasks, store, "expert", limits=Limits(step_seconds=3600)))
    while not Stairs.open_now:
        await asyncio.sleep(0.01)
    with pytest.raises(ConfigurationError, match="another process is adding to the store"):
        await collect(expert, tasks, store, "expert")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await collect(expert, [stairs("a")], store, "expert")).solved == 1


class Unreachable:
    """A policy whose server is down."""

    async def reply(self, conversation):
        raise ConnectionError("connection refused")


async def test_what_the_policy_failed_is_counted_but_not_kept_and_is_played_again(tmp_path):
    store, tasks, seen = TrajectoryStore(tmp_path), [stairs("a"), stairs("b"), stairs("c", breaks=True)], []

    def make_policy(environment, task, episode):
        return Unreachable() if task.id == "b" else ExpertPolicy(environment)

    done = await collect(make_policy, tasks, store, "expert", on_episode=seen.append)
    assert done == Collected(found=0, played=3, solved=1, failed=2, not_kept=1)
    assert sorted(one.trajectory.task.id for one in store.records()) == ["a", "c"]
    assert len(seen) == 3
    assert await collect(expert, tasks, store, "expert") == Collected(found=2, played=1, solved=1, failed=0)
    assert sorted(one.trajectory.task.id for one in store.records()) == ["a", "b", "c"]


async def test_a_policy_is_told_the_number_of_its_episode(tmp_path):
    def make_policy(environment, task, episode):
        return ScriptedPolicy(["up"] * (episode + 1))

    done = await collect(make_policy, [stairs("a")], TrajectoryStore(tmp_path), "s", episodes_per_task=2)
    assert done.solved == 1


async def test_what_can_not_be_played_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="there is no task to play"):
        await collect(expert, [], TrajectoryStore(tmp_path), "expert")
    with pytest.raises(ConfigurationError, match="2 tasks have the id 'a'"):
        await collect(expert, [stairs("a"), stairs("a")], TrajectoryStore(tmp_path), "expert")


def checkpoint(folder, weights=b"1"):
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def test_a_checkpoint_is_known_by_what_is_in_it_wherever_it_lies(tmp_path):
    first, same = checkpoint(tmp_path / "a"), checkpoint(tmp_path / "b")
    other = checkpoint(tmp_path / "c", b"2")
    assert versions.checkpoint_digest(first) == versions.checkpoint_digest(same) != versions.checkpoint_digest(other)
    assert versions.policy_version(f"checkpoint:{first}") == f"checkpoint:{first}#{versions.checkpoint_digest(first)}"
    assert versions.policy_version("server:m@http://x") == "server:m@http://x"


def test_an_environments_version_is_that_of_the_distribution_it_comes_from():
    assert versions.environment_version("babyai").startswith("openmanus-rl ")
    assert versions.environment_version("pytest:Item").startswith("pytest ")
    assert versions.environment_version(STAIRS) == "doubles_cli"
