"""Agreement of a judge with the environment's outcome, by hand and against scipy."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from agentgym_rl.errors import DataError
from agentgym_rl.judge.agreement import agreement, kappa

rows = st.lists(st.tuples(st.integers(0, 10), st.booleans(), st.sampled_from("abc")), min_size=1, max_size=30)


def agreement_of(rows):
    scores, outcomes, tasks = zip(*rows, strict=True)
    return agreement([score / 10 for score in scores], outcomes, tasks)


def test_agreement_by_hand():
    # score    0.9   0.5   0.4   0.5   0.1
    # says     yes   yes   no    yes   no
    # outcome  yes   yes   yes   no    no     equal: 1, 2, 5 -> 3/5
    # kappa: both yes by chance 3/5 * 3/5, both no 2/5 * 2/5: p_e = 13/25; (3/5 - 13/25) / (12/25) = 1/6
    # solved above unsolved: 0.9 > 0.5, 0.1; 0.5 = 0.5, > 0.1; 0.4 < 0.5, > 0.1: 2 + 1.5 + 1 = 4.5 of 6
    # within tasks: a has 0.9 and 0.5 against 0.5 (1.5 of 2), b has 0.4 against 0.1 (1 of 1): 2.5 of 3
    scores, outcomes, tasks = [0.9, 0.5, 0.4, 0.5, 0.1], [True, True, True, False, False], "aabab"
    found = agreement(scores, outcomes, tasks)
    assert found.size == 5
    assert found[1:] == pytest.approx((3 / 5, 1 / 6, 4.5 / 6, 2.5 / 3))


def test_scores_that_only_order_the_attempts_of_a_task_have_their_agreement_within_tasks():
    # a: 0.9 solved, 0.8 not; b: 0.2 solved, 0.1 not. Within tasks 2 of 2; over all 0.9 beats both, 0.2 one: 3 of 4.
    found = agreement([0.9, 0.8, 0.2, 0.1], [True, False, True, False], "aabb")
    assert (found.auc, found.auc_within_tasks) == (0.75, 1.0)


@pytest.mark.parametrize(
    ("outcomes", "scores", "expected"),
    [
        ([], [], (0, None, None, None, None)),
        ([True, True], [0.9, 0.9], (2, 1.0, None, None, None)),
        ([True, True], [0.9, 0.1], (2, 0.5, 0.0, None, None)),
        ([False, False], [0.1, 0.1], (2, 1.0, None, None, None)),
        ([True, False], [0.7, 0.7], (2, 0.5, 0.0, 0.5, 0.5)),
    ],
)
def test_what_is_not_defined_is_none(outcomes, scores, expected):
    assert agreement(scores, outcomes, ["a"] * len(scores)) == expected


def test_one_outcome_a_task_says_nothing_about_pairs_within_tasks():
    assert agreement([0.9, 0.1], [True, False], "ab").auc_within_tasks is None


def test_the_threshold_itself_counts_as_solved():
    assert agreement([0.5, 0.49], [True, False], "aa").accuracy == 1.0
    assert agreement([0.5, 0.49], [True, False], "aa", threshold=0.6).accuracy == 0.5


@given(rows)
def test_the_area_is_that_of_scipys_rank_test(rows):
    solved = [score / 10 for score, outcome, _ in rows if outcome]
    unsolved = [score / 10 for score, outcome, _ in rows if not outcome]
    assume(solved and unsolved)
    expected = stats.mannwhitneyu(solved, unsolved).statistic / (len(solved) * len(unsolved))
    assert math.isclose(agreement_of(rows).auc, expected)


@given(rows)
def test_one_task_alone_has_the_same_area_within_as_over_all(rows):
    found = agreement_of([(score, outcome, "a") for score, outcome, _ in rows])
    assert found.auc == found.auc_within_tasks


@given(rows)
def test_turning_all_scores_round_turns_the_area_round(rows):
    found = agreement_of(rows)
    turned = agreement_of([(10 - score, outcome, task) for score, outcome, task in rows])
    assume(found.auc is not None)
    assert math.isclose(found.auc + turned.auc, 1)


@given(st.lists(st.booleans(), min_size=1))
def test_kappa_is_1_with_itself_unless_chance_would_do(outcomes):
    expected = None if len(set(outcomes)) == 1 else 1.0
    assert kappa(outcomes, outcomes) == (expected if expected is None else pytest.approx(expected))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1))
def test_kappa_is_symmetric_and_at_most_1(pairs):
    first, second = zip(*pairs, strict=True)
    found = kappa(first, second)
    assert found == kappa(second, first)
    assert found is None or found <= 1 + 1e-9


def test_lists_of_different_lengths_are_an_error():
    with pytest.raises(DataError, match="1 scores, 2 outcomes and 1 tasks"):
        agreement([0.5], [True, False], "a")
