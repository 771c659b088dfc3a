"""Users' own task files: read whole, or refused with every bad line named."""

import pytest
from doubles_cli import STAIRS
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.data.parquet import write_tasks
from agentgym_rl.data.user_tasks import load_tasks
from agentgym_rl.errors import DataError
from agentgym_rl.task import Task


def written(tmp_path, *lines):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))
    return path


def test_tasks_come_in_the_files_order_and_blank_lines_do_not_count(tmp_path):
    path = written(
        tmp_path, '{"id": "b", "environment": "stairs", "seed": 4}', "", "  ", '{"id": "a", "environment": "stairs"}'
    )
    assert load_tasks(path) == [Task("b", STAIRS, seed=4), Task("a", STAIRS)]


def test_a_byte_order_mark_and_windows_line_ends_are_no_problem(tmp_path):
    path = written(
        tmp_path, b'\xef\xbb\xbf{"id": "a", "environment": "stairs"}\r', b'{"id": "b", "environment": "stairs"}\r'
    )
    assert [task.id for task in load_tasks(path)] == ["a", "b"]


@settings(max_examples=40, deadline=None)
@given(prompts=st.lists(st.text(), min_size=1, max_size=4))
def test_any_text_inside_a_task_survives(tmp_path_factory, prompts):
    tasks = [Task(str(index), STAIRS, prompt=f"{prompt}\u2028\x85") for index, prompt in enumerate(prompts)]
    path = written(tmp_path_factory.mktemp("lines"), *[task.to_json() for task in tasks])
    assert load_tasks(path) == tasks


def test_every_bad_line_is_named_with_its_reason_in_one_error(tmp_path):
    path = written(
        tmp_path,
        '{"id": "1", "environment": "stairs"}',
        "{not json",
        "",
        '{"id": "2", "environment": "stiars"}',
        '{"id": "1", "environment": "stairs"}',
        '{"id": "3"}',
        '{"id": "4", "environment": "stairs", "sed": 1}',
        b'{"id": "\xff", "environment": "stairs"}',
        "[]",
        '{"id": "5", "environment": "stairs", "seed": "x"}',
    )
    with pytest.raises(DataError) as caught:
        load_tasks(path)
    first, *lines = str(caught.value).split("\n")
    assert first == f"{path} has 8 bad lines:"
    assert [line.strip() for line in lines] == [
        "line 2: not valid JSON (Expecting property name enclosed in double quotes at column 2)",
        "line 4: no environment 'stiars'; did you mean 'stairs'?",
        "line 5: the id '1' is that of line 1",
        "line 6: a task needs the field 'environment'; given: id",
        "line 7: a task has no field 'sed'; did you mean 'seed'?",
        "line 8: not UTF-8 (byte 9)",
        "line 9: a task is a JSON object; given: list",
        "line 10: a task's seed must be of type int; given: 'x'",
    ]


def test_one_bad_line_is_spoken_of_in_the_singular(tmp_path):
    with pytest.raises(DataError, match="has 1 bad line:"):
        load_tasks(written(tmp_path, "{"))


def test_the_id_of_a_bad_line_is_not_taken(tmp_path):
    path = written(tmp_path, '{"id": "1", "environment": "nowhere"}', '{"id": "1", "environment": "stairs"}')
    with pytest.raises(DataError) as caught:
        load_tasks(path)
    assert "line 2" not in str(caught.value)


@pytest.mark.parametrize("lines", [(), ("", " ")])
def test_a_file_without_a_task_is_refused(tmp_path, lines):
    with pytest.raises(DataError, match="holds no task"):
        load_tasks(written(tmp_path, *lines))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"there is no file .*none\.jsonl"):
        load_tasks(tmp_path / "none.jsonl")


def test_load_tasks_takes_parquet_as_well(tmp_path):
    tasks = [Task("1", STAIRS), Task("2", STAIRS, {"height": 5})]
    write_tasks(tasks, tmp_path / "tasks.parquet")
    assert load_tasks(tmp_path / "tasks.parquet") == tasks
    assert load_tasks(written(tmp_path, *[task.to_json() for task in tasks])) == tasks


def test_a_json_array_holds_tasks_as_lines_do(tmp_path):
    (tmp_path / "t.json").write_text('[{"id": "1", "environment": "stairs"}, {"id": "2"}, 3]')
    with pytest.raises(DataError) as caught:
        load_tasks(tmp_path / "t.json")
    assert [line.strip() for line in str(caught.value).split("\n")[1:]] == [
        "row 2: a task needs the field 'environment'; given: id",
        "row 3: a row is a JSON object; given: int",
    ]


def test_a_json_file_may_hold_one_task(tmp_path):
    (tmp_path / "t.json").write_text('{"id": "1", "environment": "stairs"}')
    assert load_tasks(tmp_path / "t.json") == [Task("1", STAIRS)]


def test_another_kind_of_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"ends in \.jsonl, \.json, \.csv, \.parquet; given: .*tasks\.txt"):
        load_tasks(tmp_path / "tasks.txt")
