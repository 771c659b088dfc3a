"""A verdict that never comes: it is told from one that may still come, and holds nothing up; it is no score either."""

import json

import pytest
import typer
from doubles_judge import (
    CUT,
    NO_CHOICE,
    SILENT,
    TOO_LONG,
    by_replies,
    chat_server,
    records_shown,
    trajectory_of,
    verdict,
)
from typer.testing import CliRunner

from agentgym_rl.commands import judge as command
from agentgym_rl.data.record import Provenance, Record
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.errors import JudgeFailed, NoVerdict
from agentgym_rl.judge.judge import opened
from agentgym_rl.judge.judgements import Judgement
from agentgym_rl.trajectory import Failure, StopReason, Trajectory

PROSE = "I'd say 7."
GIVEN = [
    trajectory_of("top", task="a", success=True),
    trajectory_of("long", task="b", success=False),
    trajectory_of("odd", task="c", success=False),
    trajectory_of("sat", task="a", success=False),
]
SCORES = dict.fromkeys(["top", "long", "odd", "sat"], 6)


@pytest.fixture(scope="module")
def chat():
    with chat_server() as chat:
        yield chat


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize(
    ("faults", "no_verdict"),
    [
        ([400], NoVerdict.REFUSED),
        ([413], NoVerdict.REFUSED),
        ([422], NoVerdict.REFUSED),
        ([429, 400], NoVerdict.REFUSED),
        ([PROSE, PROSE], NoVerdict.UNREADABLE),
        ([TOO_LONG, verdict(70)], NoVerdict.UNREADABLE),
        ([429, PROSE], None),
        ([PROSE, 500], None),
        ([429, 429], None),
        ([500, 503], None),
        ([CUT, CUT], None),
        ([SILENT, SILENT], None),
        ([NO_CHOICE, NO_CHOICE], None),  # that was not the model's answer
        ([402], None),  # who has no money left may have some later
    ],
)
async def test_a_failure_says_whether_another_time_may_bring_a_verdict(chat, faults, no_verdict):
    with chat(*faults, tries=2, request_seconds=0.2) as (server, settings):
        async with opened(settings) as judge:
            with pytest.raises(JudgeFailed) as caught:
                await judge.absolute(GIVEN[0])
    assert caught.value.no_verdict is no_verdict
    assert len(server.requests) == len(faults)


async def test_answers_that_could_not_be_read_before_the_time_was_up_say_nothing_about_the_next(chat):
    with chat(PROSE, backoff_seconds=60.0, deadline_seconds=5.0) as (_, settings):
        async with opened(settings) as judge:
            with pytest.raises(JudgeFailed, match="no time for another") as caught:
                await judge.absolute(GIVEN[0])
    assert caught.value.no_verdict is None


def judge_with(**faults):
    """Answers each record that ends with one of these replies with its fault, and gives the others 6."""
    judge = by_replies(SCORES)

    def answer(request):
        said = {line["content"] for record in records_shown(request) for line in record}
        return next((fault for reply, fault in faults.items() if reply in said), None) or judge(request)

    return answer


def run(tmp_path, settings, *options, given=GIVEN):
    store = TrajectoryStore(tmp_path / "store")
    if not store.parts():
        store.append([Record(f"r{number}", one, Provenance("collect")) for number, one in enumerate(given)])
    app = typer.Typer()
    command.add_to(app)
    places = ["--trajectories", store.folder, "--out", tmp_path / "judged.jsonl", "--annotated", tmp_path / "judged"]
    options = [*places, "--server", settings.url, "--model", "m", "--tries", 1, *options]
    return CliRunner().invoke(app, [str(option) for option in options])


def rows(tmp_path):
    with open(tmp_path / "judged.jsonl", encoding="utf-8") as file:
        return [Judgement(**json.loads(line)) for line in file]


def annotations(tmp_path, name):
    return [record.annotations[name] for record in TrajectoryStore(tmp_path / "judged").records()]


@pytest.mark.parametrize("options", [[], ["--relative"]])
def test_what_will_never_be_judged_holds_up_neither_the_annotations_nor_the_exit_code(tmp_path, chat, options):
    with chat(otherwise=judge_with(long=400, odd=PROSE)) as (_, settings):
        result = run(tmp_path, settings, *options)
    assert result.exit_code == 0, result.output
    assert [row.score for row in rows(tmp_path)] == [0.6, None, None, 0.6]
    assert annotations(tmp_path, "judge") == [0.6, None, None, 0.6]
    assert annotations(tmp_path, "judge_failure") == [None, "judge_refused", "judge_unreadable", None]
    assert "not judged: 1 of 4 (judge_refused), and not asked again" in result.stdout
    assert "not judged: 1 of 4 (judge_unreadable), and not asked again" in result.stdout


@pytest.mark.parametrize("options", [[], ["--relative"]])
def test_the_same_command_does_not_ask_again(tmp_path, chat, options):
    with chat(otherwise=judge_with(sat=413)) as (_, settings):
        run(tmp_path, settings, *options)
    before = (tmp_path / "judged.jsonl").read_bytes()
    with chat() as (server, settings):
        result = run(tmp_path, settings, *options)
    assert (result.exit_code, server.requests) == (0, [])
    assert (tmp_path / "judged.jsonl").read_bytes() == before


def test_a_verdict_that_may_still_come_is_asked_for_again_and_the_others_are_not(tmp_path, chat):
    with chat(otherwise=judge_with(long=400, odd=503)) as (_, settings):
        result = run(tmp_path, settings)
    assert result.exit_code == 1
    assert "judged is not written: a verdict is missing; the same command asks again" in result.stdout
    assert "not judged: 1 of 4 (judge_raised)\n" in result.stdout
    with chat(verdict(2)) as (server, settings):
        result = run(tmp_path, settings)
    assert result.exit_code == 0, result.output
    assert [record[-2]["content"] for [record] in map(records_shown, server.requests)] == ["odd"]
    assert annotations(tmp_path, "judge") == [0.6, None, 0.2, 0.6]


@pytest.mark.parametrize(("fault", "asked"), [(PROSE, ["odd", "odd"]), (422, [])])
def test_more_tries_are_given_to_what_could_not_be_read(tmp_path, chat, fault, asked):
    with chat(otherwise=judge_with(odd=fault)) as (_, settings):
        run(tmp_path, settings)
    with chat(PROSE, verdict(9)) as (server, settings):
        run(tmp_path, settings, "--tries", 3, "--annotated", tmp_path / "again")
    assert [record[-2]["content"] for [record] in map(records_shown, server.requests)] == asked


@pytest.mark.parametrize("fault", [400, PROSE])
def test_a_judge_that_gives_no_verdict_at_all_is_asked_again_once_it_is_set_up(tmp_path, chat, fault):
    with chat(otherwise=lambda _: fault) as (_, settings):
        result = run(tmp_path, settings)
    assert result.exit_code == 1
    assert "not asked again" not in result.stdout
    assert not (tmp_path / "judged").exists()
    with chat(otherwise=judge_with()) as (server, settings):
        assert run(tmp_path, settings).exit_code == 0
    assert len(server.requests) == len(GIVEN)
    assert annotations(tmp_path, "judge") == [0.6] * len(GIVEN)


def test_an_episode_that_its_own_judge_failed_is_no_missing_verdict(tmp_path, chat):
    failure = Failure("judge_raised", "the environment's judge fell over")
    given = [GIVEN[0], Trajectory(GIVEN[0].task, (), (), StopReason.FAILED, failure=failure)]
    with chat(otherwise=judge_with()) as (_, settings):
        result = run(tmp_path, settings, given=given)
    assert result.exit_code == 0, result.output
    assert annotations(tmp_path, "judge_failure") == [None, "judge_raised"]
