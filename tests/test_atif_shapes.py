"""Shapes that ATIF documents of Harbor's agents and of ADP have: each is read, and what it can't keep is said."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentgym_rl.data.atif_read import from_atif, is_atif
from agentgym_rl.data.atif_write import to_atif
from agentgym_rl.data.imports import Imported, import_file
from agentgym_rl.data.sft_parquet import is_trained
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message, ToolCall, assistant, system, user
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason, Trajectory, Turn

PUBLISHED = Path(os.environ.get("ATIF_FOLDER", "ATIF_FOLDER is not set"))
TASK = Task("t", "shell")
ASKED = {"source": "user", "message": "Count."}
LOOK = {"tool_call_id": "c1", "function_name": "bash", "arguments": {"cmd": "ls"}}
LOOKED = {"source": "agent", "message": "", "tool_calls": [LOOK]}
SAID = {"source": "agent", "message": "Two."}
REPLACED = {"context_management": {"type": "compaction", "boundary": "replace"}}


def document(*steps: dict, **fields: object) -> dict:
    numbered = [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]
    agent = {"name": "somebody's", "version": "1"}
    return {"schema_version": "ATIF-v1.7", "agent": agent, "steps": numbered, **fields}


def results(*given: dict) -> dict:
    return {"observation": {"results": list(given)}}


@pytest.mark.parametrize("version", ["ATIF-v1.0", "ATIF-v1.8", None])
def test_every_version_is_read_and_a_document_that_names_none(version):
    given = document(ASKED, SAID, schema_version=version)
    assert is_atif(given)
    assert is_atif({name: value for name, value in given.items() if name != "schema_version"})
    (read,) = from_atif(given, TASK)
    assert read.messages == (user("Count."), assistant("Two."))


def test_a_result_without_content_answers_its_call_with_nothing_and_is_else_passed_over():
    pointer = {"subagent_trajectory_ref": [{"trajectory_path": "trajectory.summarization-1-summary.json"}]}
    given = document(ASKED, {**LOOKED, **results({"source_call_id": "c1", "content": None}, pointer)}, SAID)
    (read,) = from_atif(given, TASK)
    assert read.turns[0].observation == (Message("tool", "", tool_call_id="c1"),)


def test_a_step_that_says_nothing_but_shows_something_is_no_message():
    shown = results({"content": "A page."})
    by_environment = {"source": "agent", "message": "", "llm_call_count": 0, **shown}
    (read,) = from_atif(document({"source": "system", "message": "", **shown}, LOOKED, by_environment, SAID), TASK)
    assert read.opening == (user("A page."),)
    assert [turn.reply.message for turn in read.turns] == [
        assistant("", (ToolCall("bash", {"cmd": "ls"}, "c1"),)), assistant("Two."),
    ]  # fmt: skip
    assert read.turns[0].observation == (user("A page."),)


def test_an_agents_step_without_anything_is_passed_over_where_no_model_was_called():
    marker = {"source": "agent", "message": ""}
    (read,) = from_atif(document(ASKED, {**marker, "llm_call_count": 0}, SAID), TASK)
    assert read.messages == (user("Count."), assistant("Two."))
    (read,) = from_atif(document(ASKED, marker, SAID), TASK)
    assert read.messages == (user("Count."), assistant(""), assistant("Two."))


def test_an_empty_reply_of_ours_stays_a_turn():
    turn = Turn(Reply(assistant("")), (user("What?"),), 0.5)
    given = Trajectory(TASK, (user("Count."),), (turn,), StopReason.TERMINATED)
    assert from_atif(to_atif(given), TASK) == [given]


@pytest.mark.parametrize("said", [{"metrics": {"completion_tokens": 0}}, {"llm_call_count": 1}])
def test_an_empty_reply_of_a_model_is_a_turn(said):
    empty = {"source": "agent", "message": "", **said, **results({"content": "I could not read that."})}
    (read,) = from_atif(document(ASKED, empty), TASK)
    assert read.turns[0].reply.message == assistant("")
    assert read.turns[0].observation == (user("I could not read that."),)


def test_an_empty_text_of_reasoning_is_none():
    (read,) = from_atif(document(ASKED, {**SAID, "reasoning_content": ""}), TASK)
    assert read.turns[0].reply.message.content == "Two."


def test_when_a_step_was_taken_by_which_model_and_at_what_cost_is_kept():
    metrics = {"prompt_tokens": 9, "cost_usd": 0.0, "prompt_token_ids": [1], "extra": {"reasoning_tokens": 2}}
    told = {"timestamp": "2025-10-11T10:30:02Z", "model_name": "m", "reasoning_effort": 0.5}
    (read,) = from_atif(document(ASKED, {**SAID, **told, "metrics": metrics, "is_copied_context": True}), TASK)
    assert read.turns[0].info == {"trained": False, "atif": {**told, "prompt_tokens": 9, "cost_usd": 0.0}}
    assert from_atif(to_atif(read), TASK) == [read]
    assert from_atif(document(ASKED, SAID), TASK)[0].turns[0].info == {}


def test_a_context_that_was_replaced_begins_another_trajectory_with_what_the_step_shows():
    boundary = {"source": "system", "message": "Compacted.", "extra": REPLACED, **results({"content": "So far: 2."})}
    told = {"source": "system", "message": "Be brief."}
    before, after = from_atif(document(told, ASKED, LOOKED, boundary, {**ASKED, "message": "Go on."}, SAID), TASK)
    assert (before.opening, len(before.turns), before.stop) == (
        (system("Be brief."), user("Count.")), 1, StopReason.TOKEN_BUDGET,
    )  # fmt: skip
    assert after.opening == (user("So far: 2."), user("Go on."))
    assert ([turn.reply.message for turn in after.turns], after.stop) == ([assistant("Two.")], StopReason.TERMINATED)
    assert before.task == after.task == TASK


def test_a_context_that_was_replaced_before_and_after_all_replies_leaves_one_trajectory():
    boundary = {"source": "system", "message": "Compacted.", "extra": REPLACED}
    (read,) = from_atif(document(ASKED, boundary, ASKED, SAID, boundary, ASKED), TASK)
    assert read.messages == (system("Compacted."), user("Count."), assistant("Two."))
    assert read.stop is StopReason.TERMINATED


def test_a_step_that_replaces_the_context_and_shows_nothing_begins_the_new_one_with_what_it_says(caplog):
    summary = {"source": "user", "message": "So far: 2.", "extra": REPLACED}
    before, after = from_atif(document(ASKED, LOOKED, summary, SAID), TASK)
    assert [one.role for one in before.messages] == ["user", "assistant"]
    assert after.messages == (user("So far: 2."), assistant("Two."))
    assert not caplog.text


def test_what_a_step_says_beside_the_context_that_it_shows_is_said_not_to_be_read(caplog):
    boundary = {"source": "system", "message": "Compacted.", "extra": REPLACED, **results({"content": "So far: 2."})}
    _, after = from_atif(document(ASKED, LOOKED, {**boundary, "message": ""}, SAID), TASK)
    assert not caplog.text
    assert from_atif(document(ASKED, LOOKED, boundary, SAID), TASK)[1] == after
    assert "t: what step 3 says beside the new context that it shows is not read" in caplog.text


def test_what_an_agents_own_step_replaces_ends_with_that_step():
    compacting = {**LOOKED, "extra": REPLACED, "llm_call_count": 0, **results({"source_call_id": "c1", "content": "2"})}
    before, after = from_atif(document(ASKED, compacting, SAID), TASK)
    assert [is_trained(turn) for turn in before.turns] == [False]
    assert after.opening == (user("2"),)


def test_subagents_and_what_left_the_context_are_said(caplog):
    cut = {"source": "system", "message": "Pruned.", "extra": {"context_management": {"boundary": "truncate"}}}
    child = document(ASKED, SAID, trajectory_id="child")
    (read,) = from_atif(document(ASKED, SAID, cut, SAID, subagent_trajectories=[child]), TASK)
    assert len(read.turns) == 2
    assert "t: 1 trajectories of subagents in its document are not read" in caplog.text
    assert "t: what step 3 took out of the context stays in it" in caplog.text


def trial(folder: Path, *documents: dict, **result: object) -> None:
    """A trial's folder as Harbor writes it; documents after the first continue it."""
    (folder / "agent").mkdir(parents=True)
    names = ["trajectory.json", *(f"trajectory.cont-{number}.json" for number in range(1, len(documents)))]
    for name, one, next_name in zip(names, documents, [*names[1:], None], strict=True):
        (folder / "agent" / name).write_text(json.dumps({**one, "continued_trajectory_ref": next_name}))
    (folder / "agent" / "trajectory.summarization-1-summary.json").write_text("not read")
    (folder / "result.json").write_text(json.dumps({"task_name": "count", "trial_name": folder.name, **result}))


def read_job(folder: Path) -> list:
    store = TrajectoryStore(folder / "store")
    added = import_file(folder / "job", store, "shell").added
    assert import_file(folder / "job", store, "shell") == Imported(0, added)
    assert len(store.ids()) == added
    return [one.trajectory for one in store.records()]


def test_each_context_of_a_trial_is_a_record_and_its_last_reply_has_the_reward(tmp_path):
    boundary = {"source": "system", "message": "Compacted.", "extra": REPLACED}
    first = document(ASKED, SAID, boundary, ASKED, SAID)
    copied = {"is_copied_context": True}
    second = document({**ASKED, **copied}, {**SAID, **copied}, SAID)
    trial(tmp_path / "job" / "count__x", first, second, verifier_result={"rewards": {"reward": 1.0, "lines": 3}})
    read = read_job(tmp_path)
    assert [[turn.reward for turn in one.turns] for one in read] == [[0.0], [0.0], [0.0, 1.0]]
    assert all((one.task, one.success) == (Task("count", "shell"), True) for one in read)


@pytest.mark.parametrize(
    ("result", "reward", "success"),
    [
        ({"verifier_result": {"rewards": {"reward": 0}}}, 0.0, False),
        ({"verifier_result": {"rewards": {"reward": 0.25}}}, 0.25, None),
        ({"verifier_result": {"rewards": {"lines": 1.0}}}, 0.0, None),
        ({"verifier_result": {"rewards": None}}, 0.0, None),
        ({"verifier_result": None, "exception_info": {"exception_type": "AgentTimeoutError"}}, 0.0, None),
    ],
)
def test_the_outcome_of_a_trial_is_what_its_verifier_found(tmp_path, result, reward, success):
    trial(tmp_path / "job" / "count__x", document(ASKED, SAID), **result)
    (read,) = read_job(tmp_path)
    assert (read.environment_return, read.success, read.task.id) == (reward, success, "count")


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf")])
def test_a_reward_that_is_not_finite_is_taken_for_none_and_that_is_said(tmp_path, caplog, reward):
    trial(tmp_path / "job" / "count__x", document(ASKED, SAID), verifier_result={"rewards": {"reward": reward}})
    (read,) = read_job(tmp_path)
    assert (read.environment_return, read.success, read.task.id) == (0.0, None, "count")
    assert f"count__x/result.json: its reward is {reward}, which is taken for none" in caplog.text


def test_a_trial_that_was_imported_before_its_outcome_was_known_or_changed_is_added_with_it(tmp_path):
    trial(tmp_path / "job" / "count__x", document(ASKED, SAID), document(ASKED, SAID))
    result, store = tmp_path / "job" / "count__x" / "result.json", TrajectoryStore(tmp_path / "store")
    found = [{"verifier_result": {"rewards": {"reward": reward}}} for reward in (0.0, 1.0, 1.0)]
    names = ["count", "count", "recount"]
    outcomes = [None, {"task_name": "count", "verifier_result": None}]
    outcomes += [{"task_name": name, **one} for name, one in zip(names, found, strict=True)]
    seen = []
    for outcome in outcomes:
        result.unlink(missing_ok=True)
        if outcome:
            result.write_text(json.dumps(outcome))
        assert import_file(tmp_path / "job", store, "shell") == Imported(2, 0)
        assert import_file(tmp_path / "job", store, "shell") == Imported(0, 2)
        last = [one.trajectory for one in store.records()][-1]
        seen.append((last.task.id, last.success, last.environment_return))
    assert seen == [
        ("count__x/agent/trajectory.cont-1-1", None, 0.0), ("count", None, 0.0), ("count", False, 0.0),
        ("count", True, 1.0), ("recount", True, 1.0),
    ]  # fmt: skip


def test_a_document_of_ours_is_found_again_whatever_stands_beside_it(tmp_path):
    (ours,) = from_atif(document(ASKED, SAID), TASK)
    trial(tmp_path / "job" / "count__x", to_atif(ours), verifier_result={"rewards": {"reward": 1}})
    store = TrajectoryStore(tmp_path / "store")
    assert import_file(tmp_path / "job", store) == Imported(1, 0)
    (tmp_path / "job" / "count__x" / "result.json").unlink()
    assert import_file(tmp_path / "job", store) == Imported(0, 1)
    assert [one.trajectory for one in store.records()] == [ours]


def test_a_document_outside_the_folder_of_a_trials_agent_has_no_outcome(tmp_path):
    trial(tmp_path / "job" / "count__x", document(ASKED, SAID), verifier_result={"rewards": {"reward": 1}})
    (tmp_path / "job" / "count__x" / "agent").rename(tmp_path / "job" / "count__x" / "logs")
    (read,) = read_job(tmp_path)
    assert (read.environment_return, read.success, read.task.id) == (0.0, None, "count__x/logs/trajectory-1")


@pytest.mark.parametrize(("text", "message"), [("{", "is no JSON"), ("[]", "must hold an object; given: list")])
def test_a_result_that_can_not_be_read_is_named(tmp_path, text, message):
    trial(tmp_path / "job" / "count__x", document(ASKED, SAID))
    (tmp_path / "job" / "count__x" / "result.json").write_text(text)
    with pytest.raises(DataError, match=f"result.json {message}"):
        read_job(tmp_path)


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason=f"needs ATIF documents in ATIF_FOLDER ({PUBLISHED})")
def test_published_documents_are_read_whole(tmp_path):
    files = sorted(path for path in PUBLISHED.rglob("*") if path.is_file() and path.suffix in (".jsonl", ".json"))
    for number, file in enumerate(files):
        store = TrajectoryStore(tmp_path / str(number))
        assert import_file(file, store, "atif").added
        for one in store.records():
            assert from_atif(to_atif(one.trajectory), one.trajectory.task) == [one.trajectory]
