"""Which trajectories each rule drops, and the reason that it gives."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from doubles import NanReward, tasks_for
from doubles_cli import Stairs
from doubles_store import ids, record, store_of
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.data import derive as deriving
from agentgym_rl.data import efficiency
from agentgym_rl.data.annotate import annotate_store, annotated
from agentgym_rl.data.filter import DROPPED_FILE, filter_store
from agentgym_rl.data.filter_rules import RULES, make_rule
from agentgym_rl.data.record import Record
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.messages import ToolCall, assistant
from agentgym_rl.policy import Reply, SampledTokens
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason, Trajectory, Turn


def reasons(store: TrajectoryStore, rule: str) -> dict[str, str]:
    """Id -> reason of what a rule drops."""
    check = make_rule(rule, store).check
    said = {row.id: check(row) for rows in store.rows() for row in rows}
    return {id: reason for id, reason in said.items() if reason}


@pytest.fixture
def four(tmp_path):
    return store_of(
        tmp_path / "four",
        record("solved", "ab", 1.0),
        record("lost", "abcd", 0.0, success=False, invalid="cd"),
        record("unknown", "aaab", 0.5, success=None, task="u"),
        record("crashed", "a", 0.0, crashed=True, task="u", environment="maze"),
    )


@pytest.mark.parametrize(
    ("rule", "dropped"),
    [
        (
            "outcome=success",
            {"lost": "not solved", "unknown": "no verdict", "crashed": "failed: environment_crashed"},
        ),
        ("outcome=failure", {"solved": "solved", "unknown": "no verdict", "crashed": "failed: environment_crashed"}),
        ("outcome=known", {"unknown": "no verdict", "crashed": "failed: environment_crashed"}),
        ("outcome=played", {"crashed": "failed: environment_crashed"}),
        ("min-return=0.5", {"lost": "return is 0, not >= 0.5", "crashed": "return is 0, not >= 0.5"}),
        ("max-return=0.5", {"solved": "return is 1, not <= 0.5"}),
        ("min-turns=2", {"crashed": "turns is 1, not >= 2"}),
        ("max-turns=3", {"lost": "turns is 4, not <= 3", "unknown": "turns is 4, not <= 3"}),
        ("max-loop=2", {"unknown": "action 'a' more than 2 times in a row"}),
        ("max-loop=3", {}),
        # 2 of 4 actions of "lost" were not understood
        ("max-invalid-rate=0.5", {}),
        ("max-invalid-rate=0.4", {"lost": "share of invalid actions is 0.5, not <= 0.4"}),
        ("cap=1", {"lost": "this task has 1 already"}),
        ("cap-environment=2", {"unknown": "this environment has 2 already"}),
        # task t: 1 of 2 solved; task u has no verdict
        (
            "difficulty=0.1..0.9",
            dict.fromkeys(("unknown", "crashed"), "success rate of its task is unknown"),
        ),
        (
            "difficulty=0..0.4",
            {
                **dict.fromkeys(("unknown", "crashed"), "success rate of its task is unknown"),
                **dict.fromkeys(("solved", "lost"), "success rate of its task is 0.50 (1 of 2), not in 0..0.4"),
            },
        ),
    ],
)
def test_a_rule_drops_what_it_says_and_says_why(four, rule, dropped):
    assert reasons(four, rule) == dropped


def test_a_task_of_the_same_id_in_another_environment_is_another_task(four):
    assert "crashed" not in reasons(four, "cap=1")


def test_an_annotation_that_is_missing_or_no_number_meets_no_threshold(tmp_path):
    store = store_of(
        tmp_path,
        record("low", annotations={"judge": 0.5}),
        record("high", annotations={"judge": 0.7}),
        record("none"),
        record("null", annotations={"judge": None}),
        record("yes", annotations={"judge": True}),
    )
    assert reasons(store, "annotation=judge>=0.7") == {
        "low": "annotation judge is 0.5, not >= 0.7",
        "none": "annotation judge is missing",
        "null": "annotation judge is None",
    }
    assert set(reasons(store, "annotation=judge<0.7")) == {"high", "none", "null", "yes"}


@pytest.mark.parametrize("sign", [">=", "<=", "==", "!=", ">", "<"])
def test_an_annotation_that_is_not_a_number_by_its_own_word_meets_no_threshold(tmp_path, sign):
    store = store_of(tmp_path / "undefined", record("undefined", annotations={"judge": float("nan")}))
    assert reasons(store, f"annotation=judge{sign}0.5") == {"undefined": "annotation judge is nan"}


def test_a_conversation_is_an_exact_duplicate_only_of_an_equal_earlier_one(tmp_path):
    store = store_of(
        tmp_path,
        record("first", "ab", 0.0),
        record("again", "ab", 1.0),  # what it earned is no part of what was said
        record("other words", "ab", seen="saw"),
        record("other actions", "ac"),
        record("third", "ab"),
    )
    assert reasons(store, "exact-duplicates") == dict.fromkeys(("again", "third"), "same conversation as first")


def test_conversations_that_differ_in_their_tool_calls_alone_are_no_duplicates(tmp_path):
    def calling(id: str, call_id: str, **arguments: int) -> Record:
        turn = Turn(Reply(assistant("", (ToolCall("go", arguments, call_id),))), (), 1.0)
        made = record(id)
        trajectory = Trajectory(made.trajectory.task, (), (turn,), StopReason.TERMINATED, True)
        return Record(id, trajectory, made.provenance)

    store = store_of(
        tmp_path,
        calling("x1", "1", x=1, y=2),
        calling("x2", "2", x=2, y=2),
        calling("same", "3", y=2, x=1),
    )
    assert reasons(store, "exact-duplicates") == {"same": "same conversation as x1"}


def test_near_duplicates_are_those_that_share_most_word_triples(tmp_path):
    pytest.importorskip("datasketch", reason="datasketch is not installed")
    words = [f"w{number}" for number in range(200)]

    def saying(id: str, *said: str) -> Record:
        made = record(id)
        turn = Turn(Reply(assistant(" ".join(said))), (), 1.0)
        trajectory = Trajectory(made.trajectory.task, (), (turn,), StopReason.TERMINATED, True)
        return Record(id, trajectory, made.provenance)

    # one word changed of 200: 3 of 198 triples differ, 195 / 201 = 0.97; half changed: about 98 / 298 = 0.33
    store = store_of(
        tmp_path,
        saying("first", *words),
        saying("near", *words[:100], "x", *words[101:]),
        saying("half", *words[:100], *(f"v{number}" for number in range(100))),
        saying("short", "a"),
    )
    found = reasons(store, "near-duplicates=0.9")
    assert set(found) == {"near"}
    assert reasons(store, "near-duplicates=1") == {}
    similarity, _, id = found["near"].partition(" like ")
    assert id == "first"
    assert 0.9 <= float(similarity) <= 1.0


def asked_otherwise(given: Record) -> Record:
    task = replace(given.trajectory.task, prompt="Find the way out.", reference_answer="north")
    return replace(given, trajectory=replace(given.trajectory, task=task))


def test_contamination_is_the_same_environment_arguments_and_seed_whatever_the_id(tmp_path):
    tests = [Task("test-1", "maze", {"size": 3}, seed=7)]
    file = tmp_path / "test.jsonl"
    file.write_text("".join(task.to_json() + "\n" for task in tests))
    store = store_of(
        tmp_path / "s",
        record("same", environment="maze", seed=7, size=3),
        asked_otherwise(record("asked otherwise", environment="maze", seed=7, size=3)),
        record("other seed", environment="maze", seed=8, size=3),
        record("other size", environment="maze", seed=7, size=4),
        record("other environment", seed=7, size=3),
    )
    said = dict.fromkeys(("same", "asked otherwise"), "same environment, arguments and seed as test task test-1")
    assert reasons(store, f"contamination={file}") == said
    with pytest.raises(DataError, match="there is no file"):
        make_rule(f"contamination={tmp_path / 'none.jsonl'}", store)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("outcom=success", "no rule 'outcom'; did you mean 'outcome'?"),
        ("cap", "this rule is written cap=COUNT; given: 'cap'"),
        ("exact-duplicates=1", "this rule is written exact-duplicates; given: 'exact-duplicates=1'"),
        ("outcome=good", "rule 'outcome=good': an outcome is one of success, failure, known, played; given: 'good'"),
        ("min-return=much", "rule 'min-return=much': it needs a number; given: 'much'"),
        ("min-return=nan", "it needs a number; given: 'nan'"),
        ("cap=0", "rule 'cap=0': it needs a whole number of at least 1; given: '0'"),
        ("max-invalid-rate=2", "rule 'max-invalid-rate=2': it needs a number from 0 to 1; given: '2'"),
        ("annotation=judge", "a threshold is written NAME>=NUMBER (or >=, <=, ==, !=, >, <); given: 'judge'"),
        ("difficulty=0.5", "a range of success rates is written LOW..HIGH; given: '0.5'"),
    ],
)
def test_a_rule_that_can_not_work_is_refused(four, rule, message):
    with pytest.raises(ConfigurationError) as raised:
        make_rule(rule, four)
    assert message in str(raised.value)


# Rules together


def test_a_rule_sees_only_what_the_rules_before_it_kept(four, tmp_path):
    # outcome drops the crash, max-loop "unknown"; so the cap of 1 counts "solved" and drops "lost"
    done = filter_store(four, tmp_path / "out", ["outcome=played", "max-loop=2", "cap=1"])
    assert ids(done.store) == ["solved"]
    assert (done.kept, done.dropped) == (1, (("outcome=played", 1), ("max-loop=2", 1), ("cap=1", 1)))
    lines = [json.loads(line) for line in (tmp_path / "out" / DROPPED_FILE).read_text().splitlines()]
    assert lines == [
        {"id": "lost", "task": "t", "rule": "cap=1", "reason": "this task has 1 already"},
        {"id": "unknown", "task": "u", "rule": "max-loop=2", "reason": "action 'a' more than 2 times in a row"},
        {"id": "crashed", "task": "u", "rule": "outcome=played", "reason": "failed: environment_crashed"},
    ]


def test_what_is_kept_is_kept_whole(four, tmp_path):
    done = filter_store(four, tmp_path / "out", ["outcome=success"])
    assert list(done.store.records()) == [next(four.records())]


any_rules = st.lists(
    st.sampled_from(["outcome=played", "min-return=0.5", "max-turns=2", "exact-duplicates", "cap=2", "max-loop=1"]),
    min_size=1,
    unique=True,
)
any_records = st.lists(
    st.builds(
        lambda actions, earned, task, crashed: (actions, earned, task, crashed),
        st.text("ab", min_size=1, max_size=3),
        st.sampled_from([0.0, 0.5]),
        st.sampled_from("tu"),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=20)
@given(any_records, any_rules)
def test_counts_add_up_and_filtering_what_was_kept_keeps_all_of_it(tmp_path_factory, given, rules):
    folder = tmp_path_factory.mktemp("filter")
    made = [record(str(i), a, e, task=t, crashed=c) for i, (a, e, t, c) in enumerate(given)]
    first = filter_store(store_of(folder / "in", *made), folder / "out", rules)
    assert first.kept + sum(number for _, number in first.dropped) == len(made)
    if first.kept:
        again = filter_store(first.store, folder / "again", rules)
        assert ids(again.store) == ids(first.store)


def test_a_new_store_is_read_by_its_folder_alone_whatever_else_lies_in_it(four, tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    filter_store(four, tmp_path / "out", ["outcome=played"])
    assert {path.name[:5] for path in (tmp_path / "out").iterdir()} == {"part-", "_drop", "_step"}
    assert pandas.read_parquet(tmp_path / "out").id.tolist() == ["solved", "lost", "unknown"]


def test_the_same_filter_is_not_run_again_and_says_the_same(four, tmp_path, monkeypatch):
    first = filter_store(four, tmp_path / "out", ["cap=1"])
    monkeypatch.setattr(TrajectoryStore, "records", lambda store, query=None: pytest.fail("read again"))
    again = filter_store(four, tmp_path / "out", ["cap=1"])
    assert (again.kept, again.dropped) == (first.kept, first.dropped)


def test_another_filter_never_writes_over_a_store(four, tmp_path):
    filter_store(four, tmp_path / "out", ["cap=1"])
    with pytest.raises(ConfigurationError, match=r"out was made by another step \(step: .*cap=1.*cap=2"):
        filter_store(four, tmp_path / "out", ["cap=2"])
    four.append([record("more")])
    with pytest.raises(ConfigurationError, match=r"out was made by another step \(of: "):
        filter_store(four, tmp_path / "out", ["cap=1"])
    with pytest.raises(ConfigurationError, match="exists, and no step made it"):
        filter_store(four, four.folder, ["cap=1"])


def test_a_drop_whose_reason_holds_half_a_surrogate_pair_is_noted(tmp_path):
    rule = "annotation=\ud83d>=1"
    done = filter_store(store_of(tmp_path / "s", record("a")), tmp_path / "out", [rule])
    assert done.dropped == ((rule, 1),)
    (line,) = (tmp_path / "out" / DROPPED_FILE).read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["rule"] == rule


def test_a_filter_of_parts_with_other_content_under_the_same_names_is_another_one(four, tmp_path):
    filter_store(four, tmp_path / "out", ["cap=1"])
    names = [part.name for part in four.parts()]
    for part in four.parts():
        part.unlink()
    given = [record("solved", "abc"), record("lost"), record("unknown"), record("crashed", crashed=True)]
    changed = store_of(four.folder, *given)
    assert [part.name for part in changed.parts()] == names
    with pytest.raises(ConfigurationError, match=r"out was made by another step \(of: "):
        filter_store(changed, tmp_path / "out", ["cap=1"])


def test_a_filter_by_a_file_that_has_changed_is_another_one(four, tmp_path):
    file = tmp_path / "test.jsonl"
    file.write_text(Task("test", "maze").to_json() + "\n")
    filter_store(four, tmp_path / "out", [f"contamination={file}"])
    assert filter_store(four, tmp_path / "out", [f"contamination={file}"]).kept == 3
    file.write_text(Task("test", "maze", seed=9).to_json() + "\n")
    with pytest.raises(ConfigurationError, match=r"out was made by another step \(step: "):
        filter_store(four, tmp_path / "out", [f"contamination={file}"])


def test_a_filter_that_was_stopped_leaves_nothing_and_is_run_from_the_start(four, tmp_path, monkeypatch):
    whole = TrajectoryStore.rows

    def stops(store, query=None):
        yield next(whole(store, query))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TrajectoryStore, "rows", stops)
        with pytest.raises(KeyboardInterrupt):
            filter_store(four, tmp_path / "out", ["cap=1"])
    assert [path.name for path in tmp_path.iterdir()] == ["four"]
    assert filter_store(four, tmp_path / "out", ["cap=1"]).kept == 3


def test_what_a_killed_step_left_is_removed_and_that_of_a_living_one_is_not(four, tmp_path, monkeypatch):
    dead, living = tmp_path / ".out.111", tmp_path / f".out.{os.getppid()}"
    dead.mkdir()
    living.mkdir()
    lives = deriving._lives
    monkeypatch.setattr(deriving, "_lives", lambda pid: pid != 111 and lives(pid))
    filter_store(four, tmp_path / "out", ["cap=1"])
    assert not dead.exists()
    assert living.exists()


def test_a_filter_needs_rules_and_each_once(four, tmp_path):
    with pytest.raises(ConfigurationError, match="a filter needs at least one rule"):
        filter_store(four, tmp_path / "out", [])
    with pytest.raises(ConfigurationError, match="the rule 'cap=1' stands 2 times"):
        filter_store(four, tmp_path / "out", ["cap=1", "cap=1"])


# Rules that compare


def scored(id: str, earned: float, task: str = "t", **options) -> Record:
    return record(id, earned=earned, task=task, **options)


def test_the_best_of_each_task_are_kept_wherever_they_stand(tmp_path):
    # task t: 3 2 2 1, the two best are the 3 and the first 2; task u has no more than one
    given = [scored("1", 1.0), scored("2", 2.0), scored("2 again", 2.0), scored("3", 3.0), scored("u", 0.0, "u")]
    store = store_of(tmp_path / "s", *given)
    assert reasons(store, "best=2:return") == {
        "1": "return 1 is not among the best 2 of this task",
        "2 again": "return 2 is not among the best 2 of this task",
    }
    assert set(reasons(store, "best=1:-return")) == {"2", "2 again", "3"}
    assert ids(filter_store(store, tmp_path / "out", ["best=1:return"]).store) == ["3", "u"]


def test_the_best_are_those_of_what_the_rules_before_keep(tmp_path):
    # "lost" earned most, and was not solved; of the two that were, the shorter is the better
    given = [
        scored("lost", 9.0, success=False), scored("long", 1.0, actions="abc"), scored("short", 1.0, actions="d"),
    ]  # fmt: skip
    store = store_of(tmp_path / "s", *given)
    done = filter_store(store, tmp_path / "out", ["outcome=success", "best=1:-turns", "cap=1"])
    assert ids(done.store) == ["short"]
    assert done.dropped == (("outcome=success", 1), ("best=1:-turns", 1), ("cap=1", 0))
    other = filter_store(store, tmp_path / "other", ["best=1:return", "best=1:-turns"])
    assert ids(other.store) == ["lost"]


def test_the_best_by_an_annotation_lack_those_without_one(tmp_path):
    given = [
        scored("high", 0.0, annotations={"judge": 0.9}),
        scored("low", 0.0, annotations={"judge": -0.2}),
        scored("none", 9.0),
        scored("text", 9.0, annotations={"judge": "good"}),
    ]
    store = store_of(tmp_path / "s", *given)
    assert reasons(store, "best=1:judge") == {
        "low": "judge -0.2 is not among the best 1 of this task",
        "none": "judge is missing or no number",
        "text": "judge is missing or no number",
    }


def test_a_balance_gives_every_environment_or_task_as_many_as_the_rarest_has(tmp_path):
    given = [
        *(record(f"m{number}", environment="maze", task=f"t{number % 2}") for number in range(3)),
        record("s0", task="t0"), record("s1", task="t0"),
    ]  # fmt: skip
    store = store_of(tmp_path / "s", *given)
    assert reasons(store, "balance=environment") == {"m2": "this environment has 2 already, as many as the rarest"}
    # tasks: maze t0 two, maze t1 one, stairs t0 two
    assert set(reasons(store, "balance=task")) == {"m2", "s1"}
    done = filter_store(store, tmp_path / "out", ["cap=1", "balance=environment"])
    assert ids(done.store) == ["m0", "s0"]


@settings(max_examples=20, deadline=None)
@given(
    returns=st.lists(st.tuples(st.sampled_from("ab"), st.integers(-3, 3)), min_size=1, max_size=12),
    most=st.integers(1, 4),
)
def test_the_best_are_as_good_as_a_sorted_list_says(tmp_path_factory, returns, most):
    given = [scored(str(number), float(earned), task) for number, (task, earned) in enumerate(returns)]
    store = store_of(tmp_path_factory.mktemp("best") / "s", *given)
    dropped = reasons(store, f"best={most}:return")
    kept = [one for number, one in enumerate(returns) if str(number) not in dropped]
    for task in "ab":
        all_of = sorted((earned for name, earned in returns if name == task), reverse=True)
        assert sorted((earned for name, earned in kept if name == task), reverse=True) == all_of[:most]


def test_every_rule_is_known_by_how_it_is_written():
    assert all(kind.form.partition("=")[0] == name for name, kind in RULES.items())


# Annotations


def test_automatic_annotations_count_what_happened():
    # a a b b b: equal neighbours a-a, b-b, b-b; of the five actions the two a were not understood
    (found,) = annotated([record("r", "aabbb", 0.5, success=None, invalid="a", annotations={"judge": 3})])
    assert found.annotations == {
        "judge": 3,
        "success": None,
        "return": 0.5,
        "turns": 5,
        "tokens": None,
        "invalid_actions": 2,
        "repetitions": 3,
        "tool_errors": None,
    }


def test_tokens_are_those_of_all_replies_or_unknown():
    def sampled(*counts: int | None) -> Record:
        made = record("r")
        tokens = [None if count is None else SampledTokens((7,) * count, (0.0,) * count) for count in counts]
        turns = tuple(Turn(Reply(assistant("a"), True, one), (), 0.0) for one in tokens)
        return Record("r", Trajectory(Task("t", "maze"), (), turns, StopReason.TERMINATED), made.provenance)

    found = annotated([sampled(3, 2), sampled(3, None), sampled(0), sampled()], ["tokens"])
    assert [one.annotations["tokens"] for one in found] == [5, None, 0, 0]


def test_an_annotated_store_has_the_same_records_and_is_made_once(tmp_path):
    store = store_of(tmp_path / "in", record("a", "ab"), record("b", "aa", annotations={"judge": 3}))
    done = annotate_store(store, tmp_path / "out", ["repetitions"])
    assert [(one.id, one.annotations) for one in done.store.records()] == [
        ("a", {"repetitions": 0}),
        ("b", {"judge": 3, "repetitions": 1}),
    ]
    assert [one.trajectory for one in done.store.records()] == [one.trajectory for one in store.records()]
    assert not done.done_before
    assert annotate_store(store, tmp_path / "out", ["repetitions"]).done_before


def test_tool_errors_are_those_that_the_environment_tells_of():
    def calling(*told: dict) -> Record:
        turns = tuple(Turn(Reply(assistant("a")), (), 0.0, info=info) for info in told)
        return Record("r", Trajectory(Task("t", "maze"), (), turns, StopReason.TERMINATED), record("r").provenance)

    found = annotated([calling({"tool_errors": 2}, {}, {"tool_errors": 1}), calling({"tool_errors": 0}), calling({})])
    assert [one.annotations["tool_errors"] for one in found] == [3, 0, None]


def test_efficiency_is_the_experts_turns_by_those_of_a_solved_episode_and_the_expert_plays_a_task_once(tmp_path):
    # stairs of height 2: the expert needs two turns
    Stairs.played.clear()
    store = store_of(
        tmp_path / "in",
        record("quick", "ab"),
        record("slow", "abcd"),
        asked_otherwise(record("asked otherwise", "abc", task="q")),
        record("lost", "ab", success=False),
        record("nowhere", "ab", environment="webshop"),
        record("broken", "ab", task="b", breaks=True),
    )
    done = annotate_store(store, tmp_path / "out", ["efficiency"])
    found = {one.id: one.annotations["efficiency"] for one in done.store.records()}
    known = {"quick": 1.0, "slow": 0.5, "asked otherwise": pytest.approx(2 / 3)}
    assert found == {**known, "lost": None, "nowhere": None, "broken": None}
    assert sorted(Stairs.played) == ["b", "q", "t"]
    assert annotate_store(store, tmp_path / "out", ["efficiency"]).done_before
    assert len(Stairs.played) == 3


def test_an_instance_that_broke_the_experts_episode_does_not_get_the_next(monkeypatch):
    made = []
    monkeypatch.setattr(NanReward, "__init__", lambda self: made.append(self))
    monkeypatch.setattr(efficiency, "CONCURRENCY", 1)
    assert list(efficiency.turns_of_experts(tasks_for(NanReward, 2)).values()) == [None, None]
    assert len(made) == 2


def test_an_unknown_annotation_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="automatic annotations has no 'turn'; did you mean 'turns'"):
        annotate_store(store_of(tmp_path / "in", record("a")), tmp_path / "out", ["turn"])
    assert not (tmp_path / "out").exists()
