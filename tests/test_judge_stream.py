"""However many trajectories are judged, few are held: those that are asked about, and those that were read ahead."""

import asyncio
import json
import subprocess
import sys
import time
import weakref
from dataclasses import fields, replace

import pytest
from doubles_judge import SILENT, by_replies, chat_server, failed_trajectory, records_shown, trajectory_of, verdict
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from agentgym_rl.cli import app
from agentgym_rl.data.record import Provenance, Record
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.data.trajectory_json import to_line
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.judge import run
from agentgym_rl.judge.given import About, FileGiven, StoreGiven
from agentgym_rl.judge.run import judge_all
from agentgym_rl.trajectory import Trajectory

READ, AT_ONCE, EPISODES = 4, 3, 5


@pytest.fixture(scope="module")
def chat():
    with chat_server() as chat:
        yield chat


class Living(Trajectory):
    """One that can be referred to weakly."""


class Counted:
    """`size` trajectories, the episodes of a task far apart, made when they are asked for; counts those that live."""

    def __init__(self, size, tasks=1, broken=None):
        self._size, self._tasks, self._broken = size, tasks, broken
        self._living = self.most = 0
        self.reads = []
        self.on_read = lambda: None

    def __len__(self):
        return self._size

    def at(self, numbers):
        self.on_read()
        self.reads.append(list(numbers))
        if self._broken in numbers:
            raise DataError(f"trajectory {self._broken} can't be read")
        return [self._made(number) for number in numbers]

    def about(self):
        return (About("maze", f"t{number % self._tasks}", True) for number in range(self._size))

    def _made(self, number):
        made = trajectory_of(f"{number}", task=f"t{number % self._tasks}")
        made = Living(*(getattr(made, field.name) for field in fields(made)))
        weakref.finalize(made, self._gone)
        self._living += 1
        self.most = max(self.most, self._living)
        return made

    def _gone(self):
        self._living -= 1


@pytest.fixture(autouse=True)
def _reads_few_at_once(monkeypatch):
    monkeypatch.setattr(run, "READ_AT_ONCE", READ)


def all_fives(request):
    replies = [record[1]["content"] for record in records_shown(request)]
    return by_replies(dict.fromkeys(replies, 5))(request)


@pytest.mark.parametrize(
    ("relative", "bound"), [(False, AT_ONCE + READ), (True, AT_ONCE * EPISODES + READ - 1 + EPISODES)]
)
async def test_no_more_are_held_than_are_asked_about_and_were_read_ahead(tmp_path, chat, relative, bound):
    for tasks in (8, 40):
        counted = Counted(tasks * EPISODES, tasks)
        with chat(otherwise=all_fives, concurrency=AT_ONCE) as (server, settings):
            server.gate = AT_ONCE
            judged = await judge_all(settings, counted, tmp_path / f"{tasks}.jsonl", relative)
        assert [row.score for row in judged.judgements] == [0.5] * len(counted)
        assert len(server.requests) == (tasks if relative else len(counted))
        assert AT_ONCE < counted.most <= bound


async def test_a_verdict_is_a_task_of_the_event_loop_only_while_it_is_asked_for(tmp_path, chat):
    counted, most = Counted(60), []
    counted.on_read = lambda: most.append(len(asyncio.all_tasks()))
    with chat(otherwise=all_fives, concurrency=AT_ONCE) as (_, settings):
        await judge_all(settings, counted, tmp_path / "judged.jsonl")
    assert len(most) == 60 / READ
    assert max(most) <= 2 * AT_ONCE + 5  # a question runs in a task of its own; the test and the server have some


async def test_a_run_that_goes_on_reads_what_has_a_row_once_and_asks_about_the_rest(tmp_path, chat):
    out = tmp_path / "judged.jsonl"
    with chat(otherwise=all_fives) as (_, settings):
        await judge_all(settings, Counted(10), out)
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join(lines[:3] + lines[4:9]))
    counted = Counted(10)
    with chat(otherwise=all_fives) as (server, settings):
        judged = await judge_all(settings, counted, out)
    assert sorted(record[1]["content"] for [record] in map(records_shown, server.requests)) == ["3", "9"]
    assert counted.reads == [[0, 1, 2, 4], [5, 6, 7, 8], [3, 9]]
    assert [row.number for row in judged.judgements] == list(range(10))
    assert len(out.read_text().splitlines()) == 10


async def test_nothing_is_paid_for_before_all_rows_are_held_to_their_trajectories(tmp_path, chat):
    out = tmp_path / "judged.jsonl"
    with chat(otherwise=all_fives) as (_, settings):
        await judge_all(settings, Counted(10), out)
    *_, last = out.read_text().splitlines(keepends=True)
    other = json.dumps({**json.loads(last), "trajectory": "another"}) + "\n"
    for line in (other, last.replace('"number": 9', '"number": 10'), last.replace('"number": 9', '"number": -1')):
        out.write_text(line)
        with chat() as (server, settings):
            with pytest.raises(ConfigurationError, match="line 1 is about trajectory .*, which is not the same here"):
                await judge_all(settings, Counted(10), out)
        assert server.requests == []
        assert out.read_text() == line


async def test_verdicts_before_a_trajectory_that_cannot_be_read_are_kept(tmp_path, chat):
    out = tmp_path / "judged.jsonl"
    with chat(otherwise=all_fives, concurrency=1) as (_, settings):
        with pytest.raises(DataError, match="trajectory 9 can't be read"):
            await judge_all(settings, Counted(12, broken=9), out)
    assert len(out.read_text().splitlines()) == 8


async def test_verdicts_from_the_cache_leave_the_event_loop_to_others_in_between(tmp_path, chat):
    turns = 0

    async def turn():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    with chat(otherwise=all_fives, cache=str(tmp_path / "answers")) as (_, settings):
        await judge_all(settings, Counted(40), tmp_path / "first.jsonl")
        turning = asyncio.create_task(turn())
        judged = await judge_all(replace(settings, concurrency=1), Counted(40), tmp_path / "second.jsonl")
        turning.cancel()
    assert judged.spent.cached == 40
    assert turns >= 40


async def test_a_slow_verdict_holds_no_other_up(tmp_path, chat):
    """One of two is waited for until all others are there."""
    done = []
    with chat(otherwise=lambda _: verdict(5), concurrency=2) as (server, settings):
        original = server._answer

        async def slow(entry, receive, send):
            if len(server.requests) == 1:
                while len(done) < 19:
                    await asyncio.sleep(0.001)
            await original(entry, receive, send)

        server._answer = slow
        await judge_all(settings, Counted(20), tmp_path / "judged.jsonl", on_judged=done.extend)
    assert done[-1].number == 0


def test_a_run_that_is_killed_frees_its_file_and_leaves_what_it_paid_for(tmp_path, chat):
    out, played = tmp_path / "judged.jsonl", tmp_path / "t.jsonl"
    played.write_text("".join(to_line(trajectory_of(f"{number}")) for number in range(6)))
    options = ["--trajectories", played, "--model", "m", "--out", out]
    with chat(*[verdict(5)] * 3, otherwise=lambda _: SILENT) as (server, settings):
        begin = [sys.executable, "-c", "from agentgym_rl.cli import app; app()", "judge", "--server", settings.url]
        running = subprocess.Popen([*begin, *options], stderr=subprocess.DEVNULL)
        while running.poll() is None and not (out.exists() and out.read_bytes().count(b"\n") == 3):
            time.sleep(0.01)
        running.kill()
        running.wait()
    with chat(otherwise=lambda _: verdict(5)) as (server, settings):
        done = CliRunner().invoke(app, ["judge", "--server", settings.url, *map(str, options)])
    assert (done.exit_code, len(server.requests)) == (0, 3), done.output
    assert [json.loads(line)["number"] for line in out.read_text().splitlines()] == list(range(6))


# What is given: a store's, or a file's

PLAYED = [
    trajectory_of("up", "top", task="a", success=True),
    failed_trajectory("a"),
    trajectory_of(task="b"),
    trajectory_of("ä\u2028\x85", task="b", success=False),
    trajectory_of("half", task="a", opening="x" * 100_000),
]
ABOUT = [About("maze", "a", True), About("maze", "a", False), *[About("maze", "b", fit) for fit in (False, True)]]


def from_store(tmp_path):
    store = TrajectoryStore(tmp_path / "store")
    records = [Record(f"r{number}", one, Provenance("collect")) for number, one in enumerate(PLAYED)]
    store.append(records[:3])
    store.append(records[3:])
    return StoreGiven(store)


def from_file(tmp_path):
    (tmp_path / "t.jsonl").write_text("".join(map(to_line, PLAYED)), encoding="utf-8")
    return FileGiven(tmp_path / "t.jsonl")


@pytest.fixture(scope="module", params=[from_store, from_file])
def both(request, tmp_path_factory):
    return request.param(tmp_path_factory.mktemp("given"))


@settings(deadline=None, max_examples=30)
@given(numbers=st.lists(st.integers(0, len(PLAYED) - 1), max_size=8))
def test_any_numbers_in_any_order_give_the_trajectories_with_them(both, numbers):
    assert both.at(numbers) == [PLAYED[number] for number in numbers]


def test_what_is_said_about_them_needs_none_of_them(both):
    assert len(both) == len(PLAYED)
    assert list(both.about()) == [*ABOUT, About("maze", "a", True)]


def test_a_last_line_without_an_end_is_a_trajectory(tmp_path):
    (tmp_path / "t.jsonl").write_text("".join(map(to_line, PLAYED)).rstrip("\n"))
    assert FileGiven(tmp_path / "t.jsonl").at([4, 0]) == [PLAYED[4], PLAYED[0]]


@pytest.mark.parametrize("line", [b"{", b'"\xff"', b"3", b""])
def test_a_line_that_is_no_trajectory_is_named(tmp_path, line):
    (tmp_path / "t.jsonl").write_bytes(to_line(PLAYED[0]).encode() + line + b"\n")
    given = FileGiven(tmp_path / "t.jsonl")
    assert given.at([0]) == PLAYED[:1]
    for read in (lambda: given.at([1]), lambda: list(given.about())):
        with pytest.raises(DataError, match=r"line 2 of .*t\.jsonl"):
            read()


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        FileGiven(tmp_path / "none.jsonl")
