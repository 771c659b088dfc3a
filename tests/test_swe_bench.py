"""Instances of SWE-bench's form are checked and keep their fields; whatever is wrong with a file is said at once."""

from __future__ import annotations

import json

import pytest

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.errors import DataError
from data_preprocess.swe_bench import build, main

PATCH = "diff --git a/m.py b/m.py\n--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-x\n+y\n"
INSTANCE = {
    "instance_id": "owner__name-1",
    "repo": "owner/name",
    "base_commit": "0123456789abcdef0123456789abcdef01234567",
    "problem_statement": "It breaks.",
    "hints_text": "",
    "patch": PATCH,
    "test_patch": PATCH,
    "FAIL_TO_PASS": '["t.py::test_a"]',
    "PASS_TO_PASS": [],
    "version": "1.0",
    "created_at": None,
}


def written(tmp_path, *rows: dict, name: str = "test.jsonl"):
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_an_instance_keeps_its_fields_with_the_patch_as_its_reference_answer(tmp_path):
    (task,) = build({"test": [written(tmp_path, INSTANCE)]}, "my_swe:Repository")["test"]
    assert (task.id, task.environment, task.split) == ("owner__name-1", "my_swe:Repository", "test")
    assert task.reference_answer == PATCH
    kept = {
        key: INSTANCE[key]
        for key in ("repo", "base_commit", "problem_statement", "hints_text", "test_patch", "version")
    }
    assert task.arguments == {**kept, "FAIL_TO_PASS": ["t.py::test_a"], "PASS_TO_PASS": []}


def test_every_bad_instance_is_named_with_its_reason(tmp_path):
    bad = [
        {"problem_statement": " "},
        {"base_commit": "main"},
        {"patch": "x = 1"},
        {"FAIL_TO_PASS": "[]"},
        {"FAIL_TO_PASS": "t.py"},
        {"PASS_TO_PASS": [1]},
    ]
    path = written(tmp_path, *({**INSTANCE, **change} for change in bad), INSTANCE, INSTANCE)
    with pytest.raises(DataError) as caught:
        build({"test": [path]}, "swe")
    first, *lines = str(caught.value).split("\n")
    assert first == "bad instances: 7"
    assert [line.strip().removeprefix(f"{path}: ") for line in lines] == [
        "line 1: `problem_statement` must be a text; given: ' '",
        "line 2: `base_commit` must be a commit's hash; given: 'main'",
        "line 3: `patch` must be a diff; given: 'x = 1'",
        "line 4: `FAIL_TO_PASS` names no test, so that nothing could be solved",
        "line 5: `FAIL_TO_PASS` must be a list of tests, or its JSON text; given: 't.py'",
        "line 6: `PASS_TO_PASS` must be a list of tests, or its JSON text; given: [1]",
        f"line 8: instance 'owner__name-1' is that of {path}: line 7",
    ]


def test_an_instance_in_two_splits_is_refused(tmp_path):
    train = written(tmp_path, INSTANCE, name="train.jsonl")
    test = written(tmp_path, {**INSTANCE, "instance_id": "owner__name-2"}, INSTANCE)
    with pytest.raises(
        DataError, match="test.jsonl: line 2: instance 'owner__name-1' is that of .*train.jsonl: line 1"
    ):
        build({"train": [train], "test": [test]}, "swe")


def test_the_command_line_writes_a_file_a_split(tmp_path, capsys):
    path = written(tmp_path, INSTANCE)
    main(["--test", str(path), "--environment", "my_swe:Repository", "--out", str(tmp_path / "out")])
    assert "test.parquet: 1 tasks" in capsys.readouterr().out
    assert [task.id for task in read_tasks(tmp_path / "out" / "test.parquet")] == ["owner__name-1"]


def test_the_command_line_needs_files(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--environment", "swe", "--out", str(tmp_path)])
    assert "give the files of at least one of --train, --validation and --test" in capsys.readouterr().err
