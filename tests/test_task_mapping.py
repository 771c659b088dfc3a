"""Columns become the fields of a task as they were declared; rows that don't fit are named."""

from __future__ import annotations

import csv
import json
import re
from decimal import Decimal

import pyarrow
import pyarrow.parquet
import pytest
from doubles_cli import STAIRS
from hypothesis import given
from hypothesis import strategies as st
from strategies import json_values

from agentgym_rl.data.parquet import write_tasks
from agentgym_rl.data.rows import rows_of
from agentgym_rl.data.task_mapping import TaskMapping
from agentgym_rl.data.user_tasks import load_tasks, write_jsonl
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.task import Task

MAPPING = TaskMapping(
    {"id": "nr", "seed": "draw", "arguments.goal": "goal", "arguments.options": "options:json",
     "reference_answer": "meta.answer"},
    {"environment": STAIRS, "arguments.height": 3, "split": "test"},
)  # fmt: skip
ROW = {"nr": 7, "draw": "12", "goal": "up", "options": '["a", 1]', "meta": {"answer": {"floor": 3}}, "unused": 0}
READ = Task(
    "7", STAIRS, {"height": 3, "goal": "up", "options": ["a", 1]}, reference_answer={"floor": 3}, seed=12, split="test"
)


def test_columns_and_constants_become_fields():
    assert MAPPING.task(ROW) == READ
    assert MAPPING.task({**ROW, "options": ["a", 1], "draw": 12, "nr": "7"}) == READ


def test_a_null_keeps_the_default_of_its_field():
    bare = MAPPING.task({**ROW, "draw": None, "goal": None, "meta": {"answer": None}})
    assert (bare.seed, bare.reference_answer, "goal" in bare.arguments) == (0, None, False)


def test_a_column_of_that_very_name_comes_before_a_field_of_an_object():
    assert MAPPING.task({**ROW, "meta.answer": "whole"}).reference_answer == "whole"


def test_arguments_can_come_from_one_column_and_be_added_to():
    mapping = TaskMapping({"id": "id", "arguments": "given"}, {"environment": STAIRS, "arguments.height": 4})
    assert mapping.task({"id": "a", "given": {"goal": "up", "height": 1}}).arguments == {"goal": "up", "height": 4}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nr": None}, "id is empty (column 'nr')"),
        ({"nr": True}, "a task's id must be of type str; given: True"),
        ({"draw": "x"}, "a task's seed must be a whole number; given: 'x'"),
        ({"options": "["}, "column 'options' holds no JSON"),
        ({"meta": 3}, "there is no column 'meta.answer'"),
        ({"goal": b"up"}, "arguments.goal must be a JSON value (Object of type bytes is not JSON serializable); given"),
        ({"meta": {"answer": [Decimal(3)]}}, "reference_answer must be a JSON value (Object of type Decimal"),
    ],
)
def test_a_row_that_does_not_fit_says_why(change, message):
    with pytest.raises(DataError) as caught:
        MAPPING.task({**ROW, **change})
    assert message in str(caught.value)


def test_a_missing_column_names_the_nearest():
    with pytest.raises(DataError, match="there is no column 'goal'; did you mean 'goals'?"):
        MAPPING.task({"goals" if name == "goal" else name: value for name, value in ROW.items()})


@pytest.mark.parametrize(
    ("columns", "constants", "message"),
    [
        ({"id": "a", "environmnt": "b"}, {}, "a task has no field 'environmnt'; did you mean 'environment'?"),
        ({"id": "a", "environment": "b"}, {"id": "x"}, "'id' is mapped to a column and to a constant"),
        ({"environment": "b"}, {}, "must say where a task's 'id' comes from; it maps environment"),
    ],
)
def test_a_mapping_that_can_not_work_is_refused(columns, constants, message):
    with pytest.raises(ConfigurationError) as caught:
        TaskMapping(columns, constants)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("columns: [id]", "must hold the mappings `columns` and `constants`; given: {'columns': \\['id'\\]}"),
        ("colums: {id: a}", "must hold the mappings"),
        ("", "must hold the mappings"),
        ("{", "is no YAML"),
    ],
)
def test_a_mapping_file_that_says_something_else_is_refused(tmp_path, text, message):
    (tmp_path / "map.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        TaskMapping.read(tmp_path / "map.yaml")


def test_a_missing_mapping_file_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="there is no file .*none.yaml"):
        TaskMapping.read(tmp_path / "none.yaml")


# Files


def written(tmp_path, suffix: str):
    path = tmp_path / f"rows{suffix}"
    if suffix == ".jsonl":
        path.write_text(json.dumps(ROW) + "\n\n")
    elif suffix == ".json":
        path.write_text(json.dumps([ROW]))
    elif suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            flat = {**ROW, "meta.answer": "", "goal": "up\nand up"}
            csv.writer(file).writerows([flat.keys(), flat.values()])
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([ROW]), path)
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_a_mapped_file_is_read_from_json_lines_json_and_parquet(tmp_path, suffix):
    assert load_tasks(written(tmp_path, suffix), MAPPING) == [READ]


def test_a_csv_file_has_text_in_its_cells_and_an_empty_one_is_missing(tmp_path):
    (task,) = load_tasks(written(tmp_path, ".csv"), MAPPING)
    assert (task.id, task.seed, task.arguments["goal"], task.reference_answer) == ("7", 12, "up\nand up", None)


def test_a_csv_file_whose_columns_are_named_like_fields_needs_no_mapping(tmp_path):
    (tmp_path / "t.csv").write_text(f"id,environment,arguments.note,seed\na,{STAIRS},hello,3\n")
    assert load_tasks(tmp_path / "t.csv") == [Task("a", STAIRS, {"note": "hello"}, seed=3)]
    (tmp_path / "t.csv").write_text(f"id,environment,sed\na,{STAIRS},3\n")
    with pytest.raises(ConfigurationError, match="a task has no field 'sed'; did you mean 'seed'?"):
        load_tasks(tmp_path / "t.csv")


def test_every_bad_line_of_a_mapped_file_is_named(tmp_path):
    (tmp_path / "t.csv").write_text(f"id,environment\na,{STAIRS}\nb\na,{STAIRS}\nc,stiars\n,{STAIRS}\n")
    with pytest.raises(DataError) as caught:
        load_tasks(tmp_path / "t.csv")
    assert [line.strip() for line in str(caught.value).split("\n")[1:]] == [
        "line 3: it has 1 cells; the head has 2",
        "line 4: the id 'a' is that of line 2",
        "line 5: no environment 'stiars'; did you mean 'stairs'?",
        "line 6: id is empty (column 'id')",
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.txt", b"", "rows come from a file that ends in .jsonl, .json, .csv, .parquet; given: .*t.txt"),
        ("t.json", b"{", "t.json is no JSON"),
        ("t.json", b"3", "t.json must hold a JSON array, or one object; given: int"),
        ("t.csv", b"id,note,id\na,b,c\n", "t.csv has the column 'id' twice"),
        ("t.csv", b"id\n\xff\n", "t.csv is no CSV file in UTF-8"),
        ("t.csv", b'id\n"a\n', "t.csv is no CSV file in UTF-8"),
        ("t.parquet", b"x", "t.parquet is no parquet file"),
    ],
)
def test_a_file_that_holds_no_rows_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(rows_of(tmp_path / name))


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
def test_a_missing_file_is_named_whatever_it_would_hold(tmp_path, suffix):
    with pytest.raises(DataError, match="there is no file"):
        list(rows_of(tmp_path / f"none{suffix}"))


def test_a_cell_of_a_csv_file_may_be_longer_than_the_csv_module_takes_by_itself(tmp_path):
    (tmp_path / "t.csv").write_text(f"id,environment,arguments.note\na,{STAIRS},{'x' * 131_073}\n")
    (task,) = load_tasks(tmp_path / "t.csv")
    assert len(task.arguments["note"]) == 131_073


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)


@given(arguments=st.dictionaries(names, json_values, max_size=3), answer=json_values, seed=st.integers())
def test_tasks_survive_a_file_of_lines_and_a_mapping_of_its_own_fields(tmp_path_factory, arguments, answer, seed):
    task = Task("a", STAIRS, arguments, "say", answer, seed, "test")
    path = tmp_path_factory.mktemp("tasks") / "t.jsonl"
    write_jsonl([task], path)
    fields = ("id", "environment", "arguments", "prompt", "reference_answer", "seed", "split")
    assert load_tasks(path) == load_tasks(path, TaskMapping({name: name for name in fields})) == [task]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_constants_alone_change_what_are_tasks_already(tmp_path, suffix):
    path = tmp_path / f"tasks{suffix}"
    given = [Task("a", STAIRS, {"height": 2}), Task("b", STAIRS, {"height": 3, "max_turns": 9}, seed=4)]
    (write_tasks if suffix == ".parquet" else write_jsonl)(given, path)
    mapping = TaskMapping(constants={"reply_form": "tags", "arguments.max_turns": 5})
    first, second = load_tasks(path, mapping)
    assert first == Task("a", STAIRS, {"height": 2, "max_turns": 5}, reply_form="tags")
    assert second == Task("b", STAIRS, {"height": 3, "max_turns": 5}, seed=4, reply_form="tags")


def test_constants_alone_may_say_what_every_line_lacks(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id": "a"}\n{"id": "b", "seed": 3}\n')
    mapping = TaskMapping(constants={"environment": STAIRS})
    assert load_tasks(path, mapping) == [Task("a", STAIRS), Task("b", STAIRS, seed=3)]


def test_a_field_that_a_task_does_not_have_is_a_bad_line_where_each_line_has_its_own_fields(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id": "a", "enviroment": "stairs"}\n{"id": "b", "environment": "stairs"}\n{"id": "c"}\n')
    with pytest.raises(DataError) as caught:
        load_tasks(path, TaskMapping(constants={"split": "test"}))
    assert [line.strip() for line in str(caught.value).split("\n")[1:]] == [
        "line 1: a task has no field 'enviroment'; did you mean 'environment'?",
        "line 3: a mapping must say where a task's 'environment' comes from; it maps id, split",
    ]


def test_constants_are_checked_over_what_was_written_too(tmp_path):
    path = tmp_path / "tasks.parquet"
    write_tasks([Task("a", STAIRS), Task("b", STAIRS)], path)
    for constants, message in [
        ({"environment": "stiars"}, "row 2: no environment 'stiars'; did you mean 'stairs'?"),
        ({"id": "c"}, "row 2: the id 'c' is that of row 1"),
        ({"seed": "x"}, "row 1: a task's seed must be a whole number; given: 'x'"),
    ]:
        with pytest.raises(DataError, match=re.escape(message)):
            load_tasks(path, TaskMapping(constants=constants))


def test_constants_are_converted_alike_whatever_they_change(tmp_path):
    constants = {"seed": "7", "prompt": None, "arguments": {"height": 5}, "arguments.note": "hi"}
    expected = Task("a", STAIRS, {"height": 5, "note": "hi"}, prompt="say", seed=7)
    assert TaskMapping(constants=constants).over(Task("a", STAIRS, {"height": 2}, prompt="say")) == expected
