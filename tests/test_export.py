"""What trainers read: each format says what the trajectories said, and what is read back equals what was written."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from doubles_store import ids, record, store_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import json_values

from agentgym_rl.data.chat_files import from_line, to_line
from agentgym_rl.data.export import Exported, export
from agentgym_rl.data.imports import Imported, import_file
from agentgym_rl.data.only_writer import only_writer
from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.data.preferences import preference_pairs
from agentgym_rl.data.record import Provenance, Record
from agentgym_rl.data.sft_parquet import is_trained
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.store_query import Query
from agentgym_rl.data.trajectory_json import from_dict, read_trajectories
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.messages import Message, ToolCall, assistant, user
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason, Trajectory, Turn

TASK = Task("maze_7", "maze")
calls = st.lists(
    st.builds(ToolCall, st.text(), st.dictionaries(st.text(), json_values, max_size=2), st.text(min_size=1)), max_size=2
).map(tuple)
replies = st.builds(Reply, st.builds(assistant, st.text(), calls), st.booleans())
seen = st.lists(
    st.builds(Message, st.sampled_from(["system", "user"]), st.text())
    | st.builds(lambda text, id: Message("tool", text, (), id), st.text(), st.none() | st.text()),
    max_size=2,
).map(tuple)
turns = st.builds(
    Turn, replies, seen, st.just(0.0), st.booleans(), info=st.sampled_from([{}, {"trained": False}, {"trained": True}])
)
chats = st.builds(
    Trajectory, st.just(TASK), seen, st.lists(turns, min_size=1, max_size=3).map(tuple), st.just(StopReason.TERMINATED)
)


def spoken(trajectory: Trajectory) -> tuple[Message, ...]:
    """Up to the last reply, which is where a conversation of a file ends."""
    seen_last = len(trajectory.turns[-1].observation)
    return trajectory.messages[: len(trajectory.messages) - seen_last]


def flags(trajectory: Trajectory) -> list[bool]:
    return [is_trained(turn) for turn in trajectory.turns]


@pytest.mark.parametrize("layout", ["openai", "sharegpt"])
@given(trajectory=chats)
def test_every_message_call_and_flag_up_to_the_last_reply_survives_a_line(layout, trajectory):
    line = json.loads(json.dumps(to_line(trajectory, layout)))
    read = from_line(line, TASK)
    assert read.opening == trajectory.opening
    assert read.messages == spoken(trajectory)
    assert [turn.observation for turn in read.turns[:-1]] == [turn.observation for turn in trajectory.turns[:-1]]
    assert flags(read) == flags(trajectory)
    assert to_line(read, layout) == line


def one(*turns: Turn) -> Record:
    return Record("r", Trajectory(TASK, (user("a wall"),), turns, StopReason.TERMINATED, True), Provenance("collect"))


def calling() -> Record:
    call = ToolCall("go", {"x": 1}, "c1")
    return one(
        Turn(Reply(assistant("hm")), (user("what?"),), 0.0, valid=False),
        Turn(Reply(assistant("so", (call,))), (Message("tool", "done", (), "c1"),), 1.0),
    )


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_openai_lines_have_messages_with_calls_as_json_text_and_a_weight_on_replies(tmp_path):
    store = store_of(tmp_path / "s", calling())
    assert export(store, "openai", tmp_path / "f.jsonl") == Exported(1, 1)
    call = {"id": "c1", "type": "function", "function": {"name": "go", "arguments": '{"x": 1}'}}
    assert lines_of(tmp_path / "f.jsonl") == [
        {
            "messages": [
                {"role": "user", "content": "a wall"},
                {"role": "assistant", "content": "hm", "weight": 0},
                {"role": "user", "content": "what?"},
                {"role": "assistant", "content": "so", "tool_calls": [call], "weight": 1},
            ]
        }
    ]


@pytest.mark.parametrize("format", ["openai", "sharegpt", "trajectories"])
def test_half_a_surrogate_pair_in_a_calls_arguments_goes_to_a_file_and_comes_back(tmp_path, format):
    given = (ToolCall("go", {"to": "\ud83d é"}, "c1"),)
    said = Turn(Reply(assistant("so", given)), (), 0.0)
    trajectory = Trajectory(TASK, (user("a wall"),), (said,), StopReason.TERMINATED)
    store = store_of(tmp_path / "s", Record("a", trajectory, Provenance("collect")))
    assert export(store, format, tmp_path / "f.jsonl") == Exported(1, 1)
    (line,) = lines_of(tmp_path / "f.jsonl")
    read = from_dict(line) if format == "trajectories" else from_line(line, TASK)
    assert read.turns[0].reply.message == assistant("so", given)
    assert "é" in (tmp_path / "f.jsonl").read_text(encoding="utf-8")


def test_half_a_surrogate_pair_in_a_chat_is_no_more_than_its_escape(tmp_path):
    call = assistant("", (ToolCall("go", {"to": "\ud83d"}, "c1"),))
    trajectory = Trajectory(TASK, (user("a wall"),), (Turn(Reply(call), (), 0.0),), StopReason.TERMINATED)
    said = to_line(trajectory, "openai")["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert said == '{"to": "\\ud83d"}'
    assert "\\ud83d" in to_line(trajectory, "sharegpt")["conversations"][1]["value"]


def test_sharegpt_lines_have_the_layout_of_agenttraj(tmp_path):
    export(store_of(tmp_path / "s", calling()), "sharegpt", tmp_path / "f.jsonl")
    call = '[{"name": "go", "arguments": {"x": 1}, "id": "c1"}]'
    assert lines_of(tmp_path / "f.jsonl") == [
        {
            "item_id": "maze_7",
            "environment": "maze",
            "conversations": [
                {"from": "human", "value": "a wall", "loss": None},
                {"from": "gpt", "value": "hm", "loss": False},
                {"from": "human", "value": "what?", "loss": None},
                {"from": "function_call", "value": call, "loss": True, "content": "so"},
            ],
        }
    ]


@pytest.mark.parametrize("format", ["sft", "openai", "sharegpt"])
def test_what_was_exported_and_imported_says_the_same(tmp_path, format):
    given = [calling(), record("plain", "abc", task="maze_8", environment="maze")]
    file = tmp_path / ("f.parquet" if format == "sft" else "f.jsonl")
    export(store_of(tmp_path / "s", *given), format, file)
    store = TrajectoryStore(tmp_path / "back")
    assert import_file(file, store, "maze") == Imported(2, 0)
    read = [one.trajectory for one in store.records()]
    whole = (lambda one: one.messages) if format == "sft" else spoken
    assert [one.messages for one in read] == [whole(one.trajectory) for one in given]
    assert [flags(one) for one in read] == [[False, True], [True, True, True]]
    if format != "openai":  # which has no place for them
        assert [(one.task.id, one.task.environment) for one in read] == [("maze_7", "maze"), ("maze_8", "maze")]


@pytest.mark.parametrize("format", ["sft", "openai", "sharegpt"])
def test_what_can_not_be_imitated_is_left_out_and_counted(tmp_path, caplog, format):
    store = store_of(tmp_path / "s", record("a"), record("crashed", crashed=True), record("bad", "a", invalid="a"))
    with caplog.at_level(logging.WARNING):
        assert export(store, format, tmp_path / "f") == Exported(1, 3)
    (message,) = [entry.getMessage() for entry in caplog.records]
    assert "2 of 3 trajectories left out (1 failed: environment_crashed, 1 without a valid reply)" in message


@pytest.mark.parametrize("format", ["sft", "openai", "sharegpt", "dpo"])
def test_nothing_is_written_where_nothing_is_left(tmp_path, format):
    store = store_of(tmp_path / "s", record("crashed", crashed=True))
    with pytest.raises(DataError, match="there is no (trajectory|pair) to write to"):
        export(store, format, tmp_path / "f")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_only_what_a_query_asks_for_is_exported(tmp_path):
    store = store_of(tmp_path / "s", record("a", task="t_1"), record("b", task="t_2"))
    assert export(store, "sharegpt", tmp_path / "f.jsonl", Query(task="t_2")) == Exported(1, 1)
    assert [line["item_id"] for line in lines_of(tmp_path / "f.jsonl")] == ["t_2"]


def test_a_reply_that_is_not_the_assistants_has_no_place_in_these_files():
    with pytest.raises(DataError, match="task 'maze_7': a reply must be the assistant's; given: the user's"):
        to_line(one(Turn(Reply(user("me")), (), 0.0)).trajectory, "openai")


def test_whole_trajectories_go_to_json_lines_and_come_back_equal_failed_ones_too(tmp_path):
    given = [calling(), record("crashed", crashed=True), record("unknown", success=None)]
    store = store_of(tmp_path / "s", *given)
    assert export(store, "trajectories", tmp_path / "t.jsonl") == Exported(3, 3)
    assert read_trajectories(tmp_path / "t.jsonl") == [one.trajectory for one in given]
    back = TrajectoryStore(tmp_path / "back")
    assert import_file(tmp_path / "t.jsonl", back) == Imported(3, 0)
    assert import_file(tmp_path / "t.jsonl", back) == Imported(0, 3)
    assert [one.trajectory for one in back.records()] == [one.trajectory for one in given]


def test_episodes_of_one_task_are_sessions_of_their_own_in_atif(tmp_path):
    assert export(store_of(tmp_path / "s", record("a"), record("b")), "atif", tmp_path / "f.jsonl") == Exported(2, 2)
    assert [line["session_id"] for line in lines_of(tmp_path / "f.jsonl")] == ["a", "b"]


# Preference pairs


def pairs_of(tmp_path: Path, *records: Record, **options) -> list[tuple[str, str, int]]:
    """(chosen, rejected, messages of the prompt)."""
    export(store_of(tmp_path / "s", *records), "dpo", tmp_path / "pairs.jsonl", **options)
    return [
        (line["chosen"][0]["content"], line["rejected"][0]["content"], len(line["prompt"]))
        for line in lines_of(tmp_path / "pairs.jsonl")
    ]


def test_a_pair_is_the_first_different_reply_after_the_shared_conversation(tmp_path):
    # opening, a, seen a | b against c: three messages of prompt
    store = store_of(tmp_path / "s", record("lost", "acd", 0.0, success=False), record("solved", "ab", 1.0))
    assert export(store, "dpo", tmp_path / "pairs.jsonl") == Exported(1, 1)
    assert lines_of(tmp_path / "pairs.jsonl") == [
        {
            "prompt": [
                {"role": "user", "content": "opening of t"},
                {"role": "assistant", "content": "a"},
                {"role": "user", "content": "seen a"},
            ],
            "chosen": [{"role": "assistant", "content": "b"}],
            "rejected": [{"role": "assistant", "content": "c"}],
            "task_id": "t",
            "environment": "stairs",
            "return_chosen": 1.0,
            "return_rejected": 0.0,
        }
    ]


def test_success_comes_before_return_and_the_return_decides_among_equals(tmp_path):
    given = [
        record("solved", "a", 0.5),
        record("rich", "b", 9.0, success=False),
        record("more", "c", 0.2, task="u", success=None),
        record("less", "d", 0.1, task="u", success=False),
    ]
    assert pairs_of(tmp_path, *given) == [("a", "b", 1), ("c", "d", 1)]


def test_best_and_worst_are_paired_first_then_the_second_of_each(tmp_path):
    # returns 4 3 2 1 0: the pairs are 4-0 and 3-1; 2 stays alone, and a third pair there is none
    given = [record(str(earned), name, float(earned)) for earned, name in enumerate("abcde")]
    assert sorted(pairs_of(tmp_path / "1", *given)) == [("e", "a", 1)]
    assert sorted(pairs_of(tmp_path / "2", *given, pairs_per_task=9)) == [("d", "b", 1), ("e", "a", 1)]


def test_only_what_a_query_asks_for_is_paired(tmp_path):
    given = [record("a", "a", 2.0), record("b", "b", 1.0), record("c", "c", 0.0)]
    assert pairs_of(tmp_path, *given, query=Query(min_return=1.0)) == [("a", "b", 1)]


def test_episodes_that_failed_are_equal_or_never_part_by_a_trained_reply_make_no_pair(tmp_path):
    given = [
        *(record(f"crash {one}", one, 0.0, task="1", crashed=one == "a") for one in "ab"),
        *(record(f"equal {one}", one, task="2") for one in "ab"),
        *(record(f"same {one}", "ab", one, task="3") for one in (0.0, 1.0)),
        record("invalid", "a", 1.0, task="4", invalid="a"),
        record("valid", "b", 0.0, task="4"),
        record("saw", "ab", 1.0, task="5", seen="saw"),
        record("felt", "ac", 0.0, task="5", seen="felt"),
    ]
    store = store_of(tmp_path / "s", *given)
    with pytest.raises(DataError, match="no pair to write to .*: none of 3 parts by a reply worth imitating"):
        export(store, "dpo", tmp_path / "pairs.jsonl")


@settings(max_examples=15, deadline=None)
@given(begun=chats, good=turns, bad=turns)
def test_a_pair_read_again_is_how_either_episode_began(tmp_path_factory, begun, good, bad):
    assume(begun.messages and begun.messages[-1].role in ("user", "tool"))
    said = f"{good.reply.message.content}, or not"
    good = replace(good, reply=replace(good.reply, complete=True), valid=True, info={})
    bad = replace(bad, reply=replace(bad.reply, message=replace(bad.reply.message, content=said)))
    episodes = [replace(begun, turns=(*begun.turns, last), success=last is good) for last in (good, bad)]
    store = store_of(
        tmp_path_factory.mktemp("pairs") / "s",
        *(Record(name, one, Provenance("c")) for name, one in zip("ab", episodes, strict=True)),
    )
    (line,) = (json.loads(json.dumps(pair)) for pair in preference_pairs(store))
    for episode, side in zip(episodes, ("chosen", "rejected"), strict=True):
        read = tuple(Message.from_chat(chat) for chat in line["prompt"] + line[side])
        assert read == episode.messages[: len(episode.messages) - len(episode.turns[-1].observation)]


# Files of others


AGENTTRAJ = [
    {
        "item_id": "webshop_12",
        "conversations": [
            {"from": "human", "loss": None, "value": "You are shopping."},
            {"from": "gpt", "loss": False, "value": "Ok."},
            {"from": "human", "loss": None, "value": "Buy shoes."},
            {"from": "gpt", "loss": True, "value": "Action: search[shoes]"},
        ],
    }
]


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet"])
def test_agenttraj_is_read_from_json_json_lines_and_parquet(tmp_path, suffix):
    file = tmp_path / f"train{suffix}"
    if suffix == ".json":
        file.write_text(json.dumps(AGENTTRAJ))
    elif suffix == ".jsonl":
        file.write_text("".join(json.dumps(line) + "\n\n" for line in AGENTTRAJ))
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(AGENTTRAJ), file)
    store = TrajectoryStore(tmp_path / "s")
    assert import_file(file, store) == Imported(1, 0)
    (read,) = store.records()
    trajectory = read.trajectory
    assert (trajectory.task.id, trajectory.task.environment) == ("webshop_12", "webshop")
    assert trajectory.opening == (user("You are shopping."),)
    assert [turn.reply.message.content for turn in trajectory.turns] == ["Ok.", "Action: search[shoes]"]
    assert flags(trajectory) == [False, True]
    assert (trajectory.success, trajectory.environment_return) == (None, 0.0)
    assert (read.provenance.source, read.provenance.policy) == ("import", f"file train{suffix}")
    line = to_line(trajectory, "sharegpt")
    assert line["conversations"] == AGENTTRAJ[0]["conversations"]


def test_a_file_that_was_imported_adds_nothing_and_equal_conversations_of_it_stay_apart(tmp_path):
    file, store = tmp_path / "f.json", TrajectoryStore(tmp_path / "s")
    file.write_text(json.dumps(AGENTTRAJ * 3))
    assert import_file(file, store) == Imported(3, 0)
    assert import_file(file, store) == Imported(0, 3)
    assert len(set(ids(store))) == 3


def test_the_environment_is_the_given_one_or_what_the_line_says(tmp_path):
    said = AGENTTRAJ[0]["conversations"]
    file = tmp_path / "f.json"
    lines = [
        {"item_id": "a_1", "environment": "maze", "conversations": said},
        {"item_id": "a_1", "data_source": "babyai", "conversations": said},
        {"item_id": "a_b_1", "conversations": said},
    ]
    file.write_text(json.dumps(lines))
    import_file(file, TrajectoryStore(tmp_path / "said"))
    import_file(file, TrajectoryStore(tmp_path / "given"), "stairs")
    names = [
        [one.trajectory.task.environment for one in TrajectoryStore(tmp_path / name).records()]
        for name in ("said", "given")
    ]
    assert names == [["maze", "babyai", "a_b"], ["stairs"] * 3]


def conversation(*entries: object) -> str:
    return json.dumps([{"item_id": "a_1", "conversations": entries}])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("f.txt", "", r"conversations come from a file that ends in .jsonl, .json, .parquet; given: .*f.txt"),
        ("f.json", "{", r"f.json is no JSON"),
        ("f.json", "{}", "conversation 1 of .*: no environment is given for it"),
        ("f.jsonl", "\n{\n", r"line 2 of .*f.jsonl: not valid JSON \(Expecting property name"),
        ("f.json", "[3]", "row 1 of .*: a row is a JSON object; given: int"),
        (
            "f.json",
            '[{"item_id": "a_1", "text": "x"}]',
            "conversation 1 of .*: a conversation is a list under 'messages' or 'conversations'; given: item_id, text",
        ),
        ("f.json", '[{"item_id": "x", "conversations": []}]', r"no environment is given for it, .* \('x'\)"),
        ("f.json", conversation(), "a conversation needs a reply of the assistant"),
        ("f.json", conversation({"from": "gpt"}), "a turn is an object with `from` and `value`, both text"),
        ("f.json", conversation({"from": "me", "value": ""}), "a turn is from one of .*; given: 'me'"),
        (
            "f.json",
            conversation({"from": "function_call", "value": "go"}),
            "a function_call is JSON with `name` and `arguments`; given: 'go'",
        ),
        ("f.json", '[{"item_id": "a_1", "messages": [3]}]', "a message is an object; given: 3"),
        ("f.json", '[{"item_id": "a_1", "messages": [{"role": "me"}]}]', "a message's role was 'me'"),
        ("f.parquet", "no parquet", "f.parquet is no parquet file"),
    ],
)
def test_what_is_no_conversation_is_refused_with_its_place(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        import_file(tmp_path / name, TrajectoryStore(tmp_path / "s"))


def test_a_conversation_of_which_the_system_prompt_changed_is_another_one(tmp_path):
    file, store = tmp_path / "f.json", TrajectoryStore(tmp_path / "s")
    for prompt in ("Be brief.", "Be kind."):
        file.write_text(json.dumps([{**AGENTTRAJ[0], "system": prompt}]))
        assert import_file(file, store) == Imported(1, 0)
        assert import_file(file, store) == Imported(0, 1)
    prompts = [one.trajectory.opening[0].content for one in store.records()]
    assert prompts == ["Be brief.", "Be kind."]


def test_a_conversation_without_a_system_prompt_has_the_id_that_it_always_had(tmp_path):
    for number, line in enumerate([AGENTTRAJ[0], {**AGENTTRAJ[0], "system": None}, {**AGENTTRAJ[0], "system": ""}]):
        (tmp_path / "f.json").write_text(json.dumps([line]))
        store = TrajectoryStore(tmp_path / str(number))
        import_file(tmp_path / "f.json", store)
        assert ids(store) == ["11c4b96efd019dc0"]


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_a_byte_order_mark_is_no_part_of_a_file_and_another_encoding_is_refused(tmp_path, suffix):
    file, text = tmp_path / f"f{suffix}", json.dumps({**AGENTTRAJ[0], "note": "é"}, ensure_ascii=False)
    file.write_bytes(text.encode("utf-8-sig"))
    assert import_file(file, TrajectoryStore(tmp_path / "s")) == Imported(1, 0)
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match="is no JSON: 'utf-8' codec|line 1 of .*: not UTF-8"):
        import_file(file, TrajectoryStore(tmp_path / "t"))


def test_bytes_in_a_parquet_file_are_refused_with_their_place(tmp_path):
    row = {**AGENTTRAJ[0], "content": b"raw"}
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "f.parquet")
    with pytest.raises(DataError, match="conversation 1 of .*f.parquet: it holds what is no JSON: .*bytes"):
        import_file(tmp_path / "f.parquet", TrajectoryStore(tmp_path / "s"))


def test_two_imports_at_once_are_refused(tmp_path):
    file, store = tmp_path / "f.json", TrajectoryStore(tmp_path / "s")
    file.write_text(json.dumps(AGENTTRAJ))
    with only_writer(store.folder), pytest.raises(ConfigurationError, match="another process is adding to the store"):
        import_file(file, store)
    assert import_file(file, store) == Imported(1, 0)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match="there is no file .*none.json"):
        import_file(tmp_path / "none.json", TrajectoryStore(tmp_path / "s"))


def test_what_stands_before_a_bad_conversation_is_added_and_the_mended_file_adds_the_rest(tmp_path):
    file, store = tmp_path / "f.json", TrajectoryStore(tmp_path / "s")
    file.write_text(json.dumps([*AGENTTRAJ, {"item_id": "a_1"}]))
    with pytest.raises(DataError, match="conversation 2"):
        import_file(file, store)
    file.write_text(json.dumps(AGENTTRAJ * 2))
    assert import_file(file, store) == Imported(1, 1)


@settings(max_examples=15)
@given(written=st.lists(chats, min_size=1, max_size=3))
def test_a_file_of_lines_round_trips_through_stores(tmp_path_factory, written):
    folder = tmp_path_factory.mktemp("round")
    store = store_of(folder / "s", *(Record(str(i), one, Provenance("c")) for i, one in enumerate(written)))
    taken = [one for one in written if any(flags(one))]
    assume(taken)
    export(store, "sharegpt", folder / "f.jsonl")
    back = TrajectoryStore(folder / "back")
    import_file(folder / "f.jsonl", back)
    assert [one.trajectory.messages for one in back.records()] == [spoken(one) for one in taken]


def test_each_task_that_was_played_is_written_once(tmp_path):
    first, second = Task("a", "maze", {"size": 3}, seed=1, reply_form="tags"), Task("b", "maze")
    played = []
    for number, task in enumerate([first, second, first]):
        one = record(str(number))
        played.append(replace(one, trajectory=replace(one.trajectory, task=task)))
    done = export(store_of(tmp_path / "store", *played), "tasks", tmp_path / "tasks.parquet")
    assert done == Exported(2, 3)
    assert read_tasks(tmp_path / "tasks.parquet") == [first, second]


def test_conversations_of_others_give_no_tasks_and_an_imported_episode_does(tmp_path, caplog):
    (tmp_path / "f.json").write_text(json.dumps(AGENTTRAJ))
    store = store_of(tmp_path / "s", record("a", task="played"))
    import_file(tmp_path / "f.json", store)
    back = replace(record("b", task="came back", source="import").trajectory, fingerprint="known")
    store.append([Record("b", back, Provenance("import"))])
    assert export(store, "tasks", tmp_path / "tasks.parquet") == Exported(2, 3)
    assert [task.id for task in read_tasks(tmp_path / "tasks.parquet")] == ["played", "came back"]
    assert "1 of 3 trajectories left out (1 imported)" in caplog.text
    with pytest.raises(DataError, match="no trajectory to write to .*; left out: 1 imported"):
        export(store, "tasks", tmp_path / "none.parquet", Query(task="webshop_12"))


def test_different_tasks_of_one_id_are_told_apart_by_a_number(tmp_path):
    given = [
        record("1", task="a"),
        record("2", task="a", environment="maze"),
        record("3", task="a-2"),
        record("4", task="a", height=3),
        record("5", task="a"),
    ]
    assert export(store_of(tmp_path / "s", *given), "tasks", tmp_path / "tasks.parquet") == Exported(4, 5)
    tasks = [(task.id, task.environment, task.arguments) for task in read_tasks(tmp_path / "tasks.parquet")]
    assert tasks == [
        ("a", "stairs", {}), ("a-2", "maze", {}), ("a-2-2", "stairs", {}), ("a-3", "stairs", {"height": 3})
    ]  # fmt: skip
