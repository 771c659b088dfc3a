"""Tasks that begin in the middle of an episode: exported from a store, played, and told from their originals."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from dataclasses import replace

import pytest
import typer
from doubles import Guess, task_for
from doubles_augment import augmented, record_of
from doubles_cli import stairs
from doubles_store import record, store_of
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from agentgym_rl.commands.store import add_to
from agentgym_rl.data.export import Exported, export
from agentgym_rl.data.parquet import read_tasks, write_tasks
from agentgym_rl.data.prefix_tasks import begins_at, prefix_tasks
from agentgym_rl.data.record import Provenance, Record
from agentgym_rl.data.task_overlap import Listed, overlaps, same_task
from agentgym_rl.data.user_tasks import load_tasks, write_jsonl
from agentgym_rl.environments import registry
from agentgym_rl.episode import play
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.evaluation.reference import Way, try_tasks
from agentgym_rl.policy import ScriptedPolicy
from agentgym_rl.task import Task

HIGH = stairs("high", height=4)


def actions(task: Task) -> list[str]:
    return [message["content"] for message in task.prefix]


def begun(records: list[Record], start: str) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Id -> actions of its prefix, and what was left out."""
    left_out: Counter[str] = Counter()
    return {task.id: actions(task) for task in prefix_tasks(records, start, left_out)}, dict(left_out)


def solved(task: Task, *lines: str) -> bool | None:
    async def episode() -> bool | None:
        async with registry.opened(task.environment) as environment:
            return (await play(ScriptedPolicy(lines), environment, task)).success

    return asyncio.run(episode())


# So many turns before the end


def test_a_task_begins_so_many_turns_before_the_end_or_where_it_did():
    records = [record_of(HIGH), record_of(HIGH, "up", "down", "up", "up", "up", "up"), record_of(stairs("low"))]
    high = [begun([one], "2")[0] for one in records]
    assert high == [{"high@turn-2": ["up"] * 2}, {"high@turn-4": ["up", "down", "up", "up"]}, {"low": []}]
    assert [begun(records[:1], start)[0] for start in ("1", "4", "9")] == [
        {"high@turn-3": ["up"] * 3},
        {"high": []},
        {"high": []},
    ]


def test_all_else_is_the_trajectorys_task():
    given = replace(HIGH, seed=7, split="validation", reference_answer=[1], prompt="Climb.", reply_form="think-tags")
    (task,) = prefix_tasks([record_of(given)], "1", Counter())
    assert replace(task, id=given.id, prefix=()) == given


@given(st.lists(st.sampled_from(["4", "2", "6", "5", "3", "1", "8", "7"]), max_size=5), st.integers(0, 30), st.data())
def test_what_was_solved_is_solved_from_wherever_it_begins(lines, seed, data):
    task = task_for(Guess, seed=seed)
    played = record_of(task, *lines, str(Guess().draw(task)))
    if not played.trajectory.success:
        return
    start = data.draw(st.integers(1, 7))
    left_out = begun([played], str(start))[1]
    if left_out:
        assert left_out == {"with an action before that was not understood": 1}
        return
    (first,) = prefix_tasks([played], str(start), Counter())
    said = [turn.reply.message.content for turn in played.trajectory.turns]
    assert solved(first, *said[len(first.prefix) :])


def test_only_solved_episodes_whose_actions_were_understood_give_a_task():
    records = [
        record("lost", success=False),
        record("unknown", success=None),
        record("broken", crashed=True),
        record("early", "abcd", invalid="b"),
        record("late", "abcd", invalid="c"),
        record("chat", "abc", source="import"),
    ]
    found, left_out = begun(records, "2")
    assert found == {"t@turn-2": ["a", "b"]}
    assert left_out == {"not solved": 3, "with an action before that was not understood": 1, "imported": 1}


def test_a_thought_goes_along_beside_its_action():
    task = replace(HIGH, reply_form="think-tags")
    form = "<think>{}</think><action>up</action>"
    played = record_of(task, *(form.format(thought) for thought in ("one", "", "three", "four")))
    begins = begins_at(played.trajectory, 2)
    assert begins.prefix == (
        {"role": "assistant", "content": "up", "reasoning_content": "one"},
        {"role": "assistant", "content": "up"},
    )
    assert solved(begins, form.format("three"), form.format("four"))
    assert solved(replace(begins, reply_form="bare"), "up", "up")


def test_an_episode_that_began_after_a_prefix_is_cut_again_and_counted_from_the_start():
    once = begins_at(record_of(HIGH).trajectory, 1)
    twice = begins_at(record_of(once).trajectory, 2)
    assert (twice.id, actions(twice)) == ("high@turn-3", ["up"] * 3)
    assert begins_at(record_of(once).trajectory, 0) == once


# After an augmentation's prefix


def test_a_prefix_that_augmentation_kept_is_where_a_task_begins(tmp_path):
    lost = record_of(HIGH, "up", "down", "down")
    done = augmented(tmp_path, lost, record_of(stairs("low")), rules={"prefix": 3, "tool_error": 1})
    found, left_out = begun(list(done.store.records()), "prefix")
    assert found == {"high@turn-1": ["up"], "high@turn-2": ["up", "down"], "high@turn-3": ["up", "down", "down"]}
    assert left_out == {"without a prefix that an augmentation made": 3}
    for task in prefix_tasks(done.store.records(), "prefix", Counter()):
        assert solved(task, *["up"] * 4)


def test_a_call_that_the_environment_never_saw_is_in_no_prefix(tmp_path):
    done = augmented(tmp_path, record_of(HIGH), rules={"tool_error": 1}, keep_originals=False)
    (failing,) = done.store.records()
    turns = len(failing.trajectory.turns)
    assert turns == 5
    found = [begun([failing], str(start)) for start in range(1, turns + 1)]
    failed = json.loads(failing.provenance.perturbation)["turn"]
    assert failed == 1
    why = {"with a failed call before, which the environment would carry out": 1}
    assert found[:3] == [({}, why)] * 3  # from turns 4, 3 and 2: the failed call stands before
    assert found[3:] == [({"high@turn-1": ["up"]}, {}), ({"high": []}, {})]


# Files


def test_each_task_is_written_once_and_read_and_played_again(tmp_path, caplog):
    another = record_of(HIGH, "up", "down", "up", "up", "up", "up")
    same = replace(record_of(HIGH), id="same", provenance=Provenance("collect", 1))
    other_way = record_of(HIGH, "down", "down", "up", "up", "up", "up")
    store = store_of(tmp_path / "s", record_of(HIGH), same, another, other_way, record_of(stairs("low"), "down"))
    with caplog.at_level(logging.WARNING):
        assert export(store, "tasks", tmp_path / "t.parquet", start="2") == Exported(3, 5)
    assert "1 of 5 trajectories left out (1 not solved)" in caplog.text
    tasks = read_tasks(tmp_path / "t.parquet")
    assert [task.id for task in tasks] == ["high@turn-2", "high@turn-4", "high@turn-4-2"]
    assert [trial.trouble for trial in asyncio.run(try_tasks(tasks))] == [""] * 3
    assert all(trial.way is Way.EXPERT for trial in asyncio.run(try_tasks(tasks)))
    write_jsonl(tasks, tmp_path / "t.jsonl")
    assert load_tasks(tmp_path / "t.jsonl") == tasks


def test_a_dry_run_says_of_a_prefix_that_it_does_not_fit():
    wrong = replace(HIGH, prefix=[{"role": "assistant", "content": "jump"}])
    (trial,) = asyncio.run(try_tasks([wrong]))
    assert "can't be set up: the prefix of task 'high' can't be played: turn 0 of 1" in trial.trouble


def test_no_solved_episode_no_file(tmp_path):
    store = store_of(tmp_path / "s", record("lost", success=False))
    with pytest.raises(DataError, match=r"there is no trajectory to write to .*; left out: 1 not solved"):
        export(store, "tasks", tmp_path / "t.parquet", start="2")
    assert not (tmp_path / "t.parquet").exists()


@pytest.mark.parametrize("start", ["0", "-1", "2.5", "", "prefixes", "²"])
def test_a_start_that_is_none_is_refused(tmp_path, start):
    store = store_of(tmp_path / "s", record("a"))
    with pytest.raises(ConfigurationError, match="tasks start at 'prefix', or a number of turns, at least 1, before"):
        export(store, "tasks", tmp_path / "t.parquet", start=start)


def test_only_tasks_have_a_start(tmp_path):
    with pytest.raises(ConfigurationError, match="only tasks have a start; given: the format 'sft' and the start '2'"):
        export(store_of(tmp_path / "s", record("a")), "sft", tmp_path / "t.parquet", start="2")


def test_the_command_writes_them(tmp_path):
    app = typer.Typer()
    add_to(app)
    store_of(tmp_path / "s", record_of(HIGH))
    options = ["--store", tmp_path / "s", "--format", "tasks", "--start", 2, "--out", tmp_path / "t.parquet"]
    result = CliRunner().invoke(app, ["export", *map(str, options)], env={"COLUMNS": "200"})
    assert "wrote 1 tasks of 1 trajectories" in result.stdout
    assert [task.id for task in read_tasks(tmp_path / "t.parquet")] == ["high@turn-2"]


# Told from their originals


def listed(*tasks: Task, file: str = "train") -> list[Listed]:
    return [Listed(file, f"line {number}", task) for number, task in enumerate(tasks, start=1)]


def repeats(tasks: list[Listed]) -> list[tuple[str, str]]:
    return [(one.later.task.id, one.earlier.task.id) for one in overlaps(tasks, 0.7)]


def test_other_starts_of_an_episode_repeat_nothing_in_their_file_but_leak_into_another():
    whole = replace(HIGH, arguments={"note": "There are four stairs here, and each is higher than the last."})
    one, two = (begins_at(record_of(replace(whole, arguments=HIGH.arguments)).trajectory, turn) for turn in (1, 2))
    one, two = replace(one, arguments=whole.arguments), replace(two, arguments=whole.arguments)
    assert len({same_task(task) for task in (whole, one, two)}) == 3
    for order in ([whole, one, two], [two, one, whole]):
        assert repeats(listed(*order)) == []
    assert repeats(listed(whole, one, replace(one, id="again"))) == [("again", "high@turn-1")]
    assert repeats([*listed(one, two), *listed(whole, file="test")]) == [("high", "high@turn-1")]
    assert repeats([*listed(whole), *listed(two, file="test")]) == [("high@turn-2", "high")]


def test_verls_rows_carry_a_prefix_unchanged(tmp_path):
    task = begins_at(record_of(HIGH).trajectory, 2)
    write_tasks([task], tmp_path / "t.parquet")
    assert read_tasks(tmp_path / "t.parquet") == [task]
