"""Tasks survive parquet, and what can't be stored is refused by name."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.data.parquet import read_tasks, write_tasks
from agentgym_rl.errors import DataError
from agentgym_rl.task import Task

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
some_tasks = st.lists(
    st.builds(
        Task,
        id=st.text(min_size=1),
        environment=st.text(min_size=1),
        arguments=st.dictionaries(st.text(), json_values, max_size=3),
        prompt=st.text(),
        reference_answer=json_values,
        seed=st.integers(),
        split=st.sampled_from(["train", "test"]),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda task: task.id,
)


@settings(max_examples=60, deadline=None)
@given(tasks=some_tasks)
def test_tasks_read_back_equal_the_tasks_written(tmp_path_factory, tasks):
    path = tmp_path_factory.mktemp("rows") / "tasks.parquet"
    write_tasks(tasks, path)
    assert read_tasks(path) == tasks


def test_a_row_has_the_columns_that_verl_reads(tmp_path):
    path = tmp_path / "tasks.parquet"
    task = Task("7", "babyai", {"level": "GoTo"}, "Be brief.", ["red", 2], seed=3, split="test")
    write_tasks([Task("6", "babyai"), task], path)
    first, second = pq.read_table(path).to_pylist()
    assert second == {
        "prompt": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Task 7 of environment babyai."},
        ],
        "agent_name": "environment",
        "data_source": "babyai",
        "reward_model": {"style": "environment", "ground_truth": '["red", 2]'},
        "extra_info": {"index": 1, "split": "test"},
        "task": task.to_json(),
    }
    assert [message["role"] for message in first["prompt"]] == ["user"]
    assert first["reward_model"]["ground_truth"] == ""


def test_a_reference_answer_that_is_text_is_stored_as_it_is(tmp_path):
    path = tmp_path / "tasks.parquet"
    write_tasks([Task("1", "qa", reference_answer="Paris")], path)
    assert pq.read_table(path).to_pylist()[0]["reward_model"]["ground_truth"] == "Paris"


def test_tasks_with_different_arguments_keep_their_own(tmp_path):
    path = tmp_path / "tasks.parquet"
    write_tasks([Task("1", "e", {"a": 1}), Task("2", "e", {"b": {"c": None}})], path)
    assert [dict(task.arguments) for task in read_tasks(path)] == [{"a": 1}, {"b": {"c": None}}]


def test_files_of_different_data_sets_can_be_concatenated(tmp_path):
    write_tasks([Task("1", "e")], tmp_path / "a.parquet")
    write_tasks([Task("2", "f", {"x": [1.5]}, "p", {"y": 1})], tmp_path / "b.parquet")
    tables = [pq.read_table(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    assert pa.concat_tables(tables).num_rows == 2


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([], "there is no task to write"),
        ([Task("a", "e"), Task("b", "e"), Task("a", "e")], "rows 0 and 2 have the same task id 'a'"),
        ([Task("a", "e", {"x": {1, 2}})], "task 'a' can't be written as JSON: Object of type set"),
        ([Task("a", "e", {"x": "\ud800"})], "task 'a' can't be written as JSON"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_leaves_the_old_file(tmp_path, tasks, message):
    path = tmp_path / "tasks.parquet"
    write_tasks([Task("old", "e")], path)
    with pytest.raises(DataError, match=message):
        write_tasks(tasks, path)
    assert [task.id for task in read_tasks(path)] == ["old"]
    assert os.listdir(tmp_path) == ["tasks.parquet"]


def test_a_write_that_breaks_off_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "tasks.parquet"
    write_tasks([Task("old", "e")], path)

    def half_written(table, where):
        where.write_bytes(b"PAR1")
        raise OSError("no space left on device")

    monkeypatch.setattr(pq, "write_table", half_written)
    with pytest.raises(OSError, match="no space left"):
        write_tasks([Task("new", "e")], path)
    assert [task.id for task in read_tasks(path)] == ["old"]
    assert os.listdir(tmp_path) == ["tasks.parquet"]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"there is no file .*none\.parquet"):
        read_tasks(tmp_path / "none.parquet")


def test_a_file_that_is_no_parquet_is_named(tmp_path):
    (tmp_path / "x.parquet").write_text("hello")
    with pytest.raises(DataError, match=r"x\.parquet is no parquet file"):
        read_tasks(tmp_path / "x.parquet")


def test_a_foreign_parquet_file_is_refused_with_its_columns(tmp_path):
    pq.write_table(pa.table({"question": ["?"], "answer": ["!"]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="no column 'task'; it has: question, answer"):
        read_tasks(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (['{"id": "1", "environment": "e"}', "{"], r"row 1 of .*: not valid JSON"),
        ([None], r"row 0 of .*: the task must be JSON text; given: None"),
        ([json.dumps({"id": "1", "environment": "e"})] * 2, "rows 0 and 1 have the same task id '1'"),
    ],
)
def test_a_bad_row_is_named(tmp_path, texts, message):
    pq.write_table(pa.table({"task": pa.array(texts, pa.string())}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=message):
        read_tasks(tmp_path / "x.parquet")
