"""What is wrong with files of tasks is found before a training: bad lines, repeated tasks, leaks, unsolved tasks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime

import pyarrow
import pyarrow.parquet
import pytest
import typer
from doubles import NanReward, tasks_for
from doubles_cli import STAIRS
from doubles_toolbox import Numbers, Submits, name_of, question
from typer.testing import CliRunner

from agentgym_rl.commands.tasks import add_to
from agentgym_rl.data.parquet import write_tasks
from agentgym_rl.data.task_check import Finding, read_files, repeated, unsolved
from agentgym_rl.data.task_mapping import TaskMapping
from agentgym_rl.data.task_overlap import Listed, overlaps
from agentgym_rl.data.user_tasks import load_tasks, write_jsonl
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.evaluation.reference import Way, try_tasks
from agentgym_rl.task import Task

LONG = "What do three red apples and two green pears cost in the small shop at the corner of the street?"
LONGER = LONG + " Answer now."
"""17 of its 19 word triples are those of `LONG`."""

app = typer.Typer()
add_to(app)


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def run(*arguments: object):
    result = CliRunner().invoke(app, ["tasks", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def listed(*tasks: Task, file: str = "train") -> list[Listed]:
    return [Listed(file, f"line {number}", task) for number, task in enumerate(tasks, start=1)]


def asked(id: str, text: str, **fields: object) -> Task:
    return Task(id, STAIRS, {"note": text}, **fields)


def said(tasks: list[Listed], near: float = 0.7) -> list[tuple[str, str, float | None]]:
    """(later id, earlier id, rounded similarity; None: the same task)."""
    found = overlaps(tasks, near)
    return [(one.later.task.id, one.earlier.task.id, one.similarity and round(one.similarity, 1)) for one in found]


# Overlap


def test_the_same_task_has_the_same_environment_arguments_and_seed_whatever_its_id():
    tasks = listed(Task("a", STAIRS, {"height": 2}), Task("b", STAIRS, {"height": 2}), Task("c", STAIRS, {"height": 3}))
    assert said([*tasks, *listed(Task("d", STAIRS, {"height": 3}, seed=1), file="test")]) == [("b", "a", None)]


def test_tasks_that_ask_or_expect_something_else_are_not_the_same():
    asks = listed(Task("a", STAIRS, prompt="Go up."), Task("b", STAIRS, prompt="Go down."))
    expects = listed(Task("c", STAIRS, reference_answer=3), Task("d", STAIRS, reference_answer=4))
    assert said([*asks, *expects]) == []
    again = listed(Task("e", STAIRS, prompt="Go up.", split="test", reply_form="tags"), file="test")
    assert said([*asks, *expects, *again]) == [("e", "a", None)]


def test_near_texts_are_found_within_and_between_files_and_short_ones_are_not_compared():
    train = listed(asked("a", LONG), asked("b", LONGER), asked("c", "Go up."))
    test = listed(asked("d", LONG, seed=1), asked("e", "Go up.", seed=1), file="test")
    assert said([*train, *test]) == [("b", "a", 0.9), ("d", "a", 1.0)]
    assert said([*train, *test], near=1.0) == [("d", "a", 1.0)]


def test_a_leak_is_found_though_a_nearer_task_stands_in_the_same_file():
    test = listed(asked("b", LONGER, seed=1), asked("c", LONGER, seed=2), file="test")
    assert said([*listed(asked("a", LONG)), *test]) == [("b", "a", 0.9), ("c", "a", 0.9), ("c", "b", 1.0)]


def test_what_all_of_many_tasks_say_does_not_make_them_alike():
    rules = "You stand at the foot of a staircase and answer with up or down, nothing else."
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    tasks = [
        Task(word, STAIRS, {"rules": rules, "note": f"{word} {word} is what {word} {word} says"}) for word in words
    ]
    assert said(listed(*tasks)) == []
    assert len(said(listed(*tasks[:9]), near=0.5)) > 0  # of nine tasks nobody knows yet what they share


def test_texts_inside_lists_and_objects_count():
    nested = [Task(id, STAIRS, {"all": [{"note": LONG}, 3, None]}, seed=seed) for seed, id in enumerate("ab")]
    assert said(listed(*nested)) == [("b", "a", 1.0)]


# Dry run


def tried(*tasks: Task):
    return asyncio.run(try_tasks(tasks))


def test_the_expert_or_the_reference_answer_must_solve_a_task():
    answered, called = question(Numbers), question(Submits)
    wrong = Task("w", name_of(Numbers), {"question": "?"}, reference_answer="nearly")
    several = Task("s", name_of(Numbers), {"question": "?"}, reference_answer=[3, 4])
    found = tried(Task("e", STAIRS), answered, called, wrong, several)
    assert [(trial.task.id, trial.way) for trial in found] == [
        ("e", Way.EXPERT), ("t", Way.ANSWER), ("t", Way.ANSWER), ("w", Way.ANSWER), ("s", Way.ANSWER),
    ]  # fmt: skip
    assert [trial.trouble for trial in found[:3]] == ["", "", ""]
    assert found[3].trouble == "was not solved by its reference answer (return 0.5, turns 1)"
    assert found[4].trouble.startswith("was not solved by its reference answer (return 0")  # "3" is not [3, 4]


@pytest.mark.parametrize("form", ["think", "tags", "think-tags"])
@pytest.mark.parametrize("box", [Numbers, Submits])
def test_a_reference_answer_is_given_in_the_form_of_the_tasks_replies(box, form):
    (trial,) = tried(replace(question(box), reply_form=form))
    assert (trial.way, trial.trouble) == (Way.ANSWER, "")


def test_an_instance_that_broke_a_task_does_not_get_the_next(monkeypatch):
    made = []
    monkeypatch.setattr(NanReward, "__init__", lambda self: made.append(self))
    trials = asyncio.run(try_tasks(tasks_for(NanReward, 2), concurrency=1))
    assert ["a reward is a finite number" in trial.trouble for trial in trials] == [True, True]
    assert len(made) == 2


def test_a_task_that_nobody_can_play_is_set_up_all_the_same():
    mute, broken = Task("m", name_of(Numbers), {"question": "?"}), Task("b", name_of(Numbers))
    set_up, refused = tried(mute, broken)
    assert (set_up.way, set_up.trouble) == (Way.NONE, "")
    assert refused.trouble.startswith("can't be set up: task 'b' needs the argument 'question', a text")


def test_a_failure_a_missing_verdict_and_an_unsolved_task_are_trouble_of_the_task():
    breaks, silent = Task("1", STAIRS, {"breaks": True}), Task("2", STAIRS, {"silent": True})
    failed, unsaid = tried(breaks, silent)
    assert failed.trouble.startswith("environment_raised: ")
    assert unsaid.trouble == "got no verdict by the expert (return 1, turns 2)"


def test_an_environment_that_is_not_installed_is_one_finding_of_all_its_tasks():
    tasks = listed(*(Task(str(number), "no_such_module:Thing") for number in range(3)))
    found = unsolved(tasks, tried(*(one.task for one in tasks)))
    needs = "environment 'no_such_module:Thing' needs 'no_such_module': install 'no_such_module'"
    assert found == [Finding("train", "line 1", "dry run", f"0 (and 2 more tasks): {needs}")]


# Commands


def files(tmp_path):
    head = "nr,text,answer\n"
    question = "How much is one plus two if one adds them up as in school?"
    (tmp_path / "train.csv").write_text(head + f"1,{question},3\n,nothing,0\n2,{LONG},\n")
    (tmp_path / "test.csv").write_text(head + f'7,{question},3\n8,"{LONG} Quickly!",nearly\n')
    options = ["--map", "id=nr", "--map", "arguments.question=text", "--map", "reference_answer=answer"]
    return [tmp_path / "train.csv", tmp_path / "test.csv"], [*options, "--set", f"environment={name_of(Numbers)}"]


def test_check_says_everything_at_once_and_ends_with_1(tmp_path):
    paths, options = files(tmp_path)
    result = run("check", *paths, *options)
    assert result.exit_code == 1
    table = " ".join(result.output.split())
    for part in [
        "line 3 bad line id is empty (column 'nr')",
        "line 2 leak 7: the same task as 1 (line 2 of",
        "line 3 near leak 8: 0.9",
        "dry run 8: was not solved by its reference answer (return 0.5, turns 1)",
        "checked: tasks 4, files 2, findings 4",
        "dry run: tasks 4, solved by their expert 0, by their reference answer 2",
        "without expert or usable reference answer, so only set up: 1 (2)",
    ]:
        assert part in table


def test_check_of_good_files_ends_with_0(tmp_path):
    write_jsonl([Task("1", STAIRS), Task("2", STAIRS, {"height": 3})], tmp_path / "tasks.jsonl")
    result = run("check", tmp_path / "tasks.jsonl")
    assert result.exit_code == 0
    assert "findings 0" in result.output


def test_a_dry_run_can_be_short_or_left_out(tmp_path):
    write_jsonl([Task("1", STAIRS), Task("2", STAIRS, {"breaks": True})], tmp_path / "tasks.jsonl")
    assert run("check", tmp_path / "tasks.jsonl").exit_code == 1
    assert "dry run: tasks 1" in run("check", tmp_path / "tasks.jsonl", "--limit", 1).output
    assert run("check", tmp_path / "tasks.jsonl", "--no-dry-run").exit_code == 0


def test_a_file_that_can_not_be_read_is_a_finding_and_the_others_are_checked(tmp_path):
    write_jsonl([Task("1", STAIRS)], tmp_path / "good.jsonl")
    read = read_files([tmp_path / "none.jsonl", tmp_path / "good.jsonl"])
    assert [(one.kind, one.place) for one in read.findings] == [("bad file", "")]
    assert [one.task.id for one in read.tasks] == ["1"]
    assert repeated(read.tasks, 0.9) == []


def test_a_time_in_a_parquet_file_is_a_bad_line(tmp_path):
    rows = [{"nr": "1", "when": datetime(2026, 1, 2)}, {"nr": "2", "when": None}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    mapping = TaskMapping({"id": "nr", "arguments.when": "when"}, {"environment": STAIRS})
    read = read_files([tmp_path / "t.parquet"], mapping)
    ((_, place, kind, message),) = read.findings
    assert (place, kind) == ("row 1", "bad line")
    assert message.startswith("arguments.when must be a JSON value (Object of type datetime is not JSON serializable)")
    assert repeated(read.tasks, 0.9) == []


def test_an_unknown_environment_is_a_bad_line_of_a_parquet_file_too(tmp_path):
    write_tasks([Task("1", STAIRS), Task("2", "stiars")], tmp_path / "tasks.parquet")
    read = read_files([tmp_path / "tasks.parquet"])
    path, message = str(tmp_path / "tasks.parquet"), "2: no environment 'stiars'; did you mean 'stairs'?"
    assert read.findings == [Finding(path, "row 2", "bad line", message)]
    assert [one.task.id for one in read.tasks] == ["1"]


@pytest.mark.parametrize("name", ["out.parquet", "out.jsonl"])
def test_convert_writes_what_every_other_command_reads(tmp_path, name):
    paths, options = files(tmp_path)
    constants = ["--set", "arguments.max_turns=4", "--set", "split=test"]
    result = run("convert", paths[1], *options, *constants, "--out", tmp_path / name)
    assert result.output.strip().endswith("2 tasks")
    first, _ = load_tasks(tmp_path / name)
    assert (first.id, first.environment, first.reference_answer, first.split) == ("7", name_of(Numbers), "3", "test")
    assert first.arguments["max_turns"] == 4


def test_a_mapping_file_says_the_same_as_the_options(tmp_path):
    paths, options = files(tmp_path)
    columns = "columns: {id: nr, arguments.question: text, reference_answer: answer}\n"
    (tmp_path / "map.yaml").write_text(columns + f"constants: {{environment: '{name_of(Numbers)}'}}\n")
    run("convert", paths[1], *options, "--out", tmp_path / "1.jsonl")
    run("convert", paths[1], "--mapping", tmp_path / "map.yaml", "--out", tmp_path / "2.jsonl")
    assert load_tasks(tmp_path / "1.jsonl") == load_tasks(tmp_path / "2.jsonl")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--map", "id"], "--map is written FIELD=...; given: 'id'"),
        (["--map", "id=a", "--map", "id=b"], "--map gives 'id' twice"),
        (["--map", "id=a", "--mapping", "m.yaml"], "give a mapping by --mapping, or by --map and --set"),
        (["--map", "id=a"], "a mapping must say where a task's 'environment' comes from; it maps id"),
        ([], "tasks go to a file that ends in .parquet or .jsonl; given: out.txt"),
    ],
)
def test_a_command_that_can_not_work_says_why(tmp_path, options, message):
    paths, _ = files(tmp_path)
    out = tmp_path / "out.jsonl" if options else "out.txt"
    with pytest.raises(ConfigurationError) as caught:
        run("convert", paths[0], *options, "--out", out)
    assert message in str(caught.value)
