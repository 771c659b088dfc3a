"""What `judge` does to the file of `--out`: it takes nobody else's, and has it alone until all is written."""

import os

import pytest
from doubles_judge import chat_server, trajectory_of, verdict
from doubles_store import record, store_of
from typer.testing import CliRunner

from agentgym_rl.cli import app
from agentgym_rl.commands import judge as command
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.trajectory_json import to_line
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.judge.judgements import only_judge

PLAYED = to_line(trajectory_of("up"))
NOWHERE = "http://127.0.0.1:9/v1"


def judge(trajectories, out, *more, server=NOWHERE):
    given = ["--trajectories", trajectories, "--server", server, "--model", "m", "--out", out, *more]
    return CliRunner().invoke(app, ["judge", *map(str, given)], env={"COLUMNS": "200"})


@pytest.mark.parametrize("text", [PLAYED, PLAYED.rstrip("\n"), ""])
def test_the_trajectories_are_no_place_for_their_judgements(tmp_path, text):
    played, link = tmp_path / "t.jsonl", tmp_path / "link.jsonl"
    played.write_text(text)
    link.symlink_to(played)
    for out in (played, tmp_path / "x" / ".." / "t.jsonl", link):
        (tmp_path / "x").mkdir(exist_ok=True)
        refused = judge(played, out)
        assert refused.exit_code == 2
        assert "--out must be another file than --trajectories; given for both: " in refused.stderr
    assert played.read_text() == text


def test_a_file_of_somebody_else_stays_as_it_was(tmp_path):
    (tmp_path / "t.jsonl").touch()
    (tmp_path / "x.json").write_text('{"precious": 1}')
    refused = judge(tmp_path / "t.jsonl", tmp_path / "x.json")
    assert (refused.exit_code, (tmp_path / "x.json").read_text()) == (2, '{"precious": 1}')
    assert "x.json holds no judgements, and something else: give another file" in refused.stderr


def test_a_folder_is_no_file_for_judgements(tmp_path):
    (tmp_path / "t.jsonl").write_text(PLAYED)
    refused = judge(tmp_path / "t.jsonl", tmp_path)
    assert refused.exit_code == 2
    assert "is a directory" in refused.stderr


def test_a_run_that_is_refused_leaves_no_file(tmp_path):
    out = tmp_path / "judged.jsonl"
    (tmp_path / "t.jsonl").write_text(PLAYED)
    with only_judge(out):
        refused = judge(tmp_path / "t.jsonl", out)
    assert refused.exit_code == 2
    assert "another process is judging" in refused.stderr
    assert judge(tmp_path / "t.jsonl", out, "--rubric", tmp_path / "none.txt").exit_code != 0
    assert os.listdir(tmp_path) == ["t.jsonl"]


def test_nobody_else_judges_there_before_the_annotated_store_is_written(tmp_path, monkeypatch):
    store, out, refused = store_of(tmp_path / "store", record("a")), tmp_path / "judged.jsonl", []

    def annotate_judged(*given):
        with pytest.raises(ConfigurationError, match="another process is judging") as error, only_judge(out):
            pass
        refused.append(error)
        return annotate(*given)

    annotate = command.annotate_judged
    monkeypatch.setattr(command, "annotate_judged", annotate_judged)
    with chat_server() as chat, chat(verdict(5)) as (_, settings):
        done = judge(store.folder, out, "--annotated", tmp_path / "annotated", server=settings.url)
    assert (done.exit_code, len(refused)) == (0, 1), done.output
    assert [one.annotations["judge"] for one in TrajectoryStore(tmp_path / "annotated").records()] == [0.5]
