"""A store gives back what was appended, whatever happened to its writers, to us and to other readers of parquet."""

from __future__ import annotations

import dataclasses
import gc
import json
import logging
import os
import shutil
import signal
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest
from doubles_store import ids, record, store_of
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import json_values, trajectories

from agentgym_rl.data.appender import Appender
from agentgym_rl.data.record import Provenance, Record, record_id
from agentgym_rl.data.record_rows import schema
from agentgym_rl.data.store import RECORDS_AT_ONCE, TrajectoryStore
from agentgym_rl.data.store_query import Query
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message, ToolCall, assistant, user
from agentgym_rl.policy import Reply, SampledTokens
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn

maps = st.dictionaries(st.text(), json_values, max_size=2)
words = st.text(max_size=5)
provenances = st.builds(
    Provenance, words, st.integers(0, 9), words, maps, words, words, st.none() | words, st.none() | words
)
records = st.builds(Record, st.text(min_size=1), trajectories, provenances, maps)


@settings(max_examples=40)
@given(written=st.lists(st.lists(records, min_size=1, max_size=2), min_size=1, max_size=2))
def test_what_is_read_equals_what_was_appended_in_its_order(tmp_path_factory, written):
    folder = tmp_path_factory.mktemp("store")
    for part in written:
        TrajectoryStore(folder).append(part)
    assert list(TrajectoryStore(folder).records()) == [one for part in written for one in part]


def test_token_ids_and_log_probs_survive_bit_for_bit_and_no_tokens_differ_from_none(tmp_path):
    sampled = SampledTokens((151644, 7, 0), (-0.1, -1.1754943508222875e-38, float("-inf")))
    nothing = SampledTokens((), ())
    turns = tuple(Turn(Reply(assistant("up"), True, tokens), (), 0.0) for tokens in (sampled, None, nothing))
    given = Record("r", Trajectory(Task("t", "stairs"), (), turns, StopReason.TERMINATED), Provenance("collect"))
    (read,) = store_of(tmp_path, given).records()
    assert [turn.reply.tokens for turn in read.trajectory.turns] == [sampled, None, nothing]


def test_records_of_many_batches_keep_their_order(tmp_path):
    store = TrajectoryStore(tmp_path)
    given = [record(str(number)) for number in range(3 * RECORDS_AT_ONCE)]
    store.append(given)
    store.append([record("last")])
    assert ids(store) == [*(one.id for one in given), "last"]
    assert len(store) == 3 * RECORDS_AT_ONCE + 1


@pytest.fixture
def mixed(tmp_path):
    return store_of(
        tmp_path / "mixed",
        record("a", earned=1.0, task="t", success=True),
        record("b", earned=0.5, task="u", success=False, source="import"),
        record("c", earned=0.0, task="t", success=None, environment="maze"),
    )


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (Query(), ["a", "b", "c"]),
        (Query(task="t"), ["a", "c"]),
        (Query(environment="maze"), ["c"]),
        (Query(source="import"), ["b"]),
        (Query(success=True), ["a"]),
        (Query(success=False), ["b"]),  # unknown is not unsolved
        (Query(min_return=0.5), ["a", "b"]),
        (Query(task="t", min_return=0.5), ["a"]),
        (Query(task="none"), []),
    ],
)
def test_a_query_finds_the_records_that_meet_all_of_it(mixed, query, found):
    assert [one.id for one in mixed.records(query)] == found


def test_columns_are_read_without_the_rest(mixed):
    assert list(mixed.columns("id", "return", "success")) == [("a", 1.0, True), ("b", 0.5, False), ("c", 0.0, None)]
    assert list(mixed.columns("num_turns", query=Query(task="u"))) == [(2,)]
    assert mixed.ids() == {"a", "b", "c"}


def test_a_torn_part_is_ignored_and_reported_once(mixed, caplog):
    torn = mixed.parts()[0]
    torn.write_bytes(torn.read_bytes()[:-20])
    store = TrajectoryStore(mixed.folder)
    with caplog.at_level(logging.WARNING):
        assert ids(store) == ["c"]
        assert ids(store) == ["c"]
    assert list(store.ignored) == [torn]
    (message,) = [entry.getMessage() for entry in caplog.records]
    assert message.startswith(f"{torn} is ignored: it is torn or no parquet file")
    store.append([record("d")])
    assert ids(store) == ["c", "d"]


def test_a_part_of_another_kind_is_ignored_and_named_by_its_missing_column(mixed):
    table = pyarrow.parquet.read_table(mixed.parts()[1]).drop_columns(["task"])
    other = mixed.folder / "part-000009-00000000.parquet"
    pyarrow.parquet.write_table(table, other)
    store = TrajectoryStore(mixed.folder)
    assert ids(store) == ["a", "b", "c"]
    assert store.ignored == {other: "it has no column 'task'"}


def test_files_that_are_no_parts_are_left_alone(mixed):
    (mixed.folder / "README.md").write_text("about these")
    store = TrajectoryStore(mixed.folder)
    assert ids(store) == ["a", "b", "c"]
    assert store.ignored == {}


WRITER = """
import os, signal, sys
import pyarrow.parquet
sys.path[:0] = sys.argv[2:]
from doubles_store import record
from agentgym_rl.data.store import TrajectoryStore
store = TrajectoryStore(sys.argv[1])
store.append([record("first")])
def half(table, path, **options):
    with open(path, "wb") as file:
        file.write(b"PAR1 half of a part")
    os.kill(os.getpid(), signal.SIGKILL)
pyarrow.parquet.write_table = half
store.append([record("second")])
"""


def test_a_writer_that_is_killed_leaves_what_it_had_appended_and_what_it_left_is_reported(tmp_path):
    paths = [os.path.dirname(__file__), os.getcwd()]
    done = subprocess.run([sys.executable, "-c", WRITER, tmp_path / "s", *paths], timeout=60)
    assert done.returncode == -signal.SIGKILL
    store = TrajectoryStore(tmp_path / "s")
    assert ids(store) == ["first"]
    ((left, why),) = store.ignored.items()
    assert left.name.startswith(".part-000001-")
    assert why == "it was being written when its writer stopped, or still is"
    store.append([record("second")])
    assert ids(store) == ["first", "second"]


def test_two_writers_that_take_the_same_number_do_not_take_each_others_place(tmp_path, monkeypatch):
    monkeypatch.setattr(TrajectoryStore, "_next_number", lambda store: 0)
    store_of(tmp_path, record("a"))
    store_of(tmp_path, record("b"))
    assert sorted(ids(TrajectoryStore(tmp_path))) == ["a", "b"]


def test_half_a_surrogate_pair_is_kept_as_its_escape_in_text_and_as_it_is_in_json(tmp_path):
    half = "\ud83d"
    call = ToolCall(half, {half: [half, "é"]}, half)
    said = Turn(Reply(assistant(f"a{half}", (call,))), (user(half),), 0.0, info={"seen": half})
    failure = Failure("environment_raised", half, half)
    task = Task("t", "stairs", {"note": half}, prompt=half, reference_answer=[half])
    trajectory = Trajectory(task, (user(half),), (said,), StopReason.FAILED, failure=failure)
    changed = json.dumps({"mistake": half}, ensure_ascii=False)
    origin = Provenance("collect", sampling={"stop": half}, perturbation=changed)
    store = store_of(tmp_path, Record("a", trajectory, origin, {"note": half}))
    (read,) = store.records()
    (turn,) = read.trajectory.turns
    escape = "\\ud83d"
    assert turn.reply.message == assistant(f"a{escape}", (ToolCall(escape, {half: [half, "é"]}, escape),))
    assert (turn.observation, turn.info) == ((user(escape),), {"seen": half})
    assert read.trajectory.opening == (user(escape),)
    assert read.trajectory.failure == Failure("environment_raised", escape, escape)
    assert (read.provenance.sampling, read.annotations) == ({"stop": half}, {"note": half})
    assert (read.trajectory.task, json.loads(read.provenance.perturbation)) == (task, {"mistake": half})


def test_nothing_is_appended_where_one_record_can_not_be_written(tmp_path):
    bad = record("bad")
    bad = Record("bad", bad.trajectory, bad.provenance, {"grid": {1, 2}})
    store = store_of(tmp_path, record("a"))
    with pytest.raises(DataError, match=r"2 records \(b, bad, ...\) can't be written: .*set"):
        store.append([record("b"), bad])
    with pytest.raises(DataError, match="there is no record to append"):
        store.append([])
    assert ids(store) == ["a"]


def test_a_record_that_is_none_is_named(mixed):
    table = pyarrow.parquet.read_table(mixed.parts()[1])
    column = table.schema.get_field_index("stop")
    broken = table.set_column(column, "stop", pyarrow.array(["bored"]))
    pyarrow.parquet.write_table(broken, mixed.parts()[1])
    with pytest.raises(DataError, match=r"part-000001.*record 'c' can't be read: 'bored' is not a valid StopReason"):
        list(mixed.records())


def test_what_is_made_without_its_constructor_has_slots_and_nothing_to_check():
    for kind in (Message, Reply, SampledTokens, Turn):
        assert kind.__slots__ == tuple(field.name for field in dataclasses.fields(kind))
        assert not hasattr(kind, "__post_init__")


def with_annotations(store, text):
    """The store's first part, as somebody else might have written its JSON."""
    [part] = store.parts()
    table = pyarrow.parquet.read_table(part)
    column = table.schema.get_field_index("annotations")
    pyarrow.parquet.write_table(table.set_column(column, "annotations", pyarrow.array([text])), part)


def test_json_with_white_space_around_it_is_read_and_two_values_in_a_row_are_not(tmp_path):
    store = store_of(tmp_path, record("a"))
    with_annotations(store, ' {"judge": 0.5}\n')
    assert next(store.records()).annotations == {"judge": 0.5}
    with_annotations(store, '{"judge": 0.5} {}')
    with pytest.raises(DataError, match="record 'a' can't be read: Extra data"):
        list(store.records())


@pytest.mark.parametrize("collecting", [True, False])
def test_whether_python_collects_cycles_is_as_before_once_records_are_made_or_can_not_be(tmp_path, collecting):
    store = store_of(tmp_path / "whole", record("a"))
    broken = store_of(tmp_path / "broken", record("a"))
    with_annotations(broken, "{")
    (gc.enable if collecting else gc.disable)()
    try:
        list(store.records())
        after_records = gc.isenabled()
        with pytest.raises(DataError):
            list(broken.records())
        assert (after_records, gc.isenabled()) == (collecting, collecting)
    finally:
        gc.enable()


def test_a_row_group_has_many_small_records_or_few_large_ones(tmp_path, monkeypatch):
    monkeypatch.setattr("agentgym_rl.data.store.ROW_GROUP_RECORDS", 4)
    monkeypatch.setattr("agentgym_rl.data.store.ROW_GROUP_BYTES", 100_000)

    def groups(*records):
        store = TrajectoryStore(tmp_path / str(len(records)))
        store.append(records)
        [part] = store.parts()
        found = pyarrow.parquet.read_metadata(part)
        return [found.row_group(number).num_rows for number in range(found.num_row_groups)]

    assert groups(*(record(str(number)) for number in range(10))) == [4, 4, 2]
    assert groups(*(record(str(number), seen="x" * 30_000) for number in range(3))) == [1, 1, 1]


def test_a_store_to_read_must_exist(tmp_path):
    with pytest.raises(DataError, match=r"there is no trajectory store at .*none; it needs a file part-\*.parquet"):
        TrajectoryStore.existing(tmp_path / "none")


def test_whoever_watches_a_store_is_called_after_each_record_that_was_read(mixed):
    calls = []
    store = TrajectoryStore.existing(mixed.folder, lambda: calls.append(1))
    for number, _ in enumerate(store.records(Query(task="t"))):
        assert len(calls) == number
    assert len(calls) == 2


def test_an_appender_writes_a_part_when_it_is_full_and_the_rest_at_the_end_also_after_an_error(tmp_path):
    store = TrajectoryStore(tmp_path)

    def append_and_break() -> None:
        with Appender(store, part_size=2) as out:
            for name in "abc":
                out.append(record(name))
            assert ids(store) == ["a", "b"]
            raise KeyError

    with pytest.raises(KeyError):
        append_and_break()
    assert ids(store) == ["a", "b", "c"]
    assert len(store.parts()) == 2


def test_an_appender_writes_what_waits_when_it_is_told_to(tmp_path):
    with Appender(TrajectoryStore(tmp_path)) as out:
        out.append(record("a"))
        assert ids(TrajectoryStore(tmp_path)) == []
        out.flush()
        assert ids(TrajectoryStore(tmp_path)) == ["a"]


def test_a_record_that_can_not_be_written_is_no_loss_of_those_that_wait_with_it(tmp_path):
    store, whole = TrajectoryStore(tmp_path), record("bad")
    bad = Record("bad", whole.trajectory, whole.provenance, {"grid": {1, 2}})

    def append_all() -> None:
        with Appender(store) as out:
            for one in (record("a"), bad, record("b")):
                out.append(one)

    with pytest.raises(DataError, match="can't be written"):
        append_all()
    assert ids(store) == ["a", "b"]


def test_equal_parts_give_equal_ids_and_others_others():
    assert record_id("t", {"a": 1, "b": 2}) == record_id("t", {"b": 2, "a": 1})
    assert record_id("t", 1) != record_id("t", "1")
    assert len(record_id()) == 16


# Other readers


def test_pandas_reads_a_store(mixed):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.concat([pandas.read_parquet(part) for part in mixed.parts()])
    assert frame.id.tolist() == ["a", "b", "c"]
    assert frame.turns.iloc[0][1]["message"]["content"] == "b"
    assert frame.columns.tolist() == schema().names


def test_datasets_reads_a_store(mixed, tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    parts = [str(part) for part in mixed.parts()]
    read = datasets.Dataset.from_parquet(parts, cache_dir=str(tmp_path / "cache"))
    assert read["id"][:] == ["a", "b", "c"]
    assert [turn["reward"] for turn in read[0]["turns"]] == [0.0, 1.0]


def test_duckdb_queries_a_store_by_its_pattern_beside_the_rest_of_a_killed_writer(mixed):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    shutil.copy(mixed.parts()[0], mixed.folder / ".part-000009-00000000.parquet.77")
    rows = duckdb.sql(
        f"select id, len(turns), turns[1].message.content from '{mixed.folder}/part-*.parquet' "
        'where "return" >= 0.5 order by id'
    ).fetchall()
    assert rows == [("a", 2, "a"), ("b", 2, "a")]
