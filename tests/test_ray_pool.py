"""The pool as Ray actors, on two nodes of a cluster on this machine: what a node, an actor or a holder takes along."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed, Manner
from agentgym_rl.messages import assistant
from agentgym_rl.policy import ScriptedPolicy
from agentgym_rl.pool_statistics import PoolPeriod
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason
from verl_ext.ray_pool_placement import Placement

HERE = Path(__file__).parent
LOCATED = "doubles_ray_pool:Located"
COUNTDOWN = "doubles:Countdown"
NODE = {"num_cpus": 2, "resources": {"environments": 1}, "object_store_memory": 80 * 2**20}
ONE_A_NODE = {"environments": 1}


@pytest.fixture(scope="module")
def cluster():
    """Two nodes, which have room for one actor each that takes `ONE_A_NODE`."""
    import ray
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE.parent), str(HERE)]))
        patch.delenv("RAY_ADDRESS", raising=False)
        soon = {"health_check_period_ms": 1000}  # Ray takes five of these to declare a node dead
        made = Cluster(True, head_node_args={**NODE, "include_dashboard": False, "_system_config": soon})
        try:
            ray.init(made.address, log_to_driver=False)
            made.add_node(**NODE)
            yield made
        finally:
            ray.shutdown()
            made.shutdown()


@pytest.fixture
async def start(cluster, request):
    """Starts pools; they are closed at the end. A test that waits for what never comes is cancelled."""
    from verl_ext.ray_pool import RayPool

    watchdog = asyncio.get_running_loop().call_later(120, asyncio.current_task().cancel)
    pools = []

    def started(*kinds, name=request.node.name, lost_seconds=120.0, **placement):
        options = {"actors": 1, "slots_per_actor": 1, "num_cpus": 0, **placement}
        pools.append(RayPool.start(name, {kind: Placement(**options) for kind in kinds}, lost_seconds))
        return pools[-1]

    yield started
    for pool in pools:
        await pool.close()
    watchdog.cancel()


async def until(condition):
    for _ in range(600):
        if await condition():
            return
        await asyncio.sleep(0.05)
    pytest.fail("it never happened")


def actors_that_answer(pool, number):
    async def condition():
        return sum(found is not None for found in (await pool.actors()).values()) == number

    return condition


async def alone(pool):
    """What the only actor says of itself, once it has started."""
    for _ in range(20):
        [stats] = (await pool.actors()).values()
        if stats is not None:
            return stats
    return pytest.fail("the actor never answered")


def task(kind, id="t", **arguments):
    return Task(id, kind, arguments)


async def played(pool, kind, *lines, seconds=60.0, limits=None):
    """One episode in a lease of its own."""
    async with pool.lease(kind, seconds) as environment:
        return await play(ScriptedPolicy(lines), environment, task(kind), limits)


async def step_for_ever(environment):
    while True:
        await environment.step(assistant("3"))


class WaitsAtTheGate:
    """Solves a countdown from 3; between its two turns it waits for the gate."""

    def __init__(self):
        self.gate = asyncio.Event()
        self.arrived = 0

    async def reply(self, conversation):
        if len(conversation) == 2:  # instructions and first observation
            return await ScriptedPolicy(["1"]).reply(conversation)
        self.arrived += 1
        await self.gate.wait()
        return await ScriptedPolicy(["2"]).reply(conversation)


async def nodes_of(pool, leases):
    """The node of each of so many leases at a time."""
    async with AsyncExitStack() as stack:
        environments = [await stack.enter_async_context(pool.lease(LOCATED)) for _ in range(leases)]
        return [(await environment.reset(task(LOCATED)))[0].content for environment in environments]


@pytest.mark.slow
async def test_a_node_that_dies_takes_its_leases_along_and_nothing_else(cluster, start):
    head = cluster.head_node.node_id
    [second] = cluster.worker_nodes
    pool = start(LOCATED, actors=2, slots_per_actor=6, resources=ONE_A_NODE)
    policy = WaitsAtTheGate()
    emitted = []

    async def session(number):
        async with pool.lease(LOCATED, 60) as environment:
            emitted.append(await play(policy, environment, task(LOCATED, f"t{number}")))

    sessions = [asyncio.ensure_future(session(number)) for number in range(24)]

    async def all_slots_play():
        return policy.arrived == 12

    await until(all_slots_play)
    cluster.remove_node(second, allow_graceful=False)
    await until(actors_that_answer(pool, 1))
    policy.gate.set()
    await asyncio.gather(*sessions)

    assert sorted(trajectory.task.id for trajectory in emitted) == sorted(f"t{number}" for number in range(24))
    lost = [trajectory for trajectory in emitted if trajectory.opening[-1].content == second.node_id]
    rest = [trajectory for trajectory in emitted if trajectory not in lost]
    assert len(lost) == 6
    assert {trajectory.failure.cause for trajectory in lost} == {"environment_crashed"}
    assert "step of environment 'doubles_ray_pool:Located': actor 'agentgym_pool_" in lost[0].failure.message
    assert f"({second.node_id[:8]}) is gone" in lost[0].failure.message
    assert {trajectory.opening[-1].content for trajectory in rest} == {head}
    assert all(trajectory.success for trajectory in rest)

    new = cluster.add_node(**NODE)
    await until(actors_that_answer(pool, 2))  # Ray has restarted the actor, nobody made a new one
    assert sorted(await nodes_of(pool, 12)) == sorted([head] * 6 + [new.node_id] * 6)


@pytest.mark.slow
async def test_an_actor_that_dies_is_restarted_without_its_leases(start):
    import ray

    pool = start(LOCATED, name="mortal", slots_per_actor=2)
    async with pool.lease(LOCATED) as environment, pool.lease(LOCATED):
        await environment.reset(task(LOCATED))
        ray.kill(ray.get_actor(f"agentgym_pool_mortal_{LOCATED}_0"), no_restart=False)
        with pytest.raises(EnvironmentFailed, match="is gone") as caught:
            await step_for_ever(environment)  # the kill takes a moment
        assert caught.value.manner is Manner.CRASHED
        await until(actors_that_answer(pool, 1))
        with pytest.raises(EnvironmentFailed, match="has no such lease: it was restarted since") as caught:
            await environment.step(assistant("1"))
        assert caught.value.manner is Manner.CRASHED
        assert len(await nodes_of(pool, 2)) == 2  # while the old leases are still held: they take no slot


@pytest.mark.slow
async def test_a_pool_without_a_living_actor_says_so_by_its_deadline(start):
    import ray

    pool = start(COUNTDOWN, name="dead", lost_seconds=3.0)
    await until(actors_that_answer(pool, 1))
    assert (await played(pool, COUNTDOWN, "1", "2")).success
    ray.kill(ray.get_actor(f"agentgym_pool_dead_{COUNTDOWN}_0"), no_restart=True)
    await until(actors_that_answer(pool, 0))
    with pytest.raises(EnvironmentFailed, match="no actor for environment 'doubles:Countdown' has answered") as caught:
        await played(pool, COUNTDOWN)
    assert "actor 'agentgym_pool_dead_doubles:Countdown_0' on node" in str(caught.value)
    assert caught.value.manner is Manner.CRASHED


@pytest.mark.slow
async def test_an_actor_that_hangs_delays_nobody_but_its_holders_and_those_until_their_deadline(start):
    kind = "doubles:Tells"
    pool = start(kind, actors=2, slots_per_actor=4)
    await until(actors_that_answer(pool, 2))
    async with pool.lease(kind, 2.0) as environment, pool.lease(kind) as other:
        await environment.reset(task(kind))
        told = await environment.step(assistant("pid"))
        os.kill(int(told.observation[0].content), signal.SIGSTOP)
        try:
            async with pool.lease(kind) as third, pool.lease(kind) as fourth:
                assert third.host is fourth.host is other.host
            with pytest.raises(EnvironmentFailed, match=r"step of .* at actor '.*' on .* gave no answer") as caught:
                await environment.step(assistant("pid"))
            assert caught.value.manner is Manner.TIMED_OUT
        finally:
            os.kill(int(told.observation[0].content), signal.SIGCONT)


@pytest.mark.slow
async def test_a_kind_is_counted_over_its_actors_and_killed_leases_with_it(start):
    pool = start(COUNTDOWN, actors=2, slots_per_actor=2)
    await until(actors_that_answer(pool, 2))
    async with pool.lease(COUNTDOWN), pool.lease(COUNTDOWN), pool.lease(COUNTDOWN, seconds=0.5):
        assert (await pool.statistics())[COUNTDOWN].leased == 3

        async def one_is_killed():
            return (await pool.statistics())[COUNTDOWN].killed == 1

        await until(one_is_killed)
    found = await pool.end_period_of_actors()
    assert found[COUNTDOWN].killed == 1
    assert found[COUNTDOWN].leased_max >= 3  # a request that both actors granted was lent twice, for a moment
    assert (await pool.end_period_of_actors())[COUNTDOWN].killed == 0


@pytest.mark.slow
async def test_requests_that_a_full_actor_keeps_waiting_are_counted_where_they_wait(start):
    pool = start(COUNTDOWN)
    async with pool.lease(COUNTDOWN):
        waiting = [asyncio.ensure_future(played(pool, COUNTDOWN, "1", "2")) for _ in range(3)]
        peaks = []

        async def all_wait():
            peaks.append(pool.end_period()[COUNTDOWN].waiting_max)
            return peaks[-1] == 3

        await until(all_wait)
        assert (await pool.statistics())[COUNTDOWN].waiting == 3
    assert all(trajectory.success for trajectory in await asyncio.gather(*waiting))
    assert max(peaks) == 3
    assert (await pool.statistics())[COUNTDOWN].waiting == 0
    assert (await pool.end_period_of_actors())[COUNTDOWN].waiting_max == 0


@pytest.mark.slow
def test_what_a_process_reports_of_its_pool_reaches_the_trainer(cluster):
    from verl_ext import failures

    failures.report_pool({"a": PoolPeriod(1, 1, 1, 1)})  # nobody counts yet
    counter = failures.start()
    failures.report_pool({"a": PoolPeriod(3, 5, 0, 1)})
    failures.report_pool({"a": PoolPeriod(4, 2, 7, 2)})
    assert failures.drain_pools() == {"a": PoolPeriod(4, 5, 7, 3)}
    assert failures.drain_pools() == {}
    del counter


@pytest.mark.slow
async def test_a_pool_is_addressed_by_name_from_another_process_which_needs_neither_verl_nor_torch(start):
    import doubles_ray_pool  # its module can be imported there
    import ray

    pool = start(COUNTDOWN, name="shared")
    async with pool.lease(COUNTDOWN):
        playing = asyncio.ensure_future(ray.remote(doubles_ray_pool.play_in).remote("shared", COUNTDOWN))

        async def it_waits():
            return playing.done() or (await alone(pool)).waiting == 1

        await until(it_waits)
    assert await playing == (True, [])
    assert (await alone(pool)).reused == 1


@pytest.mark.slow
async def test_the_actor_with_the_fewest_leases_is_asked_first(start):
    pool = start(COUNTDOWN, actors=2, slots_per_actor=4)
    await until(actors_that_answer(pool, 2))
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(pool.lease(COUNTDOWN))
        assert [found.leased for found in (await pool.actors()).values()] == [2, 2]


@pytest.mark.slow
async def test_a_request_that_is_cancelled_takes_no_slot_and_spoils_nothing(start):
    pool = start(COUNTDOWN)
    async with pool.lease(COUNTDOWN):
        waiting = asyncio.ensure_future(played(pool, COUNTDOWN))
        behind = asyncio.ensure_future(played(pool, COUNTDOWN, "1", "2"))

        async def it_waits():
            return (await alone(pool)).waiting == 1

        await until(it_waits)
        waiting.cancel()
        await asyncio.wait({waiting})
    assert (await behind).success
    stats = await alone(pool)
    assert (stats.created, stats.reused, stats.failed) == (1, 1, 0)


@pytest.mark.slow
async def test_an_instance_that_its_holder_spoiled_is_not_lent_again(start):
    pool = start(COUNTDOWN)
    async with pool.lease(COUNTDOWN) as environment:
        environment.spoil()
    with pytest.raises(ZeroDivisionError):
        async with pool.lease(COUNTDOWN):
            raise ZeroDivisionError
    async with pool.lease(COUNTDOWN):
        stats = await alone(pool)
    assert (stats.created, stats.reused, stats.failed) == (3, 0, 2)


@pytest.mark.slow
async def test_a_holder_that_is_cancelled_in_a_call_gives_its_slot_back(start):
    kind = "doubles:HangsAwaiting"
    pool = start(kind)
    called = asyncio.Event()

    async def hold():
        async with pool.lease(kind) as environment:
            await environment.reset(task(kind))
            called.set()  # nothing is awaited from here to the call
            await environment.step(assistant("1"))

    holder = asyncio.ensure_future(hold())
    await called.wait()
    holder.cancel()
    trajectory = await played(pool, kind, "1", limits=Limits(step_seconds=0.2))
    assert trajectory.failure.cause == "environment_timed_out"
    async with pool.lease(kind):
        assert (await alone(pool)).failed == 2


@pytest.mark.slow
async def test_a_lease_ends_by_its_deadline_whoever_forgets_it(start):
    kind = "doubles:HangsAwaiting"
    pool = start(kind)
    async with pool.lease(kind, 0.5) as environment:
        await environment.reset(task(kind))
        with pytest.raises(EnvironmentFailed, match="the lease of environment '.*' ended after 0.5 s") as caught:
            await environment.step(assistant("1"))
        assert caught.value.manner is Manner.TIMED_OUT
        async with pool.lease(kind):  # its slot is free
            pass
    with pytest.raises(EnvironmentFailed, match="used after its lease"):
        await environment.step(assistant("1"))


@pytest.mark.slow
async def test_what_an_environment_raises_arrives_with_its_type_manner_and_traceback(start):
    kinds = ["doubles:Raises", "doubles_ray_pool:InfoThatCannotTravel", "doubles_ray_pool:NowhereToBeMade", COUNTDOWN]
    raises, untravelled, nowhere, countdown = kinds
    pool = start(*kinds)

    failure = (await played(pool, raises, "1")).failure
    assert failure.cause == "environment_raised"
    assert "step of environment 'doubles:Raises' raised" in failure.message
    assert 'doubles.py", line' in failure.traceback

    failure = (await played(pool, untravelled, "1")).failure
    assert failure.cause == "environment_raised"
    assert "cannot pickle '_thread.lock' object" in failure.message

    with pytest.raises(EnvironmentFailed, match=r"lease of environment '.*' raised OSError: no room"):
        await played(pool, nowhere)
    async with pool.lease(countdown) as environment:
        with pytest.raises(ConfigurationError, match="does not list its actions"):
            await environment.actions()


@pytest.mark.slow
async def test_a_worker_process_that_crashes_ends_its_lease_alone(start):
    kind = "doubles:Crashes"
    pool = start(kind, isolation="process")
    crashed = await played(pool, kind, "segfault")
    assert crashed.failure.cause == "environment_crashed"
    assert "killed by SIGSEGV" in crashed.failure.message
    assert (await played(pool, kind, *"12345678")).stop in (StopReason.TERMINATED, StopReason.TRUNCATED)


@pytest.mark.slow
async def test_every_call_of_the_interface_reaches_the_environment(start):
    kind = "doubles:Guess"
    pool = start(kind, LOCATED)
    async with pool.lease(kind) as environment:
        assert environment.facts.can_snapshot
        await environment.reset(task(kind))
        assert await environment.actions() == [*"12345678"]
        assert await environment.expert_action() == "4"
        snapshot = await environment.snapshot()
        await environment.step(assistant("4"))
        assert await environment.actions() != [*"12345678"]
        await environment.restore(snapshot)
        assert await environment.actions() == [*"12345678"]
        await environment.close()
    assert (await played(pool, LOCATED)).opening[0].content == "Play t."


@pytest.mark.slow
async def test_a_wrong_name_is_said_at_once(start):
    from verl_ext.ray_pool import RayPool

    pool = start(COUNTDOWN, name="taken")
    with pytest.raises(ConfigurationError, match="'taken' is running already; connect to it"):
        RayPool.start("taken", {COUNTDOWN: Placement()})
    with pytest.raises(ConfigurationError, match="the pool 'absent' was not started"):
        RayPool.connect("absent", {COUNTDOWN: Placement()})
    with pytest.raises(ConfigurationError, match="'agentgym_pool_taken_doubles:Countdown_1'"):
        RayPool.connect("taken", {COUNTDOWN: Placement(actors=2)})
    with pytest.raises(ConfigurationError, match="no environment 'babya'; did you mean 'babyai'"):
        RayPool.start("other", {"babya": Placement()})
    with pytest.raises(ConfigurationError, match="the pool has no environment 'doubles:Count'; did you mean"):
        await played(pool, "doubles:Count")
    with pytest.raises(ConfigurationError, match="seconds must be above 0; given: 0"):
        await played(pool, COUNTDOWN, seconds=0)
    with pytest.raises(ConfigurationError, match="lost_seconds must be above 1, .*; given: 0.5"):
        RayPool.connect("taken", {COUNTDOWN: Placement()}, lost_seconds=0.5)


def test_the_pool_is_imported_without_verl_and_torch():
    code = "import sys, verl_ext.ray_pool; print({'verl', 'torch', 'transformers'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], cwd=HERE.parent, capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"actors": 0}, "a placement's actors must be at least 1; given: 0"),
        ({"slots_per_actor": 0}, "a placement's slots_per_actor must be at least 1; given: 0"),
        ({"num_cpus": -1}, "a placement's num_cpus must be at least 0; given: -1"),
        ({"resources": {"browsers": -2}}, "a placement's browsers must be at least 0; given: -2"),
        ({"isolation": "container"}, "isolation must be one of thread, process; given: 'container'"),
    ],
)
def test_a_placement_that_cannot_work_is_refused(given, message):
    with pytest.raises(ConfigurationError, match=message):
        Placement(**given)
