"""A blocking environment on its own thread: in order, off the event loop, and no hang reaches anyone else."""

import asyncio
import threading

import pytest
from doubles import Guess, Raises, Recorder, task_for

from agentgym_rl.environments.threaded import ThreadedEnvironment
from agentgym_rl.errors import EnvironmentFailed
from agentgym_rl.messages import assistant


class Gate(Guess):
    """Holds its step until it is opened; remembers the threads that it ran on."""

    def __init__(self):
        self.open = threading.Event()
        self.threads = set()
        self.said = []

    def step(self, action):
        self.threads.add(threading.get_ident())
        self.said.append(action.content)
        self.open.wait(10)
        return super().step(action)


def assert_ended(name):
    """Every thread of this name ends."""
    threads = [thread for thread in threading.enumerate() if thread.name == name]
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)


async def test_every_method_of_the_blocking_environment_is_reached():
    environment = ThreadedEnvironment(Guess())
    assert environment.facts is Guess.facts
    assert environment.instructions == "Find the number."
    assert [m.content for m in await environment.reset(task_for(Guess))] == ["Guess a number from 1 to 8."]
    assert await environment.expert_action() == "4"
    state = await environment.snapshot()
    assert (await environment.step(assistant("4"))).observation[0].content == "higher"
    assert await environment.actions() == ["5", "6", "7", "8"]
    await environment.restore(state)
    assert len(await environment.actions()) == 8
    await environment.close()


async def test_the_event_loop_runs_on_while_a_step_blocks():
    gate = Gate()
    environment = ThreadedEnvironment(gate)
    await environment.reset(task_for(Guess))
    step = asyncio.ensure_future(environment.step(assistant("4")))
    while not gate.threads:
        await asyncio.sleep(0)
    assert not step.done()
    gate.open.set()
    assert (await step).valid
    assert threading.get_ident() not in gate.threads
    await environment.close()


async def test_calls_stay_in_order_on_one_thread():
    gate = Gate()
    gate.open.set()
    environment = ThreadedEnvironment(gate)
    await environment.reset(task_for(Guess))
    await asyncio.gather(*(environment.step(assistant(str(number))) for number in (1, 2, 3)))
    assert gate.said == ["1", "2", "3"]
    assert len(gate.threads) == 1
    await environment.close()


async def test_an_instance_that_hangs_holds_up_nobody_else():
    gate = Gate()
    hung, other = ThreadedEnvironment(gate), ThreadedEnvironment(Guess())
    await hung.reset(task_for(Guess))
    step = asyncio.ensure_future(hung.step(assistant("4")))
    await other.reset(task_for(Guess))
    assert (await other.step(assistant("7"))).success
    assert not step.done()
    gate.open.set()
    await step
    await hung.close()
    await other.close()


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("ValueError", ValueError, "seven"),
        ("StopIteration", EnvironmentFailed, "it raised StopIteration: seven"),
        ("SystemExit", EnvironmentFailed, "it raised SystemExit: 7"),
    ],
)
async def test_what_the_environment_raises_arrives(name, kind, message):
    environment = ThreadedEnvironment(Raises())
    await environment.reset(task_for(Raises, error=name))
    with pytest.raises(kind, match=message):
        await asyncio.wait_for(environment.step(assistant("4")), 5)
    assert await environment.expert_action() == "4"  # its thread lives on
    await environment.close()


async def test_an_answer_after_the_caller_gave_up_harms_nobody():
    gate = Gate()
    environment = ThreadedEnvironment(gate)
    await environment.reset(task_for(Guess))
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(environment.step(assistant("4")), 0.05)
    gate.open.set()
    assert (await environment.step(assistant("7"))).success
    await environment.close()


def test_an_answer_after_the_event_loop_was_closed_harms_nobody():
    gate = Gate()
    environment = ThreadedEnvironment(gate)

    async def leave():
        await environment.reset(task_for(Guess))
        step = asyncio.ensure_future(environment.step(assistant("4")))
        while not gate.threads:
            await asyncio.sleep(0)
        assert not step.done()

    asyncio.run(leave())
    gate.open.set()
    environment._thread.stop()
    assert_ended("Gate")


async def test_close_reaches_the_environment_once_and_ends_the_thread():
    Recorder.closes = 0
    environment = ThreadedEnvironment(Recorder())
    await environment.reset(task_for(Recorder))
    await environment.close()
    await environment.close()
    assert Recorder.closes == 1
    assert_ended("Recorder")


async def test_use_after_close_is_refused_by_name():
    environment = ThreadedEnvironment(Guess())
    await environment.close()
    with pytest.raises(EnvironmentFailed, match="^Guess was used after close$"):
        await environment.reset(task_for(Guess))
