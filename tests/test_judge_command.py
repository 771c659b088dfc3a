"""`openmanus-rl judge`: every trajectory gets a row, a stopped run goes on, and a failure is never a score."""

import json
from dataclasses import replace

import pytest
import typer
from doubles_judge import (
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    by_replies,
    chat_server,
    failed_trajectory,
    records_shown,
    trajectory_of,
    verdict,
)
from typer.testing import CliRunner

from agentgym_rl.commands import judge as command
from agentgym_rl.data.filter_checks import annotation
from agentgym_rl.data.record import Provenance, Record
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.trajectory_json import to_line
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.judge.annotate import annotate_judged
from agentgym_rl.judge.given import FileGiven, StoreGiven
from agentgym_rl.judge.judgements import Judgement
from agentgym_rl.judge.run import judge_all
from agentgym_rl.task import Task

SCORES = {"top": 10, "half": 6, "fell": 3, "sat": 0}
GIVEN = [
    trajectory_of("up", "top", task="a", success=True),
    trajectory_of("sat", task="b", success=False),
    trajectory_of("half", task="a", success=False),
    trajectory_of("fell", task="b", success=None),
]


@pytest.fixture(scope="module")
def chat():
    with chat_server() as chat:
        yield chat


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def broken_about(*replies, fault="no comment"):
    """A judge that gives no verdict on records with one of these replies."""
    judge = by_replies(SCORES)

    def answer(request):
        said = {line["content"] for record in records_shown(request) for line in record}
        return fault if said & set(replies) else judge(request)

    return answer


def run(tmp_path, settings, *options, trajectories=GIVEN):
    file = tmp_path / "trajectories.jsonl"
    file.write_text("".join(map(to_line, trajectories)))
    app = typer.Typer()
    command.add_to(app)
    given = ["--trajectories", file, "--server", settings.url, "--model", "m", "--out", tmp_path / "judged.jsonl"]
    return CliRunner().invoke(app, [str(option) for option in [*given, *options]])


def judgements(tmp_path):
    with open(tmp_path / "judged.jsonl", encoding="utf-8") as file:
        return [Judgement(**json.loads(line)) for line in file]


def scores(tmp_path):
    return [row.score for row in judgements(tmp_path)]


def test_each_trajectory_gets_a_row_in_its_order_and_the_table_says_how_far_the_judge_agrees(tmp_path, chat):
    with chat(otherwise=by_replies(SCORES)) as (_, settings):
        result = run(tmp_path, settings)
    assert result.exit_code == 0, result.output
    assert scores(tmp_path) == [1.0, 0.0, 0.6, 0.3]
    first = judgements(tmp_path)[0]
    assert (first.number, first.task, first.environment, first.model, first.success) == (0, "a", "maze", "m", True)
    assert (first.requests, first.prompt_tokens, first.completion_tokens) == (1, PROMPT_TOKENS, COMPLETION_TOKENS)
    # With an outcome: 1.0 solved, 0.0 not, 0.6 not. Says yes, no, yes: 2 of 3; p_e = 2/3 * 1/3 + 1/3 * 2/3 = 4/9,
    # kappa (6/9 - 4/9) / (5/9) = 0.4; the solved one is above both others, and above the one of its task.
    [row] = [line for line in result.stdout.splitlines() if line.startswith("maze")]
    assert row.split() == ["maze", "4", "of", "4", "0.475", "3", "0.333", "0.667", "0.400", "1.000", "1.000"]
    assert f"this run: 4 requests, 0 verdicts from the cache, {4 * PROMPT_TOKENS} prompt" in result.stdout


def test_relative_judging_asks_once_a_task_with_all_its_trajectories(tmp_path, chat):
    with chat(otherwise=by_replies(SCORES)) as (server, settings):
        result = run(tmp_path, settings, "--relative")
    assert result.exit_code == 0, result.output
    assert scores(tmp_path) == [1.0, 0.0, 0.6, 0.3]
    assert sorted(len(records_shown(request)) for request in server.requests) == [2, 2]
    assert [row.requests for row in judgements(tmp_path)] == [1, 1, 0, 0]


def test_relative_judging_keeps_tasks_of_one_id_in_two_environments_apart(tmp_path, chat):
    here = [trajectory_of("top", task="a"), trajectory_of("sat", task="a")]
    there = [replace(one, task=Task("a", "stairs")) for one in (trajectory_of("half"), trajectory_of("fell"))]
    with chat(otherwise=by_replies(SCORES)) as (server, settings):
        result = run(tmp_path, settings, "--relative", trajectories=[here[0], there[0], here[1], there[1]])
    assert result.exit_code == 0, result.output
    replies = [{record[-2]["content"] for record in records_shown(request)} for request in server.requests]
    assert sorted(map(sorted, replies)) == [["fell", "half"], ["sat", "top"]]
    assert scores(tmp_path) == [1.0, 0.6, 0.0, 0.3]


@pytest.mark.parametrize(
    ("options", "expected"), [([], [1.0, None, 0.6, 0.3]), (["--relative"], [1.0, None, 0.6, None])]
)
def test_a_verdict_that_cannot_be_read_is_a_failure_with_its_cause_and_no_score(tmp_path, chat, options, expected):
    with chat(otherwise=broken_about("sat")) as (_, settings):
        result = run(tmp_path, settings, "--tries", 2, *options)
    assert scores(tmp_path) == expected
    failed = [row for row in judgements(tmp_path) if row.score is None]
    assert {row.failure for row in failed} == {"judge_unreadable"}
    assert all("no comment" in row.failure_message for row in failed)
    assert f"not judged: {len(failed)} of 4 (judge_unreadable)" in result.stdout


def test_run_again_only_failures_are_judged_again(tmp_path, chat):
    with chat(otherwise=broken_about("sat", fault=503)) as (_, settings):
        assert run(tmp_path, settings, "--tries", 1).exit_code == 1
    with chat(verdict(2)) as (server, settings):
        result = run(tmp_path, settings, "--tries", 1)
    assert result.exit_code == 0, result.output
    assert len(server.requests) == 1
    assert scores(tmp_path) == [1.0, 0.2, 0.6, 0.3]


@pytest.mark.parametrize("options", [[], ["--relative"]])
def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path, chat, options):
    out = tmp_path / "judged.jsonl"
    with chat(otherwise=by_replies(SCORES)) as (_, settings):
        run(tmp_path, settings, *options)
    whole = out.read_bytes()
    lines = whole.splitlines(keepends=True)
    out.write_bytes(lines[0] + lines[2] + lines[3][:40])
    with chat(otherwise=by_replies(SCORES)) as (server, settings):
        assert run(tmp_path, settings, *options).exit_code == 0
    assert len(server.requests) == (1 if options else 2)
    assert out.read_bytes() == whole


def test_a_finished_run_is_not_paid_for_again(tmp_path, chat):
    with chat(otherwise=by_replies(SCORES)) as (_, settings):
        run(tmp_path, settings)
    before = (tmp_path / "judged.jsonl").read_bytes()
    with chat() as (server, settings):
        result = run(tmp_path, settings)
    assert (result.exit_code, server.requests) == (0, [])
    assert (tmp_path / "judged.jsonl").read_bytes() == before


def test_what_the_cache_knows_needs_no_request(tmp_path, chat):
    with chat(otherwise=by_replies(SCORES)) as (server, settings):
        run(tmp_path, settings, "--cache", tmp_path / "answers")
        (tmp_path / "judged.jsonl").unlink()
        result = run(tmp_path, settings, "--cache", tmp_path / "answers")
    assert len(server.requests) == 4
    assert "this run: 0 requests, 4 verdicts from the cache, 0 prompt and 0 completion tokens" in result.stdout


def test_an_episode_that_failed_or_has_no_turn_is_not_judged(tmp_path, chat):
    given = [failed_trajectory("a"), trajectory_of("top", task="a"), trajectory_of(task="a")]
    for options in ([], ["--relative"]):
        with chat(otherwise=by_replies(SCORES)) as (server, settings):
            result = run(tmp_path, settings, *options, trajectories=given)
        assert result.exit_code == 0, result.output
        assert [len(records_shown(request)) for request in server.requests] == [1]
        rows = judgements(tmp_path)
        assert [row.failure for row in rows] == ["environment_crashed", None, "nothing_sampled"]
        assert [row.score for row in rows] == [None, 1.0, None]
        (tmp_path / "judged.jsonl").unlink()


@pytest.mark.parametrize(
    "options", [["--relative"], ["--temperature", "0.5"], ["--rubric", "rubric.txt"], ["--seed", "3"]]
)
def test_rows_of_another_judge_are_never_mixed_in(tmp_path, chat, options):
    (tmp_path / "rubric.txt").write_text("Only the last turn counts.")
    options = [str(tmp_path / option) if option == "rubric.txt" else option for option in options]
    with chat(otherwise=by_replies(SCORES)) as (_, settings):
        run(tmp_path, settings)
        result = run(tmp_path, settings, *options)
    assert isinstance(result.exception, ConfigurationError)
    assert "has judgements by another model, prompt or parameters (model 'm')" in str(result.exception)


def test_rows_of_other_trajectories_are_never_mixed_in(tmp_path, chat):
    with chat(otherwise=by_replies(SCORES)) as (_, settings):
        run(tmp_path, settings)
        result = run(tmp_path, settings, trajectories=GIVEN[1:])
    assert isinstance(result.exception, ConfigurationError)
    assert "line 1 is about trajectory 0, of task 'a', which is not the same here" in str(result.exception)


def test_a_server_that_refuses_the_model_stops_the_run(tmp_path, chat):
    with chat(404, 404, 404, 404) as (_, settings):
        result = run(tmp_path, settings)
    assert isinstance(result.exception, ConfigurationError)
    assert "answered 404: check the url or the model's name" in str(result.exception)


def test_the_table_has_a_line_for_each_environment_and_one_over_all(tmp_path, chat):
    other = trajectory_of("top", task="c", success=True)
    given = [*GIVEN, type(other)(**{**vars(other), "task": type(other.task)("c", "stairs")})]
    with chat(otherwise=by_replies(SCORES)) as (_, settings):
        result = run(tmp_path, settings, trajectories=given)
    lines = [line.split() for line in result.stdout.splitlines() if line.startswith(("maze", "stairs", "all"))]
    assert [line[0] for line in lines] == ["maze", "stairs", "all"]
    assert lines[1] == ["stairs", "1", "of", "1", "1.000", "1", "1.000", "1.000", "-", "-", "-"]
    assert lines[2][1:4] == ["5", "of", "5"]


async def test_no_trajectories_give_an_empty_file(tmp_path, chat):
    with chat() as (_, settings):
        (tmp_path / "none.jsonl").touch()
        judged = await judge_all(settings, FileGiven(tmp_path / "none.jsonl"), tmp_path / "judged.jsonl")
    assert judged.judgements == ()
    assert judgements(tmp_path) == []


# Judging what is in a store


def stored(tmp_path, trajectories=GIVEN):
    store = TrajectoryStore(tmp_path / "store")
    store.append([Record(f"r{n}", one, Provenance("collect"), {"turns": 9}) for n, one in enumerate(trajectories)])
    return store.folder


def test_a_store_gets_its_scores_as_annotations_that_a_filter_can_ask_for(tmp_path, chat):
    folder = stored(tmp_path, [failed_trajectory(), *GIVEN])
    with chat(otherwise=by_replies(SCORES)) as (_, settings):
        assert run(tmp_path, settings, "--trajectories", folder, "--annotated", tmp_path / "judged").exit_code == 0
    records = list(TrajectoryStore(tmp_path / "judged").records())
    assert [record.id for record in records] == ["r0", "r1", "r2", "r3", "r4"]
    assert [record.annotations["judge"] for record in records] == [None, 1.0, 0.0, 0.6, 0.3]
    assert [record.annotations["judge_failure"] for record in records] == ["environment_crashed", *[None] * 4]
    assert {(record.annotations["judge_model"], record.annotations["turns"]) for record in records} == {("m", 9)}
    passes = annotation("judge>=0.3", TrajectoryStore(tmp_path / "judged"))
    assert [record.id for record in records if not passes(record)] == ["r1", "r3", "r4"]


def test_a_store_is_annotated_once_no_verdict_is_missing(tmp_path, chat):
    options = ["--trajectories", stored(tmp_path), "--annotated", tmp_path / "judged", "--tries", 1]
    with chat(otherwise=broken_about("half", fault=503)) as (_, settings):
        result = run(tmp_path, settings, *options)
    assert result.exit_code == 1
    assert f"{tmp_path / 'judged'} is not written: a verdict is missing; the same command asks again" in result.stdout
    assert not (tmp_path / "judged").exists()
    with chat(otherwise=by_replies(SCORES)) as (server, settings):
        assert run(tmp_path, settings, *options).exit_code == 0
    assert len(server.requests) == 1
    assert [one.annotations["judge"] for one in TrajectoryStore(tmp_path / "judged").records()] == [1.0, 0.0, 0.6, 0.3]


def test_the_same_verdicts_at_another_cost_are_the_same_annotations(tmp_path, chat):
    options = ["--trajectories", stored(tmp_path), "--annotated", tmp_path / "judged", "--cache", tmp_path / "answers"]
    with chat(otherwise=by_replies(SCORES)) as (server, settings):
        assert run(tmp_path, settings, *options).exit_code == 0
        (tmp_path / "judged.jsonl").unlink()
        result = run(tmp_path, settings, *options)
    assert result.exception is None
    assert len(server.requests) == 4


def test_only_a_store_can_be_annotated(tmp_path, chat):
    with chat() as (_, settings):
        result = run(tmp_path, settings, "--annotated", tmp_path / "judged")
    assert isinstance(result.exception, ConfigurationError)
    assert "--annotated is for a store's trajectories" in str(result.exception)


async def test_judgements_about_other_records_are_refused(tmp_path, chat):
    with chat(otherwise=by_replies(SCORES)) as (_, settings):
        store = TrajectoryStore(stored(tmp_path))
        given = (await judge_all(settings, StoreGiven(store), tmp_path / "judged.jsonl")).judgements
    with pytest.raises(DataError, match="there is no judgement about record 1 of the store, 'r0', in its place"):
        annotate_judged(store, tmp_path / "out", given[::-1])
    with pytest.raises(DataError, match="there is no judgement about record 4 of the store, 'r3', in its place"):
        annotate_judged(store, tmp_path / "out", given[:3])
    with pytest.raises(DataError, match="there are 5 judgements about 4 records"):
        annotate_judged(store, tmp_path / "out", [*given, given[0]])
    assert not (tmp_path / "out").exists()
