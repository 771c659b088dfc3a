"""AgentTraj and OpenManus-RL files become demonstrations and tasks of AgentGym's servers, an item in one split."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.parquet
import pytest

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.data.sft_parquet import is_trained
from agentgym_rl.environments.agentgym.client import _Setup
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.messages import assistant, system, user
from data_preprocess.agenttraj import build, main

PUBLISHED = Path(os.environ.get("AGENTTRAJ_FOLDER", "AGENTTRAJ_FOLDER is not set"))
SERVER = "http://localhost:36001"


def row(item: str, action: str = "go", agreed: bool = True) -> dict:
    said = [{"from": "human", "value": f"Rules of {item}.", "loss": None}]
    if agreed:
        said += [{"from": "gpt", "value": "OK.", "loss": False}, {"from": "human", "value": "A wall.", "loss": None}]
    return {"item_id": item, "conversations": [*said, {"from": "gpt", "value": action, "loss": True}]}


def written(tmp_path, *rows: dict) -> Path:
    path = tmp_path / "train.json"
    path.write_text(json.dumps(rows))
    return path


def test_instructions_are_the_system_prompt_and_the_assent_is_left_out(tmp_path):
    file = written(tmp_path, row("lmrlgym_maze_25"), row("babyai_3"))
    splits, demonstrations = build([file], 0, 1, SERVER, 12, seed=0)
    tasks = {task.id: task for tasks in splits.values() for task in tasks}
    maze = tasks["lmrlgym_maze_25"]
    assert maze.environment == "agentgym"
    assert maze.arguments == {"server": SERVER, "dialect": "maze", "item": 25, "max_turns": 12}
    assert maze.prompt == "Rules of lmrlgym_maze_25."
    assert _Setup.of(maze).item == 25
    (shown,) = demonstrations
    assert shown.opening == (system(f"Rules of {shown.task.id}."), user("A wall."))
    assert [turn.reply.message for turn in shown.turns] == [assistant("go")]
    assert is_trained(shown.turns[0])


def test_a_conversation_without_an_assent_stays_as_it_is(tmp_path):
    file = written(tmp_path, row("babyai_1", agreed=False), row("babyai_2"))
    _, demonstrations = build([file], 0, 0, SERVER, 12, seed=0)
    assert demonstrations[0].opening == (user("Rules of babyai_1."),)
    assert demonstrations[0].task.prompt == ""


def test_a_first_reply_that_is_no_assent_is_kept_though_it_is_not_trained(tmp_path):
    wrong = row("babyai_1")
    wrong["conversations"][1]["value"] = "Action: wrong"
    _, demonstrations = build([written(tmp_path, wrong, row("babyai_2"))], 0, 0, SERVER, 12, seed=0)
    assert [is_trained(turn) for turn in demonstrations[0].turns] == [False, True]
    assert demonstrations[0].task.prompt == ""


def test_an_item_is_one_task_of_one_split_and_only_training_items_are_demonstrated(tmp_path):
    file = written(tmp_path, *(row(f"babyai_{number % 5}", f"go {number}") for number in range(10)))
    splits, demonstrations = build([file], 1, 2, SERVER, 12, seed=0)
    ids = {split: [task.id for task in tasks] for split, tasks in splits.items()}
    assert {split: len(found) for split, found in ids.items()} == {"train": 2, "validation": 1, "test": 2}
    assert len({id for found in ids.values() for id in found}) == 5
    assert sorted({one.task.id for one in demonstrations}) == ids["train"]
    assert len(demonstrations) == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (row("chess_3"), "row 1: an item_id is written NAME_NUMBER; given: 'chess_3'"),
        (row("babyai"), "row 1: an item_id is written NAME_NUMBER; given: 'babyai'"),
        ({"item_id": "babyai_1"}, "row 1: a conversation is a list under"),
    ],
)
def test_a_row_that_is_no_conversation_of_a_known_set_is_named(tmp_path, given, message):
    with pytest.raises(DataError) as caught:
        build([written(tmp_path, given)], 0, 0, SERVER, 12, 0)
    assert message in str(caught.value)


def test_some_items_must_be_left_to_train_on(tmp_path):
    file = written(tmp_path, row("babyai_1"), row("babyai_2"))
    with pytest.raises(DataError, match="there are 2 different items, of which some must be left"):
        build([file], 1, 1, SERVER, 12, 0)
    with pytest.raises(ConfigurationError, match="at least 0 tasks; given: -1, 0"):
        build([file], -1, 0, SERVER, 12, 0)


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason=f"needs the files of OpenManus-RL in AGENTTRAJ_FOLDER ({PUBLISHED})")
def test_the_published_files_are_read_whole(tmp_path, capsys):
    files = [str(path) for path in sorted(PUBLISHED.glob("*.parquet"))]
    main([*files, "--test", "10", "--server", SERVER, "--out", str(tmp_path)])
    tasks = [task for name in ("train", "test") for task in read_tasks(tmp_path / f"{name}.parquet")]
    dialects = {task.arguments["dialect"] for task in tasks}
    assert dialects == {"babyai", "maze", "sciworld", "sqlgym", "textcraft", "webshop", "wordle"}
    assert all(_Setup.of(task).dialect for task in tasks)
    rows = pyarrow.parquet.read_table(tmp_path / "sft.parquet").to_pylist()
    assert f"sft.parquet: {len(rows)} conversations" in capsys.readouterr().out
    assert all([message["role"] for message in one["messages"]][:3] == ["system", "user", "assistant"] for one in rows)
    assert all(any(message["loss"] for message in one["messages"]) for one in rows)


def test_without_a_server_only_demonstrations_are_written(tmp_path):
    main([str(written(tmp_path, row("babyai_1"))), "--out", str(tmp_path / "out")])
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["sft.parquet"]
