"""Trajectories of the Agent Data Protocol are read as its schema says, and what breaks it is named by its place."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.data.adp_read import from_adp, is_adp
from agentgym_rl.data.imports import Imported, import_file
from agentgym_rl.data.reasoning import split, with_reasoning
from agentgym_rl.data.sft_parquet import is_trained
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message, ToolCall, assistant, user
from agentgym_rl.task import Task

PUBLISHED = Path(os.environ.get("ADP_FOLDER", "ADP_FOLDER is not set"))
TASK = Task("t", "swe")
ASKED = {"class_": "text_observation", "content": "Fix the bug.", "name": None, "source": "user"}
SEEN = {"class_": "text_observation", "content": "1 file", "name": None, "source": "environment"}
LOOK = {"class_": "api_action", "function": "ls", "kwargs": {"path": "."}, "description": "I look."}
RUN = {"class_": "code_action", "language": "bash", "content": "make", "description": None}
SAID = {"class_": "message_action", "content": "Done.", "description": None}
PAGE = {"class_": "web_observation", "html": None, "axtree": None, "url": "u", "image_observation": None}
SCREEN = {"class_": "image_observation", "content": "1.png", "annotations": None, "source": "environment"}


def line(*content: dict, **fields: object) -> dict:
    return {"id": "13461", "content": list(content), "details": {}, **fields}


def test_a_trajectory_is_read_action_by_action():
    read = from_adp(line(ASKED, LOOK, SEEN, RUN, {**SEEN, "reward": 1.0}, SAID), TASK)
    assert read.opening == (user("Fix the bug."),)
    look, run, done = read.turns
    assert look.reply.message == assistant("I look.", (ToolCall("ls", {"path": "."}, "call_2"),))
    assert look.observation == (Message("tool", "1 file", tool_call_id="call_2"),)
    assert run.reply.message.tool_calls == (
        ToolCall("execute_code", {"language": "bash", "content": "make"}, "call_4"),
    )
    assert (run.reward, done.reply.message, done.observation) == (1.0, assistant("Done."), ())
    assert (read.success, is_adp(line(ASKED))) == (None, True)


def test_actions_without_an_observation_between_them_are_one_reply_and_its_calls_are_answered_in_order():
    two = {**SEEN, "content": "2"}
    (turn,) = from_adp(line(ASKED, {**LOOK, "reasoning_content": "hm"}, RUN, SEEN, two), TASK).turns
    assert turn.reply.message.content == "<think>\nhm\n</think>\n\nI look."
    assert [call.name for call in turn.reply.message.tool_calls] == ["ls", "execute_code"]
    assert [(one.tool_call_id, one.content) for one in turn.observation] == [("call_2", "1 file"), ("call_3", "2")]


def test_observations_name_their_calls_and_what_answers_none_is_the_users():
    looked, ran = {**LOOK, "tool_call_id": "a"}, {**RUN, "tool_call_id": "b"}
    seen = [{**SEEN, "tool_call_id": "b"}, {**SEEN, "tool_call_id": "a"}, SEEN, ASKED]
    (turn,) = from_adp(line(ASKED, looked, ran, *seen), TASK).turns
    assert [(one.role, one.tool_call_id) for one in turn.observation] == [
        ("tool", "b"), ("tool", "a"), ("user", None), ("user", None),
    ]  # fmt: skip


def test_what_the_user_says_right_after_a_call_without_an_id_is_its_answer():
    seen, more = {**ASKED, "content": "1 file"}, {**ASKED, "content": "Go on."}
    first, last = from_adp(line(ASKED, LOOK, seen, more, SAID, more), TASK).turns
    assert first.observation == (Message("tool", "1 file", tool_call_id="call_2"), user("Go on."))
    assert last.observation == (user("Go on."),)


def test_what_the_user_says_after_a_call_with_an_id_is_no_answer_to_it():
    answer = {**SEEN, "tool_call_id": "a"}
    (turn,) = from_adp(line(ASKED, {**LOOK, "tool_call_id": "a"}, ASKED, answer), TASK).turns
    assert turn.observation == (user("Fix the bug."), Message("tool", "1 file", tool_call_id="a"))


def test_what_an_observation_has_from_the_agent_is_a_reply_that_is_not_trained():
    agreed = {**ASKED, "content": "Understood.", "source": "agent"}
    read = from_adp(line(ASKED, agreed, {**ASKED, "content": "Then: ...", "reward": 0.5}, LOOK, SEEN), TASK)
    assert read.opening == (user("Fix the bug."),)
    assent, look = read.turns
    assert (assent.reply.message, assent.observation, assent.reward) == (
        assistant("Understood."), (user("Then: ..."),), 0.5,
    )  # fmt: skip
    assert [is_trained(turn) for turn in read.turns] == [False, True]
    assert look.observation == (Message("tool", "1 file", tool_call_id="call_4"),)


def test_rewards_of_an_action_and_of_what_follows_it_add_up():
    acted, seen = {**LOOK, "reward": 0.25}, [{**SEEN, "reward": 0.5}, {**ASKED, "reward": None}]
    (turn,) = from_adp(line(ASKED, acted, *seen), TASK).turns
    assert turn.reward == 0.75


@pytest.mark.parametrize("version", ["1.0.0", "1.3.2", "1.5.0"])
def test_patches_of_the_schema_are_read_too(version):
    assert len(from_adp(line(ASKED, SAID, schema_version=version, available_apis=["ls"]), TASK).turns) == 1


def test_a_page_of_which_nothing_was_kept_is_its_address():
    first, second = from_adp(line(ASKED, LOOK, PAGE, LOOK, {**PAGE, "url": None}), TASK).turns
    assert [first.observation[0].content, second.observation[0].content] == ["u", ""]


def test_a_page_that_is_an_image_alone_is_refused():
    with pytest.raises(DataError, match="entries 3 to 3: an image can't be read"):
        from_adp(line(ASKED, LOOK, {**PAGE, "image_observation": SCREEN}), TASK)
    with_text = {**PAGE, "axtree": "tree", "image_observation": SCREEN}
    assert from_adp(line(ASKED, LOOK, with_text), TASK).turns[0].observation[0].content == "tree"


def test_of_a_page_the_accessibility_tree_or_else_the_html_is_seen():
    page = {"class_": "web_observation", "html": "<p>", "axtree": "tree", "url": "u", "image_observation": None}
    seen = from_adp(line(ASKED, LOOK, page, LOOK, {**page, "axtree": None}), TASK).turns
    assert [turn.observation[0].content for turn in seen] == ["tree", "<p>"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (line(ASKED, SAID, schema_version="2.0.0"), "versions that can be read are 1.0 to 1.5; given: '2.0.0'"),
        (line(ASKED, SAID, schema_version="1.6.0"), "versions that can be read are 1.0 to 1.5; given: '1.6.0'"),
        (line(ASKED, SAID, schema_version=1.2), "versions that can be read are 1.0 to 1.5; given: 1.2"),
        (line(ASKED), "a trajectory needs an action"),
        (line(ASKED, {**ASKED, "source": "agent"}), "a trajectory needs an action"),
        (line(ASKED, {"class_": "dance"}), "entry 2 must be an object whose `class_` is one of api_action, "),
        (line({**ASKED, "source": "os"}, SAID), "entries 1 to 1: its source must be one of user, agent, environment"),
        (line(ASKED, {**LOOK, "kwargs": None}), "entries 2 to 2: `kwargs` must be an object; given: None"),
        (line(ASKED, {**SAID, "content": 3}), "entries 2 to 2: `content` of a message_action must be text; given: 3"),
        (line(ASKED, {**SAID, "reward": "1"}), "entries 2 to 2: `reward` of a message_action must be a finite number"),
        (line(ASKED, SAID, {**SEEN, "reward": [1]}), "a text_observation must be a finite number; given: [1]"),
        (line(ASKED, SAID, {**SEEN, "reward": float("nan")}), "entries 3 to 3: `reward` of a text_observation must be"),
        (
            line(ASKED, {**PAGE, "html": 3}),
            "`axtree`, `html` and `url` of a page must be text; given: 3",
        ),
        (line({"class_": "image_observation"}, SAID), "entries 1 to 1: an image can't be read"),
    ],
)
def test_what_breaks_the_schema_is_named_with_its_place(given, message):
    with pytest.raises(DataError) as caught:
        from_adp(given, TASK)
    assert message in str(caught.value)


def test_a_file_of_lines_goes_into_a_store_and_needs_an_environment(tmp_path):
    file = tmp_path / "full_std.jsonl"
    file.write_text(json.dumps(line(ASKED, SAID)) + "\n")
    store = TrajectoryStore(tmp_path / "s")
    with pytest.raises(DataError, match="such a trajectory does not say its environment"):
        import_file(file, store)
    assert import_file(file, store, "swe") == Imported(1, 0)
    (read,) = store.records()
    assert read.trajectory.task == Task("13461", "swe")


@given(said=st.text(), reasoning=st.none() | st.text())
def test_reasoning_goes_into_a_text_and_out_again(said, reasoning):
    text = with_reasoning(said, reasoning)
    assert with_reasoning(*split(text)) == text
    if reasoning is not None and "</think>" not in reasoning:
        assert split(text) == (said, reasoning)


@pytest.mark.skipif(
    not PUBLISHED.is_dir(), reason=f"needs files of the Agent Data Protocol in ADP_FOLDER ({PUBLISHED})"
)
def test_published_files_are_read_whole(tmp_path):
    files = sorted(path for path in PUBLISHED.rglob("*") if path.is_file() and path.suffix in (".jsonl", ".json"))
    for number, file in enumerate(files):
        store = TrajectoryStore(tmp_path / str(number))
        added = import_file(file, store, "adp").added
        assert added
        assert all(one.trajectory.turns for one in store.records())
