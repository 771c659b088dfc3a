"""Records by their place: the same ones that reading the whole store gives, and few of the others."""

import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.data import store_places
from agentgym_rl.data.record import Provenance, Record
from agentgym_rl.data.record_rows import to_table
from agentgym_rl.data.store import RECORDS_AT_ONCE, TrajectoryStore
from agentgym_rl.data.store_places import StorePlaces, _batches
from agentgym_rl.errors import DataError
from agentgym_rl.messages import assistant, user
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason, Trajectory, Turn

LARGE = 2 * RECORDS_AT_ONCE + 22
"""Rows of a part that is read in three batches."""


def record(number):
    turns = tuple(Turn(Reply(assistant(f"{number}/{turn}")), (user("on"),), 0.0) for turn in range(number % 3))
    played = Trajectory(Task(f"t{number % 5}", "maze"), (user("go"),), turns, StopReason.TERMINATED, number % 2 == 0)
    return Record(f"r{number}", played, Provenance("collect", number))


def store_of(folder, *sizes):
    store, begin = TrajectoryStore(folder), 0
    for size in sizes:
        store.append([record(number) for number in range(begin, begin + size)])
        begin += size
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return store_of(tmp_path_factory.mktemp("places") / "store", 3, LARGE, 1)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, LARGE + 3), max_size=12))
def test_any_places_in_any_order_give_the_records_that_stand_there(store, places):
    assert StorePlaces(store).at(places) == [record(place) for place in places]


def test_there_are_as_many_places_as_records_and_none_beyond(store):
    places = StorePlaces(store)
    assert len(places) == len(list(store.records())) == LARGE + 4
    assert places.at(range(len(places))) == list(store.records())
    for none in (-1, LARGE + 4):
        with pytest.raises(IndexError, match=f"a store of {LARGE + 4} records has no place {none}"):
            places.at([0, none])


def test_columns_are_those_of_the_store(store):
    names = ("task_id", "success", "num_turns")
    assert list(StorePlaces(store).columns(*names)) == list(store.columns(*names))


def test_what_is_appended_later_is_not_there(tmp_path):
    store = store_of(tmp_path / "store", 2)
    places = StorePlaces(store)
    store.append([record(2)])
    assert (len(places), len(list(places.columns("id")))) == (2, 2)
    assert len(StorePlaces(store)) == 3


def test_an_empty_store_has_no_place(tmp_path):
    assert len(StorePlaces(TrajectoryStore(tmp_path / "none"))) == 0


def test_a_part_of_another_writer_with_several_row_groups_is_read_too(tmp_path):
    store = store_of(tmp_path / "store", 1)
    table = to_table([record(number) for number in range(1, 300)])
    pyarrow.parquet.write_table(table, store.folder / "part-000001-00000000.parquet", row_group_size=90)
    assert StorePlaces(store).at([299, 0, 70]) == [record(299), record(0), record(70)]


def test_a_part_is_read_as_far_as_the_last_place_in_it_and_others_not_at_all(store, monkeypatch):
    read, places = [], StorePlaces(store)

    def counted(group, names):
        for batch in _batches(group, names):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(store_places, "_batches", counted)
    places.at([4, 3, LARGE + 3])
    assert read == [RECORDS_AT_ONCE, 1]


def test_a_record_that_cannot_be_read_is_named(tmp_path):
    store = store_of(tmp_path / "store", 3)
    [part] = store.parts()
    table = pyarrow.parquet.read_table(part)
    task = table.column_names.index("task")
    broken = table.set_column(task, "task", [["{}", *table.column("task").to_pylist()[1:]]])
    pyarrow.parquet.write_table(broken, part)
    places = StorePlaces(store)
    assert places.at([1, 2]) == [record(1), record(2)]
    with pytest.raises(DataError, match="record 'r0' can't be read"):
        places.at([0])
