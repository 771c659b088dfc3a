"""ATIF documents: those of others are read as the format says, ours come back equal, and what breaks it is named."""

from __future__ import annotations

import copy
import json

import pytest
from doubles_store import record, store_of
from hypothesis import given
from hypothesis import strategies as st
from strategies import flat, numbers, tokens

from agentgym_rl.data.atif_read import from_atif, is_atif, task_of
from agentgym_rl.data.atif_write import to_atif
from agentgym_rl.data.export import Exported, export
from agentgym_rl.data.imports import Imported, import_file
from agentgym_rl.data.record import Provenance, Record
from agentgym_rl.data.sft_parquet import is_trained
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.errors import DataError
from agentgym_rl.messages import Message, ToolCall, assistant, system, user
from agentgym_rl.policy import Reply, SampledTokens
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn

TASK = Task("t", "shell")
RESULTS = {"results": [{"source_call_id": "c1", "content": "2 files"}, {"content": "1 s"}]}
QUESTION = [{"type": "text", "text": "How many"}, {"type": "text", "text": "files?"}]
FOREIGN = {
    "schema_version": "ATIF-v1.6",
    "session_id": "run-7",
    "agent": {"name": "terminus", "version": "2", "model_name": "m"},
    "notes": "hand-written",
    "steps": [
        {"step_id": 1, "source": "system", "message": "You work in a shell."},
        {"step_id": 2, "source": "user", "message": QUESTION},
        {
            "step_id": 3,
            "timestamp": "2025-10-11T10:30:02Z",
            "source": "agent",
            "message": "I look.",
            "reasoning_content": "ls tells",
            "tool_calls": [{"tool_call_id": "c1", "function_name": "bash", "arguments": {"cmd": "ls"}}],
            "observation": RESULTS,
            "metrics": {"completion_token_ids": [5, 6], "logprobs": [-0.5, -0.25], "cost_usd": 0.1},
        },
        {"step_id": 4, "source": "user", "message": "Well?"},
        {"step_id": 5, "source": "agent", "message": "2", "metrics": {"completion_token_ids": [5], "logprobs": [0, 0]}},
    ],
}  # fmt: skip


def only(document: dict, task: Task = TASK) -> Trajectory:
    """Its one trajectory."""
    (read,) = from_atif(document, task)
    return read


def test_a_document_of_others_is_read_step_by_step():
    read = only(FOREIGN)
    assert read.opening == (system("You work in a shell."), user("How many\nfiles?"))
    look, answer = read.turns
    said = assistant("<think>\nls tells\n</think>\n\nI look.", (ToolCall("bash", {"cmd": "ls"}, "c1"),))
    assert look.reply == Reply(said)  # what its ids read, calls and reasoning included, nobody knows
    assert look.observation == (Message("tool", "2 files", tool_call_id="c1"), user("1 s"), user("Well?"))
    assert answer.reply == Reply(assistant("2"))  # one id with two log-probs is not what was sampled
    assert (read.stop, read.success, read.environment_return) == (StopReason.TERMINATED, None, 0.0)
    assert (is_atif(FOREIGN), task_of(FOREIGN)) == (True, None)


def changed(number: int, **fields: object) -> dict:
    document = copy.deepcopy(FOREIGN)
    document["steps"][number - 1].update(fields)
    return document


@pytest.mark.parametrize("fields", [{"is_copied_context": True}, {"llm_call_count": 0}])
def test_what_no_model_said_here_is_not_trained(fields):
    assert [is_trained(turn) for turn in only(changed(3, **fields)).turns] == [False, True]


PLAIN = {**FOREIGN, "steps": [{**step, "tool_calls": None, "reasoning_content": None} for step in FOREIGN["steps"]]}


def test_token_ids_of_a_step_with_all_that_was_said_in_its_message_are_those_of_the_reply():
    first, second = only(PLAIN).turns
    assert first.reply == Reply(assistant("I look."), True, SampledTokens((5, 6), (-0.5, -0.25)))
    assert second.reply.tokens is None  # one id with two log-probs is not what was sampled


@pytest.mark.parametrize("taken_out", ["tool_calls", "reasoning_content"])
def test_where_calls_or_reasoning_of_any_reply_stand_apart_no_token_ids_are_taken(taken_out):
    document = copy.deepcopy(PLAIN)
    document["steps"].append({**FOREIGN["steps"][2], "step_id": 6})
    del document["steps"][5]["tool_calls" if taken_out == "reasoning_content" else "reasoning_content"]
    assert [turn.reply.tokens for turn in only(document).turns] == [None, None, None]


@pytest.mark.parametrize("logprobs", [[{"token": "a"}, {"token": "b"}], [None, None], [-0.5], None])
def test_log_probs_that_are_no_numbers_or_not_one_of_each_id_are_not_those_of_a_reply(logprobs):
    document = copy.deepcopy(PLAIN)
    document["steps"][2]["metrics"]["logprobs"] = logprobs
    assert only(document).turns[0].reply.tokens is None


def test_token_ids_that_are_no_numbers_are_not_taken():
    document = copy.deepcopy(PLAIN)
    document["steps"][2]["metrics"]["completion_token_ids"] = ["5", "6"]
    assert only(document).turns[0].reply.tokens is None


def test_token_ids_of_several_calls_of_a_model_are_not_those_of_a_reply():
    several = copy.deepcopy(PLAIN)
    several["steps"][2]["llm_call_count"] = 2
    assert only(several).turns[0].reply.tokens is None


def test_a_result_of_a_call_that_the_step_lacks_is_the_users_message():
    assert only(changed(3, tool_calls=None)).turns[0].observation[0] == user("2 files")


def test_a_result_that_is_a_subagents_trajectory_is_empty():
    results = {"results": [{"source_call_id": "c1", "subagent_trajectory_ref": [{"trajectory_id": "s"}]}]}
    assert only(changed(3, observation=results)).turns[0].observation[0].content == ""


SOUND = [{"type": "audio", "source": {"media_type": "audio/wav", "path": "a.wav"}}]
IMAGE = [{"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({**FOREIGN, "schema_version": "ATIF-v2.0"}, "ATIF-v1.0 to ATIF-v1.8; given: 'ATIF-v2.0'"),
        ({**FOREIGN, "steps": None}, "`steps` must be of type list; given: None"),
        ({**FOREIGN, "steps": FOREIGN["steps"][:2]}, "in no step an agent says or does anything"),
        ({**FOREIGN, "steps": [3]}, "step 1: a step is an object; given: 3"),
        (changed(2, step_id=3), "step 2: its step_id must be 2; given: 3"),
        (changed(2, source="me"), "step 2: its source must be one of system, user, agent; given: 'me'"),
        (changed(2, message=IMAGE), "step 2: `message` has a part of the type 'image'; only text can be read"),
        (changed(2, message=None), "step 2: `message` must be of type str or list; given: None"),
        (changed(2, tool_calls=[{}]), "step 2: only an agent calls tools; given: source 'user'"),
        (changed(3, reasoning_content=["ls"]), "step 3: `reasoning_content` must be of type str; given: ['ls']"),
        (changed(3, tool_calls=5), "step 3: `tool_calls` must be of type list; given: 5"),
        (changed(3, tool_calls=[{}]), "step 3: `tool_call_id` must be of type str; given: None"),
        (changed(3, observation={"results": [3]}), "step 3: a result is an object; given: 3"),
        (changed(3, observation={"results": None}), "step 3: `results` must be of type list; given: None"),
        (changed(3, observation={"results": [{"content": IMAGE}]}), "`content` has a part of the type 'image'"),
        (changed(2, message=SOUND), "step 2: `message` has a part of the type 'audio'; only text can be read"),
        ({**FOREIGN, "subagent_trajectories": 5}, "`subagent_trajectories` must be of type list; given: 5"),
        ({**FOREIGN, "extra": {"openmanus_rl": {"stop": "tired"}}}, "extra.openmanus_rl can't be read"),
        ({**FOREIGN, "extra": {"openmanus_rl": {"opening_replies": "1"}}}, "`opening_replies` must be of type int"),
    ],
)  # fmt: skip
def test_what_breaks_the_format_is_named_with_its_step(document, message):
    with pytest.raises(DataError) as caught:
        from_atif(document, TASK)
    assert message in str(caught.value)


calls = st.lists(st.builds(ToolCall, st.text(), flat, st.text(max_size=2)), max_size=2).map(tuple)
thought = st.builds("<think>\n{}\n</think>\n\n{}".format, st.text(), st.text())
replies = st.builds(
    Reply, st.builds(assistant, st.text() | thought, calls), st.booleans(), st.none() | tokens
)  # fmt: skip
told = st.lists(
    st.builds(Message, st.sampled_from(["system", "user"]), st.text())
    | st.builds(assistant, st.text() | thought, calls),
    min_size=1,
    max_size=3,
).map(tuple)
answers = st.builds(lambda text, id: Message("tool", text, (), id), st.text(), st.none() | st.text(max_size=2))
seen = st.lists(answers | st.builds(Message, st.sampled_from(["system", "user"]), st.text()), max_size=3).map(tuple)
turns = st.builds(Turn, replies, seen, numbers, st.booleans(), numbers, numbers, flat)
trajectories = st.builds(
    Trajectory,
    st.builds(Task, id=st.text(min_size=1), environment=st.just("stairs"), arguments=flat, seed=st.integers()),
    told,
    st.lists(turns, max_size=3).map(tuple),
    st.sampled_from(StopReason),
    st.none() | st.booleans(),
    st.none() | st.builds(Failure, st.text(), st.text(), st.text()),
    st.text(),
)


@given(trajectory=trajectories)
def test_what_was_written_is_read_back_equal(trajectory):
    document = json.loads(json.dumps(to_atif(trajectory)))
    assert only(document, task_of(document)) == trajectory


OF_ALL = {"step_id", "source", "message", "observation", "is_copied_context", "extra"}
OF_AGENT = OF_ALL | {"reasoning_content", "tool_calls", "metrics"}


@given(trajectory=trajectories)
def test_what_is_written_keeps_the_rules_of_the_format(trajectory):
    """Harbor's own model takes no other field, none that is the agent's from others, and only results of calls that
    are there."""
    document = to_atif(trajectory, "run 7")
    assert [step["step_id"] for step in document["steps"]] == list(range(1, len(document["steps"]) + 1))
    assert document.keys() == {"schema_version", "session_id", "agent", "steps", "extra"}
    assert (document["schema_version"], document["session_id"]) == ("ATIF-v1.7", "run 7")
    assert all(isinstance(document["agent"][name], str) for name in ("name", "version"))
    for step in document["steps"]:
        assert step.keys() <= (OF_AGENT if step["source"] == "agent" else OF_ALL)
        assert {"step_id", "source", "message"} <= step.keys()
        named = [call["tool_call_id"] for call in step.get("tool_calls", [])]
        assert all(named)
        assert len(set(named)) == len(named)
        results = step.get("observation", {"results": []})["results"]
        assert {one["source_call_id"] for one in results if "source_call_id" in one} <= set(named)
        assert all({"content"} <= one.keys() <= {"source_call_id", "content", "extra"} for one in results)
        calls = step.get("tool_calls", [])
        assert all(one.keys() - {"extra"} == {"tool_call_id", "function_name", "arguments"} for one in calls)


def test_an_assistants_message_of_the_opening_is_copied_context_and_comes_back_in_the_opening():
    call = assistant("", (ToolCall("look", {}, "c1"),))
    opening = (user("An example:"), call, Message("tool", "a wall", tool_call_id="c1"), user("Now you."))
    given = Trajectory(TASK, opening, (Turn(Reply(assistant("go")), (), 1.0),), StopReason.TERMINATED, True)
    document = to_atif(given)
    steps = document["steps"]
    assert [step["source"] for step in steps] == ["user", "agent", "user", "agent"]
    assert [step.get("is_copied_context", False) for step in steps] == [False, True, False, False]
    assert only(document) == given
    del document["extra"]["openmanus_rl"]["opening_replies"]  # as documents were at first
    read = only(document)
    assert read.messages == given.messages
    assert [is_trained(turn) for turn in read.turns] == [False, True]


def test_what_has_no_place_in_a_document_is_refused():
    told = (user("Hi."),)
    empty = Trajectory(TASK, (), (), StopReason.FAILED)
    other = Trajectory(TASK, told, (Turn(Reply(user("me")), (), 0.0),), StopReason.TERMINATED)
    speaking = Trajectory(TASK, told, (Turn(Reply(assistant("me")), (assistant("me"),), 0.0),), StopReason.TERMINATED)
    for refused, message in [(empty, "at least one message"), (other, "the user's"), (speaking, "in an observation")]:
        with pytest.raises(DataError, match=message):
            to_atif(refused)


def test_a_store_goes_to_a_file_and_back_and_an_episode_without_a_message_is_left_out(tmp_path, caplog):
    silent = Record("silent", Trajectory(TASK, (), (), StopReason.FAILED), Provenance("collect"))
    kept = [record("a"), record("crashed", crashed=True)]
    assert export(store_of(tmp_path / "s", *kept, silent), "atif", tmp_path / "f.jsonl") == Exported(2, 3)
    assert "1 without a message" in caplog.text
    back = TrajectoryStore(tmp_path / "back")
    assert import_file(tmp_path / "f.jsonl", back) == Imported(2, 0)
    assert [one.trajectory for one in back.records()] == [one.trajectory for one in kept]


def test_one_document_is_a_file_as_harbor_writes_it_and_needs_an_environment(tmp_path):
    (tmp_path / "trajectory.json").write_text(json.dumps(FOREIGN))
    store = TrajectoryStore(tmp_path / "s")
    with pytest.raises(DataError, match="such a trajectory does not say its environment: give one"):
        import_file(tmp_path / "trajectory.json", store)
    assert import_file(tmp_path / "trajectory.json", store, "shell") == Imported(1, 0)
    assert import_file(tmp_path / "trajectory.json", store, "shell") == Imported(0, 1)
    (read,) = store.records()
    assert (read.trajectory.task, len(read.trajectory.turns)) == (Task("run-7", "shell"), 2)


def test_a_folder_of_a_job_gives_the_document_of_each_trial_though_they_are_equal(tmp_path):
    for trial in ("one", "two"):
        (tmp_path / "job" / trial / "agent").mkdir(parents=True)
        (tmp_path / "job" / trial / "agent" / "trajectory.json").write_text(json.dumps({**FOREIGN, "session_id": None}))
        (tmp_path / "job" / trial / "result.json").write_text("{}")
    store = TrajectoryStore(tmp_path / "s")
    assert import_file(tmp_path / "job", store, "shell") == Imported(2, 0)
    assert import_file(tmp_path / "job", store, "shell") == Imported(0, 2)
    assert [one.trajectory.task.id for one in store.records()] == ["one/agent/trajectory-1", "two/agent/trajectory-1"]
    with pytest.raises(DataError, match="has no file trajectory.json"):
        import_file(tmp_path / "s", TrajectoryStore(tmp_path / "t"), "shell")
