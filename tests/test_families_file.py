"""What is kept of an augmentation under way is what it was, and a lock that is none is known."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from doubles_augment import record_of
from doubles_cli import stairs
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import trajectories

from agentgym_rl.data.augment_report import Report
from agentgym_rl.data.families_file import FamiliesFile, Family
from agentgym_rl.data.only_writer import only_writer
from agentgym_rl.data.record import Provenance, Record
from agentgym_rl.data.record_json import from_dict, to_dict
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.messages import user


def test_a_lock_of_a_folder_that_was_put_away_is_none(tmp_path, monkeypatch):
    def put_away(held, how):
        os.rename(tmp_path / "store", tmp_path / "away")

    monkeypatch.setattr("fcntl.flock", put_away)
    refused = pytest.raises(ConfigurationError, match="another process is adding to the store")
    with refused, only_writer(tmp_path / "store"):
        pass


@pytest.mark.parametrize("fault", [BlockingIOError, FileNotFoundError, OSError])
def test_a_lock_that_is_refused_leaves_nothing_open(tmp_path, monkeypatch, fault):
    opened = []

    def refused(held, how):
        opened.append(held)
        raise fault

    monkeypatch.setattr("fcntl.flock", refused)
    with pytest.raises((ConfigurationError, fault)), only_writer(tmp_path / "store"):
        pass
    [held] = opened
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held)


def test_a_record_that_can_not_be_written_is_known_at_once(tmp_path):
    told = replace(record_of(stairs("a")).trajectory, opening=(user(5),))
    with FamiliesFile(tmp_path / "families", []) as file:
        with pytest.raises(DataError, match=r"records \(i, \.\.\.\) can't be written"):
            file.add(0, Family([Record("i", told, Provenance("augment"))], Report([])))
        assert 0 not in file


@settings(max_examples=30)
@given(trajectories, st.none() | st.text(), st.dictionaries(st.text(), st.integers() | st.text(), max_size=2))
def test_a_record_survives_json(trajectory, parent, values):
    record = Record("i", trajectory, Provenance("augment", 1, "p", values, "e", "c", parent, parent), values)
    assert from_dict(json.loads(json.dumps(to_dict(record)))) == record
