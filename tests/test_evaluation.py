"""evaluate() plays each task, keeps a row of each episode, and goes on where it was stopped."""

import asyncio
import json
from collections import Counter

import pytest
from doubles_cli import STAIRS, Mute, Stairs, stairs

from agentgym_rl.environments import registry
from agentgym_rl.episode import Limits
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.evaluation.result import EpisodeRow, Evaluation
from agentgym_rl.evaluation.run import evaluate
from agentgym_rl.evaluation.success import Estimate
from agentgym_rl.policy import ExpertPolicy, ScriptedPolicy
from agentgym_rl.task import Task


@pytest.fixture(autouse=True)
def _forget_earlier_episodes():
    Stairs.played.clear()
    Stairs.open_now = Stairs.most_open = 0


def expert(environment, task, episode):
    return ExpertPolicy(environment)


def row(task="a", episode=0, environment=STAIRS, success=True, earned=1.0, turns=2, stop="terminated", failure=None):
    return EpisodeRow(task, episode, environment, success, earned, turns, stop, failure, "it broke" if failure else "")


async def test_rows_say_what_happened_in_the_order_of_tasks_and_episodes():
    tasks = [stairs("low"), stairs("high", height=9), stairs("broken", breaks=True), stairs("silent", silent=True)]
    found = await evaluate(expert, tasks, Limits(max_turns=4), concurrency=3, episodes_per_task=2)
    broken = ("step of environment 'stairs' raised RuntimeError: a stair broke",)
    expected = [
        ("low", True, 1.0, 2, "terminated", None, ""),
        ("high", False, 0.0, 4, "max_turns", None, ""),
        ("broken", None, 0.0, 0, "failed", "environment_raised", *broken),
        ("silent", None, 1.0, 2, "terminated", None, ""),
    ]
    assert found.rows == tuple(
        EpisodeRow(task, episode, STAIRS, *rest) for task, *rest in expected for episode in range(2)
    )


async def test_the_policy_is_made_for_each_episode_with_its_number():
    made = []

    def make_policy(environment, task, episode):
        made.append((task.id, episode))
        return ScriptedPolicy(["up"] * (episode + 1))

    found = await evaluate(make_policy, [stairs("a"), stairs("b")], episodes_per_task=2)
    assert sorted(made) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert [r.success for r in found.rows] == [False, True, False, True]


async def test_no_more_episodes_than_allowed_are_open_and_none_stays_open():
    await evaluate(expert, [stairs(str(i)) for i in range(12)], concurrency=3)
    assert (Stairs.most_open, Stairs.open_now) == (3, 0)


async def test_an_environment_is_started_for_each_episode_under_way_and_used_again(monkeypatch):
    started = []
    monkeypatch.setattr(Stairs, "__init__", lambda self: started.append(self) or setattr(self, "_is_open", False))
    await evaluate(expert, [stairs(str(i)) for i in range(12)], concurrency=3)
    assert len(started) == 3


async def test_a_hanging_environment_is_a_failure_of_its_own_episode_only():
    limits = Limits(step_seconds=0.05)
    found = await evaluate(expert, [stairs("a", hangs=True), stairs("b")], limits)
    assert [r.failure for r in found.rows] == ["environment_timed_out", None]
    assert found.rows[1].success is True


async def test_a_configuration_that_cannot_work_raises_and_cancels_what_is_under_way():
    def make_policy(environment, task, episode):
        if task.id == "wrong":
            raise ConfigurationError("this policy has no model")
        return ExpertPolicy(environment)

    tasks, limits = [stairs("slow", hangs=True), stairs("wrong")], Limits(step_seconds=3600)
    with pytest.raises(ConfigurationError, match="this policy has no model"):
        await asyncio.wait_for(evaluate(make_policy, tasks, limits, concurrency=2), timeout=20)
    assert Stairs.open_now == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(
    ("tasks", "options", "message"),
    [
        ([], {}, "there is no task to play"),
        ([stairs("a"), stairs("b"), stairs("a")], {}, "2 tasks have the id 'a'"),
        ([stairs("a")], {"concurrency": 0}, "concurrency must be at least 1; given: 0"),
        ([stairs("a")], {"episodes_per_task": 0}, "episodes_per_task must be at least 1; given: 0"),
        ([Task("a", "stiars")], {}, "no environment 'stiars'; did you mean 'stairs'"),
    ],
)
async def test_a_call_that_cannot_work_says_why(tasks, options, message):
    with pytest.raises(ConfigurationError, match=message):
        await evaluate(expert, tasks, **options)


async def test_each_finished_episode_is_announced_with_its_trajectory():
    heard = []
    await evaluate(expert, [stairs("a")], on_episode=lambda row, trajectory: heard.append((row.task, trajectory)))
    (name, trajectory), *rest = heard
    assert (name, [turn.reply.message.content for turn in trajectory.turns], rest) == ("a", ["up", "up"], [])


async def test_an_evaluation_goes_on_where_it_was_stopped(tmp_path):
    file = tmp_path / "rows.jsonl"
    tasks = [stairs("a"), stairs("b"), stairs("c")]
    await evaluate(expert, tasks[:2], rows_file=file)
    Stairs.played.clear()
    heard = []
    resumed = await evaluate(expert, tasks, rows_file=file, on_episode=lambda r, t: heard.append((r.task, t is None)))
    assert Stairs.played == ["c"]
    assert sorted(heard) == [("a", True), ("b", True), ("c", False)]
    assert resumed == await evaluate(expert, tasks)


async def test_more_episodes_of_a_task_add_to_those_played(tmp_path):
    file = tmp_path / "rows.jsonl"
    await evaluate(expert, [stairs("a")], rows_file=file)
    found = await evaluate(expert, [stairs("a")], rows_file=file, episodes_per_task=3)
    assert [r.episode for r in found.rows] == [0, 1, 2]
    assert len(Stairs.played) == 3


async def test_rows_are_kept_as_they_finish_not_at_the_end(tmp_path):
    file = tmp_path / "rows.jsonl"
    kept = []

    def on_episode(row, trajectory):
        kept.append([json.loads(line).get("task") for line in file.read_text().splitlines()[1:]])

    await evaluate(expert, [stairs("a"), stairs("b")], concurrency=1, rows_file=file, on_episode=on_episode)
    assert kept == [["a"], ["a", "b"]]


async def test_a_failed_episode_is_played_again_and_its_new_row_stands(tmp_path):
    file = tmp_path / "rows.jsonl"
    await evaluate(expert, [stairs("a", breaks=True)], rows_file=file)
    assert (await evaluate(expert, [stairs("a")], rows_file=file)).rows[0].success is True
    Stairs.played.clear()
    assert (await evaluate(expert, [stairs("a")], rows_file=file)).rows[0].success is True
    assert Stairs.played == []


async def test_a_row_that_was_cut_off_while_it_was_written_is_played_again(tmp_path):
    file = tmp_path / "rows.jsonl"
    await evaluate(expert, [stairs("a"), stairs("b")], concurrency=1, rows_file=file)
    file.write_bytes(file.read_bytes()[:-20])
    Stairs.played.clear()
    found = await evaluate(expert, [stairs("a"), stairs("b")], rows_file=file)
    assert Stairs.played == ["b"]
    assert [r.success for r in found.rows] == [True, True]
    assert [json.loads(line).get("task") for line in file.read_text().splitlines()] == [None, "a", "b"]


async def test_rows_of_other_settings_are_never_mixed_in(tmp_path):
    file = tmp_path / "rows.jsonl"
    await evaluate(expert, [stairs("a")], rows_file=file, settings={"policy": "expert", "seed": 0})
    with pytest.raises(
        ConfigurationError, match=r"rows\.jsonl has the rows .* with seed = 0; given: 1\. Give the same"
    ):
        await evaluate(expert, [stairs("a")], rows_file=file, settings={"policy": "expert", "seed": 1})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("hello\n", "holds no rows of an evaluation"),
        ('{"settings": {}}\n{"x": 1}\n', r"line 2 of .*: not the row"),
        ('{"settings": {}}\nnope\n', "line 2 of "),
    ],
)
async def test_a_file_that_holds_no_rows_is_refused(tmp_path, content, message):
    (tmp_path / "rows.jsonl").write_text(content)
    with pytest.raises(DataError, match=message):
        await evaluate(expert, [stairs("a")], rows_file=tmp_path / "rows.jsonl")


def test_failures_are_counted_and_touch_no_mean():
    rows = (
        row("a", success=True, earned=1.0, turns=2),
        row("b", success=False, earned=0.5, turns=4, stop="max_turns"),
        row("c", success=None, earned=0.0, turns=9, stop="failed", failure="environment_raised"),
    )
    (summary,) = Evaluation(rows).summary()
    assert (summary.environment, summary.episodes) == (STAIRS, 3)
    assert (summary.success.value, summary.success.size, summary.success.excluded) == (0.5, 2, 1)
    assert (summary.mean_return, summary.mean_turns) == (0.75, 3.0)
    assert summary.stops == Counter(terminated=1, max_turns=1, failed=1)
    assert summary.failures == {"environment_raised": 1}


def test_several_environments_are_summarised_one_by_one_and_together():
    rows = (row("a", environment="x"), row("b", environment="y", success=False), row("c", environment="x"))
    summaries = Evaluation(rows).summary()
    assert [(s.environment, s.episodes, s.success.value) for s in summaries] == [
        ("x", 2, 1.0),
        ("y", 1, 0.0),
        ("all", 3, pytest.approx(2 / 3)),
    ]


def test_only_failures_leave_the_means_undefined():
    (summary,) = Evaluation((row(success=None, failure="policy_timed_out", stop="failed"),)).summary()
    assert (summary.success, summary.mean_return, summary.mean_turns) == (Estimate(None, None, None, 0, 1), None, None)


@pytest.mark.parametrize("rows", [(), (row("a"),), (row("a"), row("b\u2028", success=None, failure="policy_raised"))])
def test_an_evaluation_survives_json_and_its_file(tmp_path, rows):
    evaluation = Evaluation(rows, {"policy": "expert", "temperature": 0.0})
    assert Evaluation.from_json(evaluation.to_json()) == evaluation
    evaluation.write(tmp_path / "deep" / "e.json")
    assert Evaluation.read(tmp_path / "deep" / "e.json") == evaluation


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is JSON; this is none"),
        ("[]", "fields 'settings' and 'rows'"),
        ("{}", "fields 'settings' and 'rows'"),
        ('{"settings": {}, "rows": [{"task": "a"}]}', "not the row of an episode: .*'episode'"),
    ],
)
def test_what_is_no_evaluation_is_refused(tmp_path, text, message):
    (tmp_path / "e.json").write_text(text)
    with pytest.raises(DataError, match=rf"e\.json: .*{message}"):
        Evaluation.read(tmp_path / "e.json")


def test_a_missing_evaluation_is_named(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        Evaluation.read(tmp_path / "none.json")


def test_the_doubles_are_what_the_tests_take_them_for():
    assert registry.environment_class(STAIRS) is Stairs
    assert Mute.facts.expert_success is None
