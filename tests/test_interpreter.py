"""An environment that needs a process of its own gets one, and one whose packages clash gets its own Python."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from doubles import Guess, Tells, name_of, task_for
from doubles_interpreter import ELSEWHERE

from agentgym_rl.environment import Facts
from agentgym_rl.environments import registry
from agentgym_rl.environments.interpreter import variable_of
from agentgym_rl.environments.process import ProcessEnvironment
from agentgym_rl.environments.threaded import ThreadedEnvironment
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed
from agentgym_rl.evaluation.policies import policies
from agentgym_rl.evaluation.reference import Way, try_tasks
from agentgym_rl.evaluation.run import evaluate
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task

OWN = "doubles_interpreter:WantsOwnProcess"


@pytest.fixture(scope="module")
def other_python(tmp_path_factory):
    """A real virtual environment that holds `elsewhere` and what that needs, and nothing of this project."""
    folder = tmp_path_factory.mktemp("other") / "venv"
    venv.create(folder, symlinks=True)
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([folder / "bin" / "python", "-c", asked], text=True).strip())
    (packages / "only_here.py").write_text("BEST = 2.0\n")
    (packages / "elsewhere.py").write_text(ELSEWHERE)
    return folder / "bin" / "python"


async def told(environment, question):
    return (await environment.step(assistant(question))).observation[0].content


# A process of its own


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_an_environment_that_asks_for_a_process_of_its_own_gets_it_whatever_the_isolation(isolation):
    assert isinstance(registry.make(OWN, isolation), ProcessEnvironment)


@pytest.mark.parametrize("name", ["doubles:Guess", "doubles_interpreter:WantsNoProcess"])
def test_one_that_does_not_ask_shares_this_process(name):
    assert isinstance(registry.make(name), ThreadedEnvironment)


async def test_two_instances_run_in_two_processes_and_nothing_they_print_reaches_the_protocol():
    async with registry.opened(OWN) as one, registry.opened(OWN) as other:
        pids = []
        for environment in (one, other):
            await environment.reset(task_for(Guess))
            pids.append(int(await told(environment, "4")))
        assert pids == [one.pid, other.pid]
        assert len({*pids, os.getpid()}) == 3


# Another interpreter


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("textworld", "OPENMANUS_PYTHON_TEXTWORLD"),
        ("double-guess", "OPENMANUS_PYTHON_DOUBLE_GUESS"),
        ("my_package.envs:Maze", "OPENMANUS_PYTHON_MY_PACKAGE_ENVS_MAZE"),
    ],
)
def test_the_variable_is_the_environments_name_in_capitals(name, variable):
    assert variable_of(name) == variable


async def test_another_interpreter_plays_with_its_own_packages_and_this_copy_of_the_core(other_python, monkeypatch):
    monkeypatch.setenv("OPENMANUS_PYTHON_ELSEWHERE_MAZE", str(other_python))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # ours, which it must not inherit
    async with registry.opened("elsewhere:Maze") as environment:
        (opening,) = await environment.reset(Task("t", "elsewhere:Maze"))
        assert opening.content == str(other_python)
        assert environment.facts == Facts(reward_range=(0.0, 2.0), max_turns=3)  # 2.0 stands in `only_here`
        assert await told(environment, "agentgym_rl.task") == sys.modules["agentgym_rl.task"].__file__
        for ours in ("torch", "verl", "psutil", "verl_ext"):
            assert await told(environment, ours) == "None"


async def test_an_expert_plays_where_only_the_other_interpreter_can_import_the_class(other_python, monkeypatch):
    for name in ("GUIDED", "MAZE"):
        monkeypatch.setenv(f"OPENMANUS_PYTHON_ELSEWHERE_{name}", str(other_python))
    guided, maze = Task("g", "elsewhere:Guided"), Task("m", "elsewhere:Maze")
    trials = await try_tasks([guided, maze])
    assert [(trial.way, trial.trouble) for trial in trials] == [(Way.EXPERT, ""), (Way.NONE, "")]
    with policies("expert") as make_policy:
        assert (await evaluate(make_policy, [guided])).rows[0].success is True
        with pytest.raises(ConfigurationError, match="Maze has no expert"):
            await evaluate(make_policy, [maze])
    with policies("random") as make_policy, pytest.raises(ConfigurationError, match="Maze does not list its actions"):
        await evaluate(make_policy, [maze])


async def test_an_environment_of_this_project_runs_under_it_too(other_python, monkeypatch):
    monkeypatch.setenv("OPENMANUS_PYTHON_BABYAI", str(other_python))
    async with registry.opened("babyai") as environment:
        assert environment.facts.max_turns == 64  # before anything has started
        with pytest.raises(ConfigurationError, match=r'needs .*: pip install "openmanus-rl\[babyai\]"'):
            await environment.reset(Task("t", "babyai", {"level": "GoToLocal"}))


@pytest.mark.parametrize("given", ["/no/such/python", "no-such-python", __file__])
def test_an_interpreter_that_can_not_be_run_is_named_with_its_variable(given, monkeypatch):
    monkeypatch.setenv("OPENMANUS_PYTHON_DOUBLE_GUESS", given)
    with pytest.raises(ConfigurationError) as raised:
        registry.make(name_of(Guess))
    assert str(raised.value) == f"OPENMANUS_PYTHON_DOUBLE_GUESS must name a Python that can be run; given: '{given}'"


def test_an_empty_variable_asks_for_nothing(monkeypatch):
    monkeypatch.setenv("OPENMANUS_PYTHON_DOUBLE_GUESS", "")
    assert isinstance(registry.make(name_of(Guess)), ThreadedEnvironment)


async def test_what_the_other_interpreter_lacks_is_named_with_that_interpreter(other_python, monkeypatch):
    monkeypatch.setenv("OPENMANUS_PYTHON_DOUBLE_TELLS", str(other_python))
    environment = registry.make(name_of(Tells))
    with pytest.raises(ConfigurationError, match=f"can't be imported by {other_python}: No module named 'doubles'"):
        await environment.reset(task_for(Tells))
    await environment.close()


async def test_a_program_that_is_no_python_fails_as_a_crash_that_shows_what_it_said(tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'I am no Python' >&2\nexit 7\n")
    program.chmod(0o755)
    monkeypatch.setenv("OPENMANUS_PYTHON_DOUBLE_GUESS", str(program))
    environment = registry.make(name_of(Guess))
    with pytest.raises(EnvironmentFailed, match="ended with exit code 7; stderr:\nI am no Python"):
        await environment.reset(task_for(Guess))
    await environment.close()
