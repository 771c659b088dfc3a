"""A task's prefix in an ATIF document: it comes back in the opening, and not as turns."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from doubles_augment import record_of
from doubles_cli import stairs

from agentgym_rl.data.atif_read import from_atif
from agentgym_rl.data.atif_write import to_atif
from agentgym_rl.data.imports import import_file
from agentgym_rl.data.prefix_tasks import begins_at
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.messages import assistant, user

HIGH = stairs("high", height=4)
BEGUN = begins_at(record_of(HIGH).trajectory, 2)


@pytest.mark.parametrize("task", [HIGH, BEGUN])
def test_a_trajectory_survives_atif_with_its_prefix_in_the_opening(tmp_path, task):
    trajectory = record_of(task).trajectory
    document = to_atif(trajectory)
    assert ("prefix" in document["extra"]["openmanus_rl"]["task"]) == bool(task.prefix)
    (tmp_path / "t.json").write_text(json.dumps(document))
    store = TrajectoryStore(tmp_path / "s")
    import_file(tmp_path / "t.json", store)
    assert [one.trajectory for one in store.records()] == [trajectory]


def test_what_the_environment_has_an_assistant_say_before_the_prefix_is_not_taken_for_it():
    begun = record_of(BEGUN).trajectory
    trajectory = replace(begun, opening=(user("An example:"), assistant("down"), *begun.opening))
    (read,) = from_atif(json.loads(json.dumps(to_atif(trajectory))), BEGUN)
    assert read == trajectory
    assert [one["content"] for one in begins_at(read, 1).prefix] == ["up", "up", "up"]


def test_a_document_that_does_not_say_where_its_opening_ends_has_the_prefix_in_it():
    trajectory = record_of(BEGUN).trajectory
    document = to_atif(trajectory)
    del document["extra"]["openmanus_rl"]["opening_replies"]
    assert from_atif(document, BEGUN) == [trajectory]
