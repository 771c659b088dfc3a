"""The collapse watch: what it measures, how long it waits, and what it does."""

from __future__ import annotations

import json
import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.errors import ConfigurationError
from verl_ext.watch import CollapseWatch, TrainingCollapsed, Watch
from verl_ext.watch_figures import Session, flat_groups, repeated, watched

UNBOUNDED = dict.fromkeys(["max_flat_groups", "max_repeated", "max_turn_drift", "max_logprob_gap"])


def watch_of(**settings: object) -> CollapseWatch:
    return CollapseWatch(Watch(**{**UNBOUNDED, **settings}))


def step(turns: int = 4) -> list[Session]:
    """Healthy: two groups with variance, no reply twice."""
    return [Session(group, reward, turns, f"{group}{reward}") for group in "ab" for reward in (0.0, 1.0)]


def fed(watch: CollapseWatch, entropies: list[float | None]) -> list[bool]:
    """What the watch says of steps with these entropies: to go back or not."""
    return [watch.observe(step(), entropy, None).rollback for entropy in entropies]


def test_the_figures_by_hand():
    # group  rewards      said         flat    a sibling's
    # a      1, 1, 1      x, x, y      yes     2
    # b      0, 1         x, x         no      2
    # c      0            z            yes     0   (one is left; x of another group is no sibling)
    sessions = [Session("a", 1.0, 2, "x"), Session("a", 1.0, 2, "x"), Session("a", 1.0, 2, "y")]
    sessions += [Session("b", 0.0, 3, "x"), Session("b", 1.0, 3, "x"), Session("c", 0.0, 6, "z")]
    assert flat_groups(sessions) == pytest.approx(2 / 3)
    assert repeated(sessions) == pytest.approx(4 / 6)
    metrics = watch_of().observe(sessions, 0.7, 0.01).metrics
    assert metrics == pytest.approx(
        {
            "watch/flat_groups": 2 / 3,
            "watch/repeated": 4 / 6,
            "watch/turn_drift": 0.0,
            "watch/entropy": 0.7,
            "watch/logprob_gap": 0.01,
            "watch/longest_streak": 0,
        }
    )


def test_rewards_that_differ_by_rounding_are_equal():
    assert flat_groups([Session("a", 0.3, 1, "x"), Session("a", 0.1 + 0.2, 1, "y")]) == 1


def test_the_drift_of_turns_by_hand():
    # turns   usual before     drift              usual after: 0.95 usual + 0.05 turns
    # 4       -                0                  4
    # 8       4                8/4 - 1 = 1        4.2
    # 2.1     4.2              4.2/2.1 - 1 = 1    4.095
    watch = watch_of()
    drifts = []
    for turns in (4, 8, 2.1):
        drifts.append(watch.observe(step(turns), None, None).metrics["watch/turn_drift"])
    assert drifts == pytest.approx([0.0, 1.0, 1.0])
    assert watch.state_dict()["turns"] == pytest.approx(4.095)


def test_what_a_step_does_not_give_is_not_measured_and_leaves_the_streak():
    watch = watch_of(min_entropy=0.5, patience=2, action="rollback")
    assert fed(watch, [0.1, None, None, 0.1]) == [False, False, False, True]
    assert "watch/entropy" not in watch.observe(step(), None, None).metrics


def test_only_steps_in_a_row_count():
    watch = watch_of(min_entropy=0.5, patience=3, action="rollback", rollbacks=9)
    #               1    2        1    2    3 -> back   1    2    3 -> back
    assert fed(watch, [0.1, 0.1, 0.6, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]) == [
        *(False, False, False, False, False, True),
        *(False, False, True),
    ]


def test_a_value_at_its_bound_is_within():
    watch = watch_of(min_entropy=0.5, max_entropy=0.7, patience=1, action="stop")
    assert fed(watch, [0.5, 0.7]) == [False, False]
    with pytest.raises(TrainingCollapsed, match="entropy was above its bound of 0.7"):
        fed(watch, [0.71])


@pytest.mark.parametrize(
    ("setting", "sessions", "entropy", "gap"),
    [
        ({"max_flat_groups": 0.5}, [Session("a", 1.0, 4, "x"), Session("a", 1.0, 4, "y")], None, None),
        ({"max_repeated": 0.5}, [Session("a", 0.0, 4, "x"), Session("a", 1.0, 4, "x")], None, None),
        ({"max_turn_drift": 0.5}, [Session("a", 0.0, 9, "x"), Session("a", 1.0, 9, "y")], None, None),
        ({"min_entropy": 0.5}, step(), 0.4, None),
        ({"max_entropy": 2.0}, step(), 2.1, None),
        ({"max_logprob_gap": 0.1}, step(), None, 0.2),
        ({"max_logprob_gap": 0.1}, step(), None, math.nan),
    ],
)
def test_every_bound_stops_the_run_when_it_is_passed_and_none_does_before(setting, sessions, entropy, gap):
    watch = watch_of(**setting, patience=1, action="stop")
    watch.observe(step(), 1.0, 0.05)
    with pytest.raises(
        TrainingCollapsed, match=f"its bound of {next(iter(setting.values())):g} .watch.{next(iter(setting))}"
    ):
        watch.observe(sessions, entropy, gap)


def test_without_a_bound_nothing_is_ever_wrong():
    watch = watch_of(patience=1, action="stop")
    flat = [Session("a", 1.0, 4, "x"), Session("a", 1.0, 4, "x")]
    for _ in range(3):
        assert not watch.observe(flat, math.nan, math.inf).rollback


def test_the_report_names_figure_bound_steps_and_last_values():
    watch = watch_of(min_entropy=0.5, patience=3, action="stop")
    with pytest.raises(TrainingCollapsed) as error:
        fed(watch, [0.9, 0.6, 0.3, 0.2, 0.12345])
    assert str(error.value) == (
        "entropy was below its bound of 0.5 (watch.min_entropy) for 3 steps in a row; "
        "its last values: 0.9, 0.6, 0.3, 0.2, 0.1235"
    )


def test_a_warning_is_given_once_a_streak(caplog):
    watch = watch_of(min_entropy=0.5, patience=2)
    with caplog.at_level(logging.WARNING):
        assert not any(fed(watch, [0.1, 0.1, 0.1, 0.1, 0.9, 0.1, 0.1, 0.1]))
    assert [record.message.partition(":")[0] for record in caplog.records] == ["the training may be collapsing"] * 2


def test_after_its_last_rollback_a_run_stops():
    watch = watch_of(min_entropy=0.5, patience=1, action="rollback", rollbacks=2)
    assert fed(watch, [0.1, 0.9, 0.1]) == [True, False, True]
    with pytest.raises(TrainingCollapsed, match="after 2 rollbacks: entropy was below"):
        fed(watch, [0.1])


def test_going_back_to_a_checkpoint_does_not_give_its_rollbacks_back():
    watch = watch_of(min_entropy=0.5, patience=1, action="rollback", rollbacks=1)
    checkpoint = watch.state_dict()
    assert fed(watch, [0.1]) == [True]
    watch.load_state_dict(checkpoint)
    with pytest.raises(TrainingCollapsed, match="after 1 rollbacks"):
        fed(watch, [0.1])


@given(st.lists(st.sampled_from([0.1, 0.9, None]), max_size=12), st.integers(0, 12), st.integers(1, 4))
def test_a_resumed_watch_goes_on_as_if_it_had_not_been_stopped(entropies, before, patience):
    settings = {"min_entropy": 0.5, "patience": patience, "action": "rollback", "rollbacks": 99}
    watch, resumed = watch_of(**settings), watch_of(**settings)
    fed(watch, entropies[:before])
    resumed.load_state_dict(json.loads(json.dumps(watch.state_dict())))
    assert fed(resumed, entropies[before:]) == fed(watch, entropies[before:])
    assert resumed.state_dict() == watch.state_dict()


def test_a_stricter_action_after_a_resume_acts_on_the_streak_that_was_there():
    warned = watch_of(min_entropy=0.5, patience=2)
    fed(warned, [0.1] * 6)
    resumed = watch_of(min_entropy=0.5, patience=2, action="stop")
    resumed.load_state_dict(warned.state_dict())
    with pytest.raises(TrainingCollapsed, match="for 7 steps in a row"):
        fed(resumed, [0.1])


def test_a_session_is_counted_once_however_many_rows_it_has():
    facts = {"reward_parts": {"outcome": 1.0, "format": -0.25}, "turns": 3}
    rows = {"u-1_0_1": {**facts, "said": "x"}, "u-1_0_0": None, "u-1_1_0": {**facts, "said": "y"}}
    assert watched([*rows], [*rows.values()]) == [Session("u-1", 0.75, 3, "x"), Session("u-1", 0.75, 3, "y")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"action": "halt"}, "watch.action must be one of warn, stop, rollback; given: 'halt'"),
        ({"patience": 0}, "watch.patience must be a whole number of at least 1; given: 0"),
        ({"patience": 1.5}, "watch.patience must be a whole number of at least 1; given: 1.5"),
        ({"rollbacks": -1}, "watch.rollbacks must be a whole number of at least 0; given: -1"),
        ({"max_repeated": -0.1}, "watch.max_repeated must be a number from 0, or null; given: -0.1"),
        ({"max_flat_groups": "all"}, "watch.max_flat_groups must be a number from 0, or null; given: 'all'"),
        ({"max_logprob_gap": math.nan}, "watch.max_logprob_gap must be a number from 0, or null; given: nan"),
        ({"min_entropy": 2, "max_entropy": 1}, "watch.min_entropy must be below max_entropy; given: 2 and 1"),
    ],
)
def test_settings_that_can_not_work_are_refused(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        Watch(**settings)
