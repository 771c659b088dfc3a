"""A store that is read several times is the same each time, whatever is added to it; so is what is augmented."""

import json

import pytest
from doubles_augment import record_of
from doubles_cli import stairs
from doubles_store import ids, record, store_of

from agentgym_rl.data import augment, augment_family
from agentgym_rl.data import filter as filtering
from agentgym_rl.data.augment_family import Augmentation
from agentgym_rl.data.derive import STEP_FILE
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.store_held import HeldStore
from agentgym_rl.episode import Limits
from agentgym_rl.policy import ExpertPolicy


def test_what_is_added_later_is_not_there(tmp_path):
    store = store_of(tmp_path / "store", record("a"), record("b"), record("c"))
    held, parts = HeldStore(store), store.parts()
    store.append([record("d")])
    assert (held.parts(), len(held), ids(held), held.ids()) == (parts, 3, ["a", "b", "c"], {"a", "b", "c"})
    assert len(store) == 4


def test_a_store_that_is_not_there_is_empty(tmp_path):
    assert len(HeldStore(TrajectoryStore(tmp_path / "none"))) == 0


def test_what_is_added_while_a_filter_looks_is_neither_read_nor_said_to_have_been(tmp_path, monkeypatch):
    source = store_of(tmp_path / "source", record("a"))
    real = filtering.derive_by

    def grown(*given):
        source.append([record("b")])
        return real(*given)

    monkeypatch.setattr(filtering, "derive_by", grown)
    done = filtering.filter_store(source, tmp_path / "out", ["min-turns=1"])
    assert ids(done.store) == ["a"]
    assert len(json.loads((done.store.folder / STEP_FILE).read_text())["of"]) == 1


def test_who_watches_the_store_watches_the_held_one(tmp_path):
    seen = []
    store_of(tmp_path / "store", record("a"), record("b"))
    list(HeldStore(TrajectoryStore(tmp_path / "store", lambda: seen.append(1))).records())
    assert len(seen) == 2


def augmented(folder):
    wanted = Augmentation({"recovery": 1}, limits=Limits(max_turns=20))
    source = TrajectoryStore(folder / "source")
    return augment.augment_store(source, folder / "out", wanted, lambda environment, *_: ExpertPolicy(environment))


@pytest.mark.parametrize(
    ("where", "look"),
    [(augment, "origin_of"), (augment, "done_before"), (augment, "Families"), (augment_family, "donors_of")],
)
def test_a_part_that_is_added_between_two_looks_is_in_none(tmp_path, monkeypatch, where, look):
    """It would be played and not be said to have been; and of its actions a mistake might be made."""
    source, donors = store_of(tmp_path / "source", record_of(stairs("a", height=3))), []
    [part] = source.parts()
    real, donors_of = getattr(where, look), augment_family.donors_of

    def grown(*given):
        if len(source) == 1:
            source.append([record_of(stairs("more"), "down", "up", "up", "up")])
        return real(*given)

    def told(*given):
        donors.append({message.content for kept in donors_of(*given).values() for message in kept})
        return donors_of(*given)

    monkeypatch.setattr(augment_family, "donors_of", told)
    monkeypatch.setattr(where, look, grown if look != "donors_of" else lambda *given: grown(*given) and told(*given))
    done = augmented(tmp_path)
    assert len(source) == 2
    of = json.loads((done.store.folder / STEP_FILE).read_text())["of"]
    assert [name for name, _ in of] == [part.name]
    assert (done.report.given, done.report.originals) == (1, 1)
    assert {one.trajectory.task.id for one in done.store.records()} == {"a"}
    assert donors == [{"up"}]
