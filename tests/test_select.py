"""Which of several trajectories are kept to be imitated, and what each rule drops."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from agentgym_rl.cli import app
from agentgym_rl.data.select import Rule, Rules, select
from agentgym_rl.data.sft_parquet import write_sft
from agentgym_rl.data.trajectory_json import to_line
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.messages import ToolCall, assistant, user
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn


def trajectory(
    actions: str, earned: float = 1.0, task: str = "t", success: bool | None = True, valid: bool = True
) -> Trajectory:
    """One letter an action; the last one earns."""
    rewards = [0.0] * (len(actions) - 1) + [earned]
    turns = tuple(Turn(Reply(assistant(a)), (user("seen"),), r, valid) for a, r in zip(actions, rewards, strict=True))
    return Trajectory(Task(task, "maze"), (user("a wall"),), turns, StopReason.TERMINATED, success)


def crashed(actions: str = "ab", earned: float = 1.0, task: str = "t") -> Trajectory:
    turns = trajectory(actions, earned).turns
    failure = Failure("environment_crashed", "the process is gone")
    return Trajectory(Task(task, "maze"), (user("a wall"),), turns, StopReason.FAILED, None, failure)


def kept(trajectories: list[Trajectory], **rules: object) -> list[int]:
    """Indices of what was kept."""
    chosen = select(trajectories, Rules(**rules)).kept
    return [index for index, one in enumerate(trajectories) if any(one is other for other in chosen)]


def test_without_rules_everything_that_can_be_imitated_is_kept_in_its_order() -> None:
    given = [trajectory("a", 0.0, success=False), crashed(), trajectory("b", valid=False), trajectory("a")]
    selection = select(given, Rules())
    assert selection.kept == [given[0], given[3]]
    assert selection.dropped == {Rule.FAILED: 1, Rule.NO_REPLY: 1}


def test_the_best_of_each_task_are_those_with_the_highest_return_then_the_fewest_turns_then_the_first() -> None:
    # task t: returns 1, 2, 2, 2 in 1, 3, 2, 2 turns: best are #2 and #3, as the two of two turns; of the two of task u
    # with return 0, the shorter; order of input stays
    given = [
        trajectory("a", 1.0),
        trajectory("abc", 2.0),
        trajectory("ab", 2.0),
        trajectory("cd", 2.0),
        trajectory("ab", 0.0, task="u"),
        trajectory("a", 0.0, task="u"),
    ]
    assert kept(given, top=2) == [2, 3, 4, 5]
    assert kept(given, top=1) == [2, 5]
    assert kept([given[3], given[2]], top=1) == [0]
    assert select(given, Rules(top=1)).dropped == {Rule.NOT_AMONG_BEST: 4}


def test_tasks_of_one_id_in_two_environments_do_not_compete() -> None:
    given = [trajectory("a", 1.0), trajectory("a", 2.0), replace(trajectory("a", 0.0), task=Task("t", "babyai"))]
    assert kept(given, top=1) == [1, 2]
    assert kept(given, distinct=True) == [1, 2]


def test_a_failed_trajectory_is_never_kept_and_takes_no_place() -> None:
    assert kept([crashed(earned=9.0), trajectory("a", 1.0)], top=1) == [1]


def test_a_reply_that_was_not_understood_takes_no_place_either() -> None:
    assert kept([trajectory("a", 9.0, valid=False), trajectory("a", 1.0)], top=1) == [1]


def test_only_what_was_solved_is_kept_and_an_unknown_outcome_is_not_solved() -> None:
    given = [trajectory("a", success=verdict) for verdict in (True, False, None)]
    assert kept(given, only_success=True) == [0]
    assert select(given, Rules(only_success=True)).dropped == {Rule.NOT_SOLVED: 2}


def test_a_return_at_the_threshold_is_enough() -> None:
    given = [trajectory("a", 0.5), trajectory("b", 0.49)]
    assert kept(given, min_return=0.5) == [0]
    assert select(given, Rules(min_return=0.5)).dropped == {Rule.LOW_RETURN: 1}


def test_the_same_actions_are_kept_once_a_task_from_the_best_that_took_them() -> None:
    # #0 and #2 say the same; #2 earned more. #3 says it in another task.
    given = [trajectory("ab", 0.0), trajectory("ba", 0.0), trajectory("ab", 1.0), trajectory("ab", task="u")]
    assert kept(given, distinct=True) == [1, 2, 3]
    assert select(given, Rules(distinct=True)).dropped == {Rule.REPEATED: 1}


def test_repeated_actions_take_no_place_among_the_best() -> None:
    given = [trajectory("ab", 3.0), trajectory("ab", 2.0), trajectory("ba", 1.0)]
    assert kept(given, top=2, distinct=True) == [0, 2]


def test_actions_that_differ_in_their_tool_calls_alone_are_different() -> None:
    def calling(tool: str) -> Trajectory:
        turn = Turn(Reply(assistant("", (ToolCall(tool, {"x": 1}),))), (), 1.0)
        return Trajectory(Task("t", "maze"), (user("go"),), (turn,), StopReason.TERMINATED, True)

    assert kept([calling("look"), calling("go"), calling("look")], distinct=True) == [0, 1]


def test_the_first_rule_that_holds_is_the_one_that_is_counted() -> None:
    given = [trajectory("a", 0.0, success=False), trajectory("a"), trajectory("a")]
    rules = Rules(top=1, min_return=0.5, only_success=True, distinct=True)
    assert select(given, rules).dropped == {Rule.NOT_SOLVED: 1, Rule.REPEATED: 1}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"top": 0}, "top must be at least 1; given: 0"),
        ({"min_return": float("nan")}, "min_return must be a number; given: nan"),
    ],
)
def test_rules_that_cannot_work_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Rules(**wrong)


sampled = st.lists(
    st.builds(
        trajectory,
        st.text("ab", min_size=1, max_size=3),
        st.sampled_from([0.0, 0.5, 1.0]),
        st.sampled_from("tu"),
        st.sampled_from([True, False, None]),
        st.booleans(),
    )
    | st.builds(crashed, st.text("ab", min_size=1, max_size=3), st.just(2.0), st.sampled_from("tu")),
    max_size=12,
)
any_rules = st.builds(
    Rules, st.none() | st.integers(1, 3), st.none() | st.sampled_from([0.5, 1.0]), st.booleans(), st.booleans()
)


@given(sampled, any_rules)
def test_what_is_kept_satisfies_every_rule_and_the_counts_add_up(given: list[Trajectory], rules: Rules) -> None:
    selection = select(given, rules)
    assert len(selection.kept) + sum(selection.dropped.values()) == len(given)
    assert not any(one.failed for one in selection.kept)
    assert all(any(turn.valid for turn in one.turns) for one in selection.kept)
    if rules.top is not None:
        assert all(count <= rules.top for count in Counter(one.task.id for one in selection.kept).values())
    if rules.min_return is not None:
        assert all(one.environment_return >= rules.min_return for one in selection.kept)
    if rules.only_success:
        assert all(one.success for one in selection.kept)
    if rules.distinct:
        said = [(one.task.id, tuple(t.reply.message.content for t in one.turns)) for one in selection.kept]
        assert len(said) == len(set(said))


@given(sampled, any_rules)
def test_nothing_better_than_what_is_kept_is_dropped(given: list[Trajectory], rules: Rules) -> None:
    selection = select(given, rules)
    rest = Rules(None, rules.min_return, rules.only_success, rules.distinct)
    for dropped in select(given, rest).kept:
        if not any(dropped is one for one in selection.kept):
            of_task = [one for one in selection.kept if one.task.id == dropped.task.id]
            assert len(of_task) == rules.top
            assert min(one.environment_return for one in of_task) >= dropped.environment_return


def outcomes(trajectories: list[Trajectory]) -> Counter:
    return Counter((one.task.id, one.environment_return, len(one.turns)) for one in trajectories)


@given(sampled, any_rules, st.randoms(use_true_random=False))
def test_the_order_of_the_input_decides_between_ties_alone(given: list[Trajectory], rules: Rules, random) -> None:
    shuffled = random.sample(given, len(given))
    first, second = select(given, rules), select(shuffled, rules)
    assert outcomes(first.kept) == outcomes(second.kept)
    assert first.dropped == second.dropped


@given(sampled, any_rules)
def test_selecting_again_from_what_was_kept_keeps_all_of_it(given: list[Trajectory], rules: Rules) -> None:
    chosen = select(given, rules).kept
    assert select(chosen, rules) == (chosen, {})


# The command


def written(path, *trajectories: Trajectory) -> str:
    path.write_text("".join(map(to_line, trajectories)), encoding="utf-8")
    return str(path)


def test_the_command_writes_the_best_of_several_files_and_a_table_that_adds_up(tmp_path) -> None:
    first = written(tmp_path / "1.jsonl", trajectory("a", 0.0, success=False), trajectory("ab"), crashed())
    second = written(tmp_path / "2.jsonl", trajectory("b"), trajectory("ab", task="u"))
    files = ["--trajectories", first, "--trajectories", second, "--out", str(tmp_path / "deep" / "sft.parquet")]
    result = CliRunner().invoke(app, ["select", *files, "--top", "1", "--only-success"])
    assert result.exit_code == 0, result.output
    lines = [line.rsplit(None, 1) for line in result.stdout.splitlines()[2:] if line.strip()]
    assert [(text.strip(), int(number)) for text, number in lines] == [
        ("in", 5),
        ("dropped: failed", 1),
        ("dropped: not solved", 1),
        ("dropped: not among the best", 1),
        ("kept, of 2 tasks", 2),
    ]
    write_sft([trajectory("b"), trajectory("ab", task="u")], tmp_path / "expected.parquet")
    tables = [pyarrow.parquet.read_table(tmp_path / name) for name in ("deep/sft.parquet", "expected.parquet")]
    assert tables[0].to_pylist() == tables[1].to_pylist()


def test_the_command_writes_nothing_and_says_so_where_nothing_is_kept(tmp_path) -> None:
    file = written(tmp_path / "1.jsonl", trajectory("a", success=False))
    result = CliRunner().invoke(
        app, ["select", "--trajectories", file, "--out", str(tmp_path / "sft.parquet"), "--only-success"]
    )
    assert result.exit_code == 2
    assert "dropped: not solved" in result.stdout
    assert "error: there is no trajectory to write to" in result.stderr
    assert not (tmp_path / "sft.parquet").exists()
