"""An augmentation that was stopped goes on: what is on disk is not played again, and the store is what it would be."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from doubles_augment import record_of
from doubles_cli import Stairs, stairs
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentgym_rl.data.augment import FAMILIES_FILE, augment_store
from agentgym_rl.data.augment_family import Augmentation
from agentgym_rl.data.augment_rules import RULES
from agentgym_rl.data.derive import STEP_FILE
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.versions import code_version
from agentgym_rl.episode import Limits
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.policy import ExpertPolicy
from agentgym_rl.task import Task

WANTED = Augmentation(dict.fromkeys(RULES, 2), limits=Limits(max_turns=20))
NAMES = "abcdef"


class Stopped(Exception):
    """Instead of a kill."""


def expert(environment, task, episode):
    return ExpertPolicy(environment)


def parents():
    winding = Task("d", "winding_stairs", {"height": 4})
    return [
        record_of(stairs("a", height=3)),
        record_of(stairs("b"), "down", "up", "up"),
        record_of(stairs("c"), "down"),  # not solved: only its prefix is of use
        record_of(winding, "up", "down", "up", "up", "up", "up"),
        record_of(stairs("e", silent=True)),
        record_of(stairs("f", height=9)),
    ]


def augment(folder, stop=None, wanted=WANTED, concurrency=2, out="out", told=lambda *numbers: None):
    """Of the store in `folder / source`; stopped when so many parents were done in this run."""
    calls = []

    def on_parent(done, kept):
        calls.append((done, kept))
        told(done, kept)
        if stop is not None and len(calls) > stop:
            raise Stopped

    source = TrajectoryStore(folder / "source")
    return augment_store(source, folder / out, wanted, expert, concurrency, "thread", on_parent)


def stopped(folder, stop, **more):
    with pytest.raises(Stopped):
        augment(folder, stop, **more)


def families(folder):
    return folder / ".out.unfinished" / FAMILIES_FILE


def on_disk(folder):
    """The tasks of the parents whose families are whole."""
    path = families(folder)
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return {NAMES[json.loads(line)["number"]] for line in lines}


def tear(path, size):
    """Take as many bytes from the end of the file, if it is there."""
    if path.exists():
        os.truncate(path, max(path.stat().st_size - size, 0))


def digests(folder):
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def beside(folder):
    return sorted(path.name for path in folder.iterdir())


def wanted(originals):
    return Augmentation(WANTED.rules, keep_originals=originals, limits=WANTED.limits)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What is made without a stop, with the originals (True) and without."""
    folder = tmp_path_factory.mktemp("whole")
    TrajectoryStore(folder / "source").append(parents())
    for originals in (True, False):
        augment(folder, wanted=wanted(originals), out=str(originals))
    return folder


@pytest.fixture
def folder(tmp_path, whole):
    shutil.copytree(whole / "source", tmp_path / "source")
    return tmp_path


# Stopped anywhere


@settings(max_examples=25)
@example(stops=[(0, 0), (1, 0), (1, 1), (2, 10**6), (6, 0)], concurrency=1, originals=True)
@given(
    stops=st.lists(st.tuples(st.integers(0, 6), st.sampled_from([0, 0, 1, 2, 700, 10**6])), max_size=4),
    concurrency=st.integers(1, 4),
    originals=st.booleans(),
)
def test_stopped_anywhere_and_torn_it_gives_the_same_store(whole, stops, concurrency, originals):
    with TemporaryDirectory() as name:
        folder, done = Path(name), None
        shutil.copytree(whole / "source", folder / "source")
        for stop, torn in [*stops, (None, 0)]:
            there = on_disk(folder)
            Stairs.played.clear()
            try:
                done = augment(folder, stop, wanted(originals), concurrency)
            except Stopped:
                tear(families(folder), torn)
            assert there.isdisjoint(Stairs.played)
            assert Stairs.open_now == 0
        assert digests(folder / "out") == digests(whole / str(originals))
        assert done.report.to_json() == json.loads((folder / "out" / STEP_FILE).read_text())["report"]
        assert beside(folder) == ["out", "source"]


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from agentgym_rl.data import augment_family
from test_augment_resumed import augment

augment_family.code_version = lambda: sys.argv[4]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

rename, (moment, folder) = os.rename, sys.argv[2:4]

def renamed(old, new):
    if moment == "before it is in place" and Path(new).name == "out":
        die()
    rename(old, new)
    if moment == "after it is in place" and Path(new).name == "out":
        die()

os.rename = renamed
told = lambda done, kept: done == int(moment) and die() if moment.isdigit() else None
augment(Path(folder), told=told)
"""


@pytest.mark.parametrize(
    ("moment", "left"),
    [("0", False), ("1", True), ("5", True), ("before it is in place", True), ("after it is in place", True)],
)
def test_killed_at_any_moment_it_goes_on(folder, whole, moment, left):
    arguments = [sys.executable, "-c", KILLED, str(Path(__file__).parent), moment, str(folder), code_version()]
    assert subprocess.run(arguments, timeout=120).returncode == -signal.SIGKILL
    there = on_disk(folder)
    assert bool(there) == left
    assert (folder / "out").exists() == (moment == "after it is in place")
    Stairs.played.clear()
    augment(folder)
    assert there.isdisjoint(Stairs.played)
    assert digests(folder / "out") == digests(whole / "True")
    assert beside(folder) == ["out", "source"]


def test_what_was_done_is_told_at_once(folder):
    told = []
    stopped(folder, 3, concurrency=1)
    augment(folder, concurrency=1, told=lambda *numbers: told.append(numbers))
    assert [done for done, _ in told] == [3, 4, 5, 6]
    assert 0 < told[0][1] <= told[-1][1]


def test_a_family_that_is_done_is_on_disk_while_the_one_before_it_is_under_way(folder, monkeypatch):
    async def step(self, action, real=Stairs.step):
        while self._arguments.get("height") == 3 and len(on_disk(folder)) < len(NAMES) - 1:
            await asyncio.sleep(0)
        return await real(self, action)

    monkeypatch.setattr(Stairs, "step", step)
    assert augment(folder, concurrency=12).report.given == len(NAMES)


def test_a_line_that_can_not_be_read_is_played_again(folder, whole, caplog):
    stopped(folder, 4, concurrency=1)
    lines = families(folder).read_bytes().splitlines(keepends=True)
    families(folder).write_bytes(b"".join([lines[0], lines[1][:50] + b"\n", *lines[2:]]))
    Stairs.played.clear()
    augment(folder)
    assert {"a", "c", "d"}.isdisjoint(Stairs.played)
    assert "b" in Stairs.played
    assert "its family played again" in caplog.text
    assert digests(folder / "out") == digests(whole / "True")


# Whose it is


def test_another_step_is_refused_and_takes_nothing_away(folder, whole):
    stopped(folder, 3)
    other = Augmentation(WANTED.rules, seed=1, limits=WANTED.limits)
    with pytest.raises(ConfigurationError, match=r"\.out\.unfinished holds what another step had done .*\(step: "):
        augment(folder, wanted=other)
    source = TrajectoryStore(folder / "source")
    source.append([record_of(stairs("more"))])
    with pytest.raises(ConfigurationError, match=r"\.out\.unfinished holds what another step had done .*\(of: "):
        augment(folder)
    source.parts()[-1].unlink()
    step = (folder / ".out.unfinished" / STEP_FILE).read_text()
    (folder / ".out.unfinished" / STEP_FILE).unlink()
    with pytest.raises(ConfigurationError, match=r"\.out\.unfinished holds what another step had done .*\(step: None"):
        augment(folder)
    (folder / ".out.unfinished" / STEP_FILE).write_text(step)
    there = on_disk(folder)
    Stairs.played.clear()
    augment(folder)
    assert there.isdisjoint(Stairs.played)
    assert digests(folder / "out") == digests(whole / "True")


def test_a_store_of_another_step_that_was_put_in_its_place_takes_nothing_away(folder, whole):
    stopped(folder, 3)
    shutil.copytree(whole / "False", folder / "out")
    with pytest.raises(ConfigurationError, match="out was made by another step"):
        augment(folder)
    assert len(on_disk(folder)) >= 3


def test_what_was_stopped_before_anything_was_done_is_in_nobodys_way(folder):
    stopped(folder, 0)
    assert beside(folder) == ["source"]
    augment(folder, wanted=Augmentation({"prefix": 1}))


def test_what_is_added_to_the_source_meanwhile_does_not_count(folder, whole):
    source, more = TrajectoryStore(folder / "source"), record_of(stairs("more"))
    augment(folder, told=lambda done, kept: done == 2 and source.append([more]))
    assert digests(folder / "out") == digests(whole / "True")


def test_a_folder_that_somebody_removed_and_another_has_made_again_is_left_alone(folder, whole):
    unfinished, other = folder / ".out.unfinished", folder / "other"

    def told(done, kept):
        if done == 3:
            shutil.move(unfinished, other)
            shutil.copytree(other, unfinished)

    augment(folder, told=told)
    assert digests(folder / "out") == digests(whole / "True")
    assert len(on_disk(folder)) == 3


# Two at once


def test_two_at_once_are_refused(folder, whole):
    refused = []

    def second(done, kept):
        with pytest.raises(ConfigurationError, match="another process is adding to the store") as error:
            augment(folder)
        refused.append(error)

    augment(folder, told=second)
    assert len(refused) == 7
    assert digests(folder / "out") == digests(whole / "True")
