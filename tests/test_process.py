"""An environment in a worker process: everything crosses the pipe, and whatever it does to its process stays there."""

import asyncio
import os
import sys
import venv
from pathlib import Path

import pytest
from doubles import (
    Countdown,
    Crashes,
    Everything,
    ExitsInReset,
    Guess,
    Hangs,
    HangsInClose,
    HasChildren,
    Huge,
    InfoIsNoJson,
    NanReward,
    Prints,
    Raises,
    RaisesAwaiting,
    Recorder,
    Tells,
    task_for,
)
from hypothesis import given
from hypothesis import strategies as st
from strategies import json_values

from agentgym_rl.environment import Facts, StepResult
from agentgym_rl.environments import process, registry, wire
from agentgym_rl.environments.process import ProcessEnvironment
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed, Manner, ToolFailed, boundary
from agentgym_rl.messages import Message, ToolCall, assistant, user
from agentgym_rl.policy import ExpertPolicy, ScriptedPolicy
from agentgym_rl.task import Task
from agentgym_rl.tools import ToolSchema
from agentgym_rl.trajectory import StopReason


@pytest.fixture
async def made():
    """Makes a `ProcessEnvironment` of a double; it is closed at the end."""
    instances = []

    def make(double, **options):
        instances.append(ProcessEnvironment(f"doubles:{double.__name__}", **options))
        return instances[-1]

    yield make
    for instance in instances:
        await instance.close()


async def started(made, double, options=None, **arguments):
    environment = made(double, **options or {})
    await environment.reset(task_for(double, **arguments))
    return environment


async def told(environment, question):
    return (await environment.step(assistant(question))).observation[0].content


async def until_gone(pid):
    """Wait until a process has ended; one that was killed and not yet reaped has. Fails where it lives on."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"process {pid} lives on")


# What crosses


@pytest.mark.parametrize("double", [Guess, Countdown])
async def test_an_episode_in_a_worker_is_the_episode_in_this_process(made, double):
    task = task_for(double, seed=5)
    environment = made(double)
    apart = await play(ExpertPolicy(environment), environment, task)
    async with registry.opened(task.environment) as environment:
        here = await play(ExpertPolicy(environment), environment, task)
    assert apart.messages == here.messages
    assert [turn.reward for turn in apart.turns] == [turn.reward for turn in here.turns]
    assert (apart.stop, apart.success, apart.fingerprint) == (StopReason.TERMINATED, True, here.fingerprint)


async def test_every_field_of_messages_and_results_crosses(made):
    arguments = {"level": [1, {"deep": None}], "text": "zwölf \u2028 \x00"}
    environment = made(Everything)
    assert [tool.name for tool in environment.tools] == ["say"]
    seen = await environment.reset(task_for(Everything, **arguments))
    assert environment.facts == Everything.facts
    assert environment.instructions == "Go on."
    assert environment.tools == (*Everything.tools, ToolSchema("go_on", "", {}))
    assert seen[0].tool_call_id == "call-1"
    assert seen[1] == user("zwölf\n\u2028")
    call = ToolCall("add", {"a": [1, 2]}, "id-7")
    result = await environment.step(assistant("both", (call,)))
    assert result == StepResult(
        (Message("tool", "1", (), "a"), assistant("", (call,)), user("both")),
        *(-1.5, False, True, None, False),
        {"score": [1, {"a": None}]},
    )


async def test_snapshots_and_listed_actions_cross(made):
    environment, other = await started(made, Guess), made(Guess)
    state = await environment.snapshot()
    await environment.step(assistant("4"))
    assert await environment.actions() == ["5", "6", "7", "8"]
    await environment.restore(state)
    assert len(await environment.actions()) == 8
    await other.restore(state)  # in a worker that starts with it
    assert (await other.step(assistant("7"))).success


async def test_an_observation_of_ten_megabytes_crosses(made):
    environment = await started(made, Huge)
    assert await told(environment, str(10_000_000)) == "ü" * 10_000_000


async def test_an_action_of_ten_megabytes_crosses(made):
    environment = await started(made, Everything)
    assert (await environment.step(assistant("x" * 10_000_000))).observation[2].content == "x" * 10_000_000


async def test_an_answer_above_the_limit_is_a_failure_that_says_so(made, monkeypatch):
    monkeypatch.setattr(process, "LINE_BYTES", 10_000)
    environment = await started(made, Huge)
    with pytest.raises(EnvironmentFailed, match="answered more than 10000 bytes; its worker was killed"):
        await told(environment, "20000")


async def test_a_reward_that_is_no_number_crosses_and_fails_the_episode(made):
    environment = await started(made, NanReward)
    trajectory = await play(ScriptedPolicy(["4"]), environment, task_for(NanReward))
    assert "a reward is a finite number; given: nan" in trajectory.failure.message


async def test_info_that_is_no_json_is_refused_by_name_and_the_worker_lives_on(made):
    environment = await started(made, InfoIsNoJson)
    with pytest.raises(
        EnvironmentFailed, match="step of 'doubles:InfoIsNoJson' raised TypeError: Object of type object"
    ):
        await environment.step(assistant("4"))
    assert await environment.expert_action() == "4"


@given(
    st.builds(
        StepResult,
        observation=st.lists(st.builds(user, st.text()), max_size=2).map(tuple),
        reward=st.floats(allow_nan=False),
        terminated=st.booleans(),
        truncated=st.booleans(),
        success=st.none() | st.booleans(),
        valid=st.booleans(),
        info=st.dictionaries(st.text(), json_values, max_size=2),
    )
)
def test_a_step_result_survives_the_wire_on_one_line(result):
    codec = wire.RESULTS["step"]
    line = wire.to_line({"result": codec.encode(result)})
    assert line.count(b"\n") == 1
    assert codec.decode(wire.json.loads(line)["result"]) == result


# Facts


def test_the_constructor_starts_nothing_and_knows_the_facts_of_an_importable_class(made):
    environment = ProcessEnvironment("doubles:Guess")
    assert environment.facts == Guess.facts
    assert environment.instructions == "Find the number."


async def test_facts_that_only_the_worker_can_import_are_known_once_it_has_started(tmp_path):
    (tmp_path / "elsewhere.py").write_text("import doubles\n\nclass There(doubles.Everything):\n    pass\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = ProcessEnvironment("elsewhere:There", variables={"PYTHONPATH": path})
    with pytest.raises(
        ConfigurationError, match=r"facts of 'elsewhere:There' are known once `await start\(\)` has run"
    ):
        _ = environment.facts
    await environment.start()
    await environment.start()
    assert environment.facts == Facts(
        (-2.0, float("inf")), 9, source="own", licence="MIT", deterministic=False, reusable=False, any_text=True
    )
    assert environment.instructions == "Say everything."
    await environment.close()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("doubles", "an environment's target reads 'module:Class'; given: 'doubles'"),
        ("doubles:Maze", "the module 'doubles' has no 'Maze'"),
    ],
)
def test_a_target_that_can_not_work_is_refused_at_once(target, message):
    with pytest.raises(ConfigurationError, match=f"^{message}$"):
        ProcessEnvironment(target)


async def test_a_target_that_nobody_can_import_is_wrong_configuration():
    environment = ProcessEnvironment("no_such_module:Maze")
    with pytest.raises(ConfigurationError, match="'no_such_module:Maze' can't be imported by .*No module named"):
        await environment.reset(Task("t", "maze"))
    await environment.close()


# The process


async def test_prints_and_reads_can_not_touch_the_protocol(made):
    environment = await started(made, Prints)
    assert await told(environment, "4") == "read ''"
    assert await environment.expert_action() == "4"


async def test_hashes_are_the_same_in_every_worker_and_variables_are_set(made):
    one = await started(made, Tells)
    other = await started(made, Tells, {"variables": {"DOUBLE": "yes"}})
    assert await told(one, "hash") == await told(other, "hash")
    assert await told(one, "pid") != await told(other, "pid")
    assert await told(one, "variable") == "None"
    assert await told(other, "variable") == "yes"


async def test_what_the_worker_starts_does_not_inherit_our_import_path(made):
    environment = await started(made, Tells)
    assert await told(environment, "python_path") == str(os.environ.get("PYTHONPATH"))


async def test_another_interpreter_runs_the_worker(made, tmp_path):
    venv.create(tmp_path / "venv", symlinks=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent)])
    environment = await started(made, Tells, {"interpreter": python, "variables": {"PYTHONPATH": path}})
    assert await told(environment, "executable") == python != sys.executable


async def test_an_interpreter_that_does_not_exist_is_wrong_configuration(made):
    environment = made(Guess, interpreter="/no/such/python")
    with pytest.raises(ConfigurationError, match="interpreter '/no/such/python' can't be run: .*No such file"):
        await environment.reset(task_for(Guess))


# Faults


@pytest.mark.parametrize(
    ("way", "how"),
    [
        ("exit", "ended with exit code 3; stderr:\nabout to end$"),
        ("sys.exit", "ended with exit code 4"),
        ("kill", "was killed by SIGKILL; stderr:\nabout to end$"),
        ("segfault", "was killed by SIGSEGV; stderr:\nabout to end\nFatal Python error: Segmentation fault"),
    ],
)
async def test_a_worker_that_dies_is_a_crash_that_says_how(made, way, how):
    environment = await started(made, Crashes)
    with pytest.raises(EnvironmentFailed, match=f"^step of 'doubles:Crashes': its worker process {how}") as caught:
        await environment.step(assistant(way))
    assert caught.value.cause_name == "environment_crashed"


async def test_a_crash_ends_the_episode_as_its_typed_failure(made):
    for double, lines in ((Crashes, ["4", "exit"]), (ExitsInReset, [])):
        trajectory = await play(ScriptedPolicy(lines), made(double), task_for(double))
        assert trajectory.failure.cause == "environment_crashed"
        assert "exit code 3" in trajectory.failure.message
        assert len(trajectory.turns) == len(lines[:-1])


async def test_after_a_crash_calls_fail_again_until_a_reset_starts_a_fresh_worker(made):
    environment = await started(made, Crashes)
    for _ in range(2):
        with pytest.raises(EnvironmentFailed, match="exit code 3") as caught:
            await environment.step(assistant("exit"))
        assert caught.value.manner is Manner.CRASHED
    await environment.reset(task_for(Crashes))
    assert (await environment.step(assistant("7"))).success


async def test_a_worker_that_was_killed_between_two_calls_is_replaced_by_reset(made):
    environment = await started(made, Tells)
    pid = int(await told(environment, "pid"))
    os.kill(pid, 9)
    await until_gone(pid)
    with pytest.raises(EnvironmentFailed, match="was killed by SIGKILL"):
        await told(environment, "pid")
    await environment.reset(task_for(Tells))
    assert int(await told(environment, "pid")) != pid


async def test_a_call_that_hangs_ends_by_its_deadline_and_takes_its_worker_with_it(made):
    environment = await started(made, Hangs)
    pid = environment._worker._process.pid
    trajectory = await play(ScriptedPolicy(["4"]), environment, task_for(Hangs), Limits(step_seconds=0.1))
    assert trajectory.failure.cause == "environment_timed_out"
    await until_gone(pid)
    with pytest.raises(EnvironmentFailed, match="was killed by SIGKILL after its step was cut off"):
        await environment.step(assistant("4"))
    await environment.reset(task_for(Hangs))
    assert await environment.expert_action() == "4"


async def test_what_the_worker_started_ends_with_close_although_a_call_hangs(made):
    environment = await started(made, HasChildren)
    child = int(await told(environment, "start"))
    hung = asyncio.ensure_future(environment.step(assistant("hang")))
    closing = boundary(environment.close(), EnvironmentFailed, "close", 30)
    process.CLOSE_SECONDS, kept = 0.1, process.CLOSE_SECONDS
    try:
        with pytest.raises(EnvironmentFailed, match="close of 'doubles:HasChildren' gave no answer within 0.1 s"):
            await closing
    finally:
        process.CLOSE_SECONDS = kept
    with pytest.raises(EnvironmentFailed, match="was killed by SIGKILL"):
        await hung
    await until_gone(child)


async def test_what_a_crashed_worker_started_ends_with_it(made):
    environment = await started(made, HasChildren)
    child = int(await told(environment, "start"))
    os.kill(environment._worker._process.pid, 9)
    with pytest.raises(EnvironmentFailed, match="was killed by SIGKILL"):
        await told(environment, "start")
    await until_gone(child)


async def test_a_worker_ends_with_its_parent_although_it_hangs(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import asyncio, os, sys\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parent.parent)]!r}\n"
        "from doubles import HasChildren, task_for\n"
        "from agentgym_rl.environments.process import ProcessEnvironment\n"
        "from agentgym_rl.messages import assistant\n"
        "async def main():\n"
        "    environment = ProcessEnvironment('doubles:HasChildren')\n"
        "    await environment.reset(task_for(HasChildren))\n"
        "    child = (await environment.step(assistant('start'))).observation[0].content\n"
        "    hung = asyncio.ensure_future(environment.step(assistant('hang')))\n"
        "    await asyncio.sleep(0.1)\n"
        "    print(environment._worker._process.pid, child, flush=True)\n"
        "    os._exit(1)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, str(script), stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parent.parent
    )
    output, _ = await parent.communicate()
    worker, child = map(int, output.split())
    await until_gone(worker)
    await until_gone(child)


@pytest.mark.parametrize(
    ("double", "name", "kind", "message"),
    [
        (Raises, "ValueError", EnvironmentFailed, "step of 'doubles:Raises' raised ValueError: seven"),
        (Raises, "StopIteration", EnvironmentFailed, "step of 'doubles:Raises' raised StopIteration: seven"),
        (Raises, "ConfigurationError", ConfigurationError, "seven"),
        (Raises, "DataError", DataError, "seven"),
        (Raises, "ToolFailed", ToolFailed, "seven"),
        (RaisesAwaiting, "ValueError", EnvironmentFailed, "step of 'doubles:RaisesAwaiting' raised ValueError: seven"),
    ],
)
async def test_what_the_environment_raises_arrives_with_the_workers_traceback(made, double, name, kind, message):
    environment = await started(made, double, error=name)
    with pytest.raises(kind, match=f"^{message}$") as caught:
        await environment.step(assistant(name))
    assert "in step" in str(caught.value.__cause__)
    assert name != "ToolFailed" or caught.value.cause_name == "tool_timed_out"
    assert await environment.expert_action() in ("4", "2")  # its worker lives on


async def test_a_missing_ability_is_named_as_in_this_process(made):
    environment = await started(made, Everything)
    with pytest.raises(ConfigurationError, match="^Everything has no expert$"):
        await environment.expert_action()


# Close and order


async def test_close_is_heard_by_the_environment_and_may_be_called_twice(made):
    for prepare in (False, True):
        environment = made(Recorder)
        if prepare:
            await environment.reset(task_for(Recorder))
        await environment.close()
        await environment.close()
        with pytest.raises(EnvironmentFailed, match="^'doubles:Recorder' was used after close$"):
            await environment.reset(task_for(Recorder))


async def test_a_close_that_hangs_says_so_and_its_worker_ends_anyway(made, monkeypatch):
    monkeypatch.setattr(process, "CLOSE_SECONDS", 0.1)
    environment = await started(made, HangsInClose)
    pid = environment._worker._process.pid
    with pytest.raises(EnvironmentFailed, match="close of 'doubles:HangsInClose' gave no answer"):
        await environment.close()
    await until_gone(pid)


async def test_calls_before_a_reset_are_refused_by_name(made):
    with pytest.raises(EnvironmentFailed, match="^step of 'doubles:Guess' was called before reset$"):
        await made(Guess).step(assistant("4"))


async def test_calls_at_the_same_time_take_turns(made):
    environment = await started(made, Guess)
    results = await asyncio.gather(*(environment.step(assistant(number)) for number in ("1", "2", "8", "7")))
    assert [result.observation[0].content for result in results] == ["higher", "higher", "lower", "found"]
