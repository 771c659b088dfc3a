"""Names lead to classes that are imported when they are made; wrong names and targets say what exists."""

from importlib.metadata import EntryPoint

import pytest
from doubles import Countdown, Guess, HangsInClose, Recorder, name_of, task_for

from agentgym_rl.environments import registry
from agentgym_rl.environments.process import ProcessEnvironment
from agentgym_rl.environments.threaded import ThreadedEnvironment
from agentgym_rl.errors import ConfigurationError


@pytest.fixture
def names(monkeypatch):
    """The registry's own table, restored afterwards."""
    monkeypatch.setattr(registry, "_TARGETS", dict(registry._TARGETS))
    return registry._TARGETS


def test_every_name_is_listed_in_order():
    assert registry.names() == sorted(registry.names())
    assert {"babyai", name_of(Guess)} <= set(registry.names())


def test_a_name_leads_to_its_target_and_class():
    assert registry.target(name_of(Guess)) == "doubles:Guess"
    assert registry.environment_class(name_of(Guess)).__qualname__ == "Guess"


def test_a_name_may_be_given_twice_for_the_same_class_only(names):
    registry.register("moor", "doubles:Guess")
    registry.register("moor", "doubles:Guess")
    with pytest.raises(ConfigurationError, match="^the environment name 'moor' is taken by doubles:Guess$"):
        registry.register("moor", "doubles:Countdown")


@pytest.mark.parametrize("target", ["doubles", "doubles.Guess", "a:b:c"])
def test_a_malformed_target_is_refused(names, target):
    with pytest.raises(ConfigurationError, match=f"reads 'module:Class'; given: '{target}'"):
        registry.register("moor", target)


def test_an_unknown_name_says_what_was_meant():
    with pytest.raises(ConfigurationError, match=r"^no environment 'double-gess'; did you mean 'double-guess'\?$"):
        registry.make("double-gess")


def test_a_missing_package_says_what_to_install(names, monkeypatch):
    registry.register("moor", "no_such_package.moor:Moor")
    with pytest.raises(ConfigurationError, match="'moor' needs 'no_such_package': install 'no_such_package'"):
        registry.make("moor")
    monkeypatch.setitem(registry._EXTRAS, "moor", "moors")
    with pytest.raises(ConfigurationError, match=r'needs \'no_such_package\': pip install "openmanus-rl\[moors\]"'):
        registry.make("moor", isolation="process")


def test_a_target_without_its_class_says_so(names):
    registry.register("moor", "doubles:Moor")
    with pytest.raises(ConfigurationError, match="'moor' points at 'doubles:Moor', which does not exist"):
        registry.make("moor")


def test_a_package_adds_environments_through_its_entry_points(names, monkeypatch):
    point = EntryPoint("moor", "doubles:Guess", "openmanus_rl.environments")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == point.group else [])
    registry._register_entry_points.cache_clear()
    assert "moor" in registry.names()
    assert registry.target("moor") == "doubles:Guess"


def test_a_target_stands_for_itself_without_a_registration(names):
    assert registry.target("doubles:Guess") == "doubles:Guess"
    assert isinstance(registry.make("doubles:Guess"), ThreadedEnvironment)


def test_an_instance_comes_behind_the_interface_that_its_isolation_asks_for():
    assert isinstance(registry.make(name_of(Guess)), ThreadedEnvironment)
    assert type(registry.make(name_of(Countdown))).__name__ == "Countdown"
    assert isinstance(registry.make(name_of(Guess), "process"), ProcessEnvironment)
    assert isinstance(registry.make(name_of(Countdown), isolation="process"), ProcessEnvironment)


def test_an_unknown_isolation_is_refused():
    with pytest.raises(ConfigurationError, match=r"^no isolation 'proces'; did you mean 'process'\?$"):
        registry.make(name_of(Guess), "proces")


async def test_opened_closes_at_the_end_and_after_an_error():
    recorder = registry.environment_class(name_of(Recorder))
    recorder.closes = 0
    async with registry.opened(name_of(Recorder)) as environment:
        await environment.reset(task_for(Recorder))
    assert recorder.closes == 1
    with pytest.raises(KeyError):
        async with registry.opened(name_of(Recorder)):
            raise KeyError
    assert recorder.closes == 2


async def test_a_close_that_hangs_is_left_behind(monkeypatch):
    monkeypatch.setattr(registry, "CLOSE_SECONDS", 0.05)
    async with registry.opened(name_of(HangsInClose)) as environment:
        await environment.reset(task_for(HangsInClose))
