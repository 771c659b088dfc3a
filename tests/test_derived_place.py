"""Where a step's new store goes: a folder that is no step's is refused by its name, however that is written."""

import shutil

import pytest
from doubles_store import ids, record, store_of
from typer.testing import CliRunner

from agentgym_rl.cli import app
from agentgym_rl.data.derive import derive
from agentgym_rl.errors import ConfigurationError

STEPS = {
    "augment": ["--rule", "prefix=1"],
    "filter": ["--rule", "outcome=success"],
    "annotate": [],
}


@pytest.mark.parametrize("out", [".", "..", "../here", "/"])
@pytest.mark.parametrize("step", STEPS)
def test_a_folder_that_is_there_is_refused(tmp_path, monkeypatch, step, out):
    store = store_of(tmp_path / "store", record("a"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    refused = CliRunner().invoke(app, [step, "--store", str(store.folder), "--out", out, *STEPS[step]])
    assert refused.exit_code == 2, refused.output
    assert f"{out} exists, and no step made it" in refused.stderr
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_dir()) == ["here", "store"]


def meanwhile(tmp_path, other):
    """Derive a store while another process puts one of the step `other` in its place."""
    source, out = store_of(tmp_path / "source", record("a"), record("b")), tmp_path / "out"

    def transform(records, folder):
        derive(source, tmp_path / "other", {"name": other}, lambda records, folder: records)
        shutil.move(tmp_path / "other", out)
        return records

    return derive(source, out, {"name": "mine"}, transform)


def test_a_store_of_the_same_step_that_another_process_has_put_there_is_taken(tmp_path):
    done = meanwhile(tmp_path, "mine")
    assert (done.done_before, ids(done.store)) == (True, ["a", "b"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_one_of_another_step_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="out was made by another step"):
        meanwhile(tmp_path, "another")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]
