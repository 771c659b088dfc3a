"""A task is one row: it survives JSON, and a row that is none says which field is wrong."""

import json
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import json_values

from agentgym_rl.errors import DataError
from agentgym_rl.reply_form import FORMS
from agentgym_rl.task import Task

tasks = st.builds(
    Task,
    id=st.text(min_size=1),
    environment=st.text(min_size=1),
    arguments=st.dictionaries(st.text(), json_values, max_size=4),
    prompt=st.text(),
    reference_answer=json_values,
    seed=st.integers(),
    split=st.text(),
    reply_form=st.sampled_from(sorted(FORMS)),
)


@given(tasks)
def test_a_task_survives_json(task):
    assert Task.from_json(task.to_json()) == task


@given(tasks)
def test_a_task_is_one_line_of_json_whatever_is_in_it(task):
    assert "\n" not in task.to_json()
    assert json.loads(task.to_json())["id"] == task.id


def test_only_id_and_environment_are_needed():
    assert Task.from_json('{"id": "a", "environment": "maze"}') == Task("a", "maze", {}, "", None, 0, "train")


def test_a_task_can_not_be_changed():
    with pytest.raises(FrozenInstanceError):
        Task("a", "maze").seed = 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", r"not valid JSON \(Expecting property name"),
        ("[]", "a task is a JSON object; given: list"),
        ("{}", "a task needs the field 'id'; given: no fields"),
        ('{"id": "a", "seed": 1}', "a task needs the field 'environment'; given: id, seed"),
        ('{"id": "a", "environment": "maze", "sead": 1}', "a task has no field 'sead'; did you mean 'seed'?"),
        ('{"id": "", "environment": "maze"}', "non-empty id and environment; given: '', 'maze'"),
        ('{"id": 7, "environment": "maze"}', "a task's id must be of type str; given: 7"),
        ('{"id": "a", "environment": "maze", "seed": true}', "a task's seed must be of type int; given: True"),
        ('{"id": "a", "environment": "maze", "seed": 1.5}', "a task's seed must be of type int; given: 1.5"),
        ('{"id": "a", "environment": "maze", "arguments": []}', r"arguments must be of type Mapping; given: \[\]"),
        ('{"id": "a", "environment": "maze", "prompt": null}', "a task's prompt must be of type str; given: None"),
        ('{"id": "a", "environment": "maze", "split": 1}', "a task's split must be of type str; given: 1"),
    ],
)
def test_a_row_that_is_no_task_is_refused_by_name(row, message):
    with pytest.raises(DataError, match=message):
        Task.from_json(row)
