"""How the pools' numbers reach a training step: from each process's reports to verl's metrics."""

from __future__ import annotations

import asyncio
from typing import Any

from agentgym_rl.environment import Facts
from agentgym_rl.environments.wire import Hello
from agentgym_rl.pool_statistics import PoolPeriod
from benchmarks.rollout.virtual_clock import run
from verl_ext import failures, pool_metrics
from verl_ext.failures import _Failures
from verl_ext.ray_pool_actor import Offer, Reply
from verl_ext.ray_pool_lease import Host
from verl_ext.ray_pool_line import Line


def test_reports_of_one_process_follow_each_other_and_processes_add_up():
    counter = _Failures()
    counter.report_pool("first", {"a": PoolPeriod(3, 5, 0, 1)})
    counter.report_pool("first", {"a": PoolPeriod(4, 2, 7, 2), "b": PoolPeriod(killed=1)})
    counter.report_pool("second", {"a": PoolPeriod(1, 1, 1, 0)})
    # of "a" in the first process: the higher of 3 and 4, 5 and 2, 0 and 7; kills 1 + 2; then the second's added
    assert counter.drain_pools() == {"a": PoolPeriod(5, 6, 8, 3), "b": PoolPeriod(killed=1)}
    assert counter.drain_pools() == {}


def test_each_number_is_a_metric_of_its_environment():
    assert pool_metrics.pool_metrics({"b": PoolPeriod(), "a": PoolPeriod(1, 2, 3, 4)}) == {
        "episode/a/pool/running_max": 1,
        "episode/a/pool/leased_max": 2,
        "episode/a/pool/waiting_max": 3,
        "episode/a/pool/killed": 4,
        "episode/b/pool/running_max": 0,
        "episode/b/pool/leased_max": 0,
        "episode/b/pool/waiting_max": 0,
        "episode/b/pool/killed": 0,
    }
    assert pool_metrics.pool_metrics({}) == {}


class ActorsOf:
    """Stands for a pool on a cluster."""

    async def end_period_of_actors(self) -> dict[str, PoolPeriod]:
        return {"a": PoolPeriod(running_max=6, leased_max=8, killed=1)}


def test_on_a_cluster_the_actors_say_what_was_lent_and_the_processes_who_waited(monkeypatch):
    monkeypatch.setattr(failures, "drain_pools", lambda: {"a": PoolPeriod(waiting_max=5), "b": PoolPeriod()})
    assert pool_metrics.step_periods(ActorsOf()) == {"a": PoolPeriod(6, 8, 5, 1), "b": PoolPeriod()}
    assert pool_metrics.step_periods(None) == {"a": PoolPeriod(waiting_max=5), "b": PoolPeriod()}


class FakeMethod:
    def __init__(self, call: Any):
        self.remote = call


class FullActor:
    """Grants nothing until it is opened; stands for a Ray actor's handle."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.acquire = FakeMethod(self._acquire)
        self.release = FakeMethod(lambda id, sound: self)

    async def _acquire(self, id: str, seconds: float) -> Reply:
        await self.opened.wait()
        return Reply(Offer("node", 1, Hello(Facts((0.0, 1.0), 1), "Play.")))

    def future(self) -> FullActor:
        return self

    def add_done_callback(self, callback: Any) -> None:
        """Nobody waits for the answer to a release."""


def test_requests_wait_until_an_actor_grants_them():
    async def three_requests_of_which_one_is_cancelled():
        actor = FullActor()
        line = Line("a", [Host("only", actor)], lost_seconds=60.0)
        asking = [asyncio.create_task(line.borrow(60.0)) for _ in range(3)]
        await asyncio.sleep(0.25)
        seen = [(line.waiting, line.end_period())]
        await asyncio.sleep(0.1)
        asking[1].cancel()
        await asyncio.sleep(0.1)
        seen += [(line.waiting, line.end_period()), (line.waiting, line.end_period())]
        await asyncio.sleep(0.1)
        seen.append((line.waiting, line.end_period()))
        actor.opened.set()
        await asyncio.gather(asking[0], asking[2])
        return [*seen, (line.waiting, line.end_period())]

    # Looks are at 0.1, 0.2, ... s: at three requests, at three and two, at nothing (no time went by), at two.
    assert run(three_requests_of_which_one_is_cancelled()) == [(3, 3), (2, 3), (2, 0), (2, 2), (0, 0)]


def test_requests_that_are_granted_at_once_never_waited():
    async def five_requests():
        actor = FullActor()
        actor.opened.set()
        line = Line("a", [Host("only", actor)], lost_seconds=60.0)
        await asyncio.gather(*(line.borrow(60.0) for _ in range(5)))
        return line.end_period()

    assert run(five_requests()) == 0
