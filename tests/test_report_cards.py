"""Report cards: what is measured, by hand; why nothing could be; what is kept from one run to the next; the tables."""

import asyncio
import json
import math
import sys
from dataclasses import replace

import pytest
from doubles import Guess, NoFacts, RaisesInReset, RewardTooHigh, name_of
from doubles_cli import STAIRS, Stairs, stairs
from typer.testing import CliRunner

from agentgym_rl.cli import app
from agentgym_rl.data.sample_tasks import sample_tasks, task_command
from agentgym_rl.environments import registry
from agentgym_rl.environments.interpreter import variable_of
from agentgym_rl.errors import ConfigurationError, DataError, Manner, ToolFailed
from agentgym_rl.evaluation import card_files
from agentgym_rl.evaluation.card_files import CardFiles
from agentgym_rl.evaluation.report_card import CardSettings, ReportCard, report_card, summary
from agentgym_rl.messages import assistant
from agentgym_rl.policy import Reply
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn
from agentgym_rl.viewer.cards_table import cards_markdown, cells

SETTINGS = CardSettings(tasks=2)
GUESS = name_of(Guess)


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def card_of(name, *tasks, settings=SETTINGS):
    return asyncio.run(report_card(name, settings, tasks))


def run(*arguments):
    return CliRunner().invoke(app, ["report-cards", *map(str, arguments)])


# ---- what is measured


def episode(*milliseconds, success, reward=0.0, failure=None):
    """A trajectory with a turn for each time that a step took."""
    turns = tuple(Turn(Reply(assistant("up")), (), reward, True, 0.0, ms / 1000) for ms in milliseconds)
    stop = StopReason.FAILED if failure else StopReason.TERMINATED
    return Trajectory(stairs("t"), (), turns, stop, success, failure)


def test_the_summary_of_episodes_by_hand():
    failed = episode(9, success=None, reward=-1.0, failure=Failure("environment_raised", "a stair broke"))
    played = summary([episode(1, 2, success=True, reward=0.5), episode(3, 4, 5, 6, success=False), failed], [0.2, 0.4])
    assert played.success.value == 0.5  # of two verdicts
    assert (played.success.size, played.success.excluded) == (2, 1)
    assert played.turns == 3  # (2 + 4) / 2
    assert played.step_milliseconds == pytest.approx(4)  # of 1 2 3 4 5 6 9
    assert played.reset_milliseconds == pytest.approx(300)
    assert (played.lowest_reward, played.highest_reward) == (-1.0, 0.5)
    assert played.failures == {"environment_raised": 1}


def test_where_nothing_was_played_there_is_no_figure_and_no_zero():
    played = summary([episode(success=None, failure=Failure("environment_crashed", "gone"))], [])
    assert (played.success.value, played.turns, played.reset_milliseconds, played.step_milliseconds) == (None,) * 4
    assert (played.lowest_reward, played.highest_reward) == (None, None)


def test_a_card_has_what_the_environment_promises_and_what_its_policies_did():
    card = card_of(STAIRS, stairs("a", height=1), stairs("b", height=3))
    assert (card.reason, card.tasks) == ("", 2)
    assert (card.licence, card.reward_range, card.deterministic) == ("none needed", (0.0, 1.0), True)
    assert card.expert.success.value == 1.0
    assert card.expert.turns == 2  # (1 + 3) / 2
    assert card.random.turns > 2
    assert card.measured is card.expert


def test_tasks_are_drawn_where_none_are_given():
    card = card_of(GUESS, settings=CardSettings(tasks=5))
    assert card.tasks == 5
    assert card.expert.success.size == 5


def test_a_policy_that_there_is_none_of_has_no_figures():
    card = card_of("mute_stairs", replace(stairs("a"), environment="mute_stairs"))
    assert (card.expert, card.random, card.measured) == (None, None, None)
    assert cells(card)[2:7] == ["-"] * 5


def test_a_broken_rule_stands_on_the_card():
    card = card_of(name_of(RewardTooHigh))
    assert [rule.partition(":")[0] for rule in card.broken_rules] == ["rewards"]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ValueError("the level file is broken"), "environment_raised"),
        (ToolFailed("the search server is gone", Manner.CRASHED), "tool_crashed"),
    ],
)
def test_an_environment_that_fails_is_measured_as_failing_and_not_as_missing(monkeypatch, error, cause):
    def reset(self, task):
        raise error

    monkeypatch.setattr(RaisesInReset, "reset", reset)
    card = card_of(name_of(RaisesInReset), settings=SETTINGS)
    assert card.reason == ""
    assert card.broken_rules[0].startswith("answers: ")
    assert card.expert.success.value is None
    assert card.expert.failures == {cause: 2}
    assert cells(card)[2] == "no verdict, 2 failed"


def test_an_end_without_bound_is_none(monkeypatch):
    monkeypatch.setattr(Stairs, "facts", replace(Stairs.facts, reward_range=(-math.inf, 1.0)))
    assert card_of(STAIRS, stairs("a")).reward_range == (None, 1.0)


# ---- why nothing was played


def test_what_is_not_installed_is_the_reason(monkeypatch):
    monkeypatch.setitem(registry._TARGETS, "needs-a-package", "no_such_package_here:Thing")
    card = card_of("needs-a-package")
    assert card.reason == "environment 'needs-a-package' needs 'no_such_package_here': install 'no_such_package_here'"
    assert card.deterministic is None


def test_a_class_without_facts_is_the_reason():
    assert "`facts` must be a Facts; given: NoneType" in card_of(name_of(NoFacts)).reason


def test_what_a_reset_refuses_is_the_reason():
    card = card_of("agentgym")
    assert "'http://host:port'" in card.reason
    assert card.domain == "any AgentGym server"


@pytest.mark.parametrize(("name", "lacks"), [("toolbench", "files, --url"), ("openenv", "--base-url")])
def test_a_script_that_lacks_something_is_the_reason(name, lacks):
    assert card_of(name).reason == f"`python -m data_preprocess.{name}`: the following arguments are required: {lacks}"


# ---- sample tasks


def test_the_script_of_an_environment_is_that_of_its_name_or_the_one_that_its_class_names():
    assert task_command("maze") == ("data_preprocess.maze",)
    assert task_command("textworld-express") == ("data_preprocess.textworld_express",)
    assert task_command("gymnasium")[0] == "data_preprocess.gymnasium_adapter"
    assert task_command("toy-text") == ("data_preprocess.toy_text",)
    assert task_command(STAIRS) == ()


def test_every_registered_script_is_there():
    for name in registry.names():
        for module in task_command(name)[:1] if not name.startswith(("double-", "stairs", "mute")) else ():
            assert card_files.importlib.util.find_spec(module), name


def test_a_script_draws_as_many_tasks_as_are_asked_for_and_the_same_again():
    tasks = sample_tasks("maze", 3, seed=4)
    assert [task.split for task in tasks] == ["test"] * 3
    assert sample_tasks("maze", 3, seed=4) == tasks != sample_tasks("maze", 3, seed=5)


def test_without_a_script_each_seed_is_a_task():
    assert [(task.environment, task.seed) for task in sample_tasks(STAIRS, 2, seed=7)] == [(STAIRS, 7), (STAIRS, 8)]


def test_where_no_script_is_installed_each_seed_is_a_task_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "data_preprocess", None)
    monkeypatch.delitem(sys.modules, "data_preprocess.maze", raising=False)  # another test may have imported it
    assert task_command("maze") == ()


def test_a_script_that_fails_is_told_by_its_last_line(monkeypatch):
    monkeypatch.setattr(Stairs, "task_command", ("no_such_module",))
    with pytest.raises(ConfigurationError, match="`python -m no_such_module`: .*No module named no_such_module"):
        sample_tasks(STAIRS, 1)


# ---- what is kept


def test_a_card_survives_its_file():
    card = card_of(STAIRS, stairs("a"))
    assert ReportCard.from_dict(json.loads(json.dumps(card.to_dict()))) == card


@pytest.mark.parametrize("row", [[], {}, {"environment": "x"}, "text"])
def test_another_file_is_no_card(row):
    with pytest.raises(DataError, match="not a report card"):
        ReportCard.from_dict(row)


def test_a_card_is_kept_until_code_settings_or_interpreter_change(tmp_path, monkeypatch):
    card = card_of(STAIRS, stairs("a"))
    files = CardFiles(tmp_path, SETTINGS)
    assert files.kept(STAIRS) is None
    files.keep(card)
    assert files.kept(STAIRS) == card
    assert CardFiles(tmp_path, replace(SETTINGS, seed=1)).kept(STAIRS) is None
    assert CardFiles(tmp_path, SETTINGS, tasks="abc").kept(STAIRS) is None
    with monkeypatch.context() as patch:
        patch.setattr(card_files, "_code", lambda: "another")
        assert files.kept(STAIRS) is None
    with monkeypatch.context() as patch:
        patch.setenv(variable_of(STAIRS), sys.executable)
        assert files.kept(STAIRS) is None
    assert files.kept(STAIRS) == card


def test_a_card_of_another_interpreter_whose_packages_may_have_changed_is_made_again(tmp_path, monkeypatch):
    files, card = CardFiles(tmp_path, SETTINGS), card_of(STAIRS, stairs("a"))
    with monkeypatch.context() as patch:
        patch.setenv(variable_of(STAIRS), sys.executable)
        files.keep(card)
        assert files.kept(STAIRS) is None
    assert files.kept(STAIRS) is None


@pytest.mark.parametrize("name", ["no_such_package.envs:Maze", "sys:Maze"])
def test_a_class_without_a_file_of_its_module_has_a_card_all_the_same(tmp_path, name):
    card = card_of(name)
    assert card.reason
    CardFiles(tmp_path, SETTINGS).keep(card)
    (path,) = tmp_path.iterdir()
    assert ReportCard.from_dict(json.loads(path.read_text())["card"]) == card


def test_a_card_without_figures_and_a_file_that_was_cut_off_are_made_again(tmp_path):
    files = CardFiles(tmp_path, SETTINGS)
    files.keep(ReportCard(STAIRS, reason="not installed"))
    assert files.kept(STAIRS) is None
    files.keep(card_of(STAIRS, stairs("a")))
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text()[:40])
    assert files.kept(STAIRS) is None


def test_a_class_without_a_name_has_a_file_too(tmp_path):
    CardFiles(tmp_path, SETTINGS).keep(ReportCard("doubles_cli:Stairs"))
    assert [path.name for path in tmp_path.iterdir()] == ["doubles_cli_Stairs.json"]


# ---- the command


def test_the_command_shows_a_table_and_measures_nothing_twice(tmp_path):
    arguments = (GUESS, "toolbench", "--tasks", 2, "--out", tmp_path)
    first = run(*arguments)
    assert first.exit_code == 0, first.output
    assert "100% [34, 100]" in first.stdout  # Wilson: 2 of 2
    assert "not played (1)" in first.stdout
    cards = (tmp_path / "cards.json").read_text()
    assert run(*arguments).exit_code == 0
    assert (tmp_path / "cards.json").read_text() == cards  # times and all
    assert run(*arguments, "--fresh").exit_code == 0
    assert (tmp_path / "cards.json").read_text() != cards


def test_the_command_leaves_markdown_and_json(tmp_path):
    run(GUESS, "toolbench", "--tasks", 2, "--out", tmp_path)
    text = (tmp_path / "cards.md").read_text()
    assert f"| {GUESS} | ok | 100% [34, 100] |" in text
    assert "## Not played here (1)" in text
    rows = json.loads((tmp_path / "cards.json").read_text())
    assert [ReportCard.from_dict(row).environment for row in rows] == [GUESS, "toolbench"]
    assert cards_markdown([ReportCard.from_dict(row) for row in rows]) == text


def test_a_broken_contract_is_told_and_is_exit_code_1(tmp_path):
    result = run(name_of(RewardTooHigh), "--tasks", 2, "--out", tmp_path)
    assert result.exit_code == 1
    assert f"{name_of(RewardTooHigh)} breaks" in result.stdout
    assert "## Broken rules" in (tmp_path / "cards.md").read_text()


def test_a_file_says_which_tasks_of_which_environments(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(stairs(name, height=3).to_json() + "\n" for name in "abc"))
    result = run("--task-file", path, "--out", tmp_path / "out")
    assert result.exit_code == 1  # no number of turns ends these stairs
    (row,) = json.loads((tmp_path / "out" / "cards.json").read_text())
    assert (row["environment"], row["tasks"], row["expert"]["turns"]) == (STAIRS, 3, 3)


def test_an_unknown_name_is_one_clear_line(tmp_path):
    result = run("stiars", "--out", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.strip() == "error: no environment 'stiars'; did you mean 'stairs'?"


def test_a_cell_can_hold_a_bar_and_a_line_break():
    (line,) = [
        line for line in cards_markdown([ReportCard("x", reason="a | b\nc")]).splitlines() if line.startswith("| x")
    ]
    assert line == "| x | a \\| b c |"
