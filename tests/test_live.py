"""The live view of a training: what it draws of a step, of all steps, and of the time that is left."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from agentgym_rl.viewer.curves import GAP, HEIGHTS, curves_table, sparkline
from agentgym_rl.viewer.live import PACE_STEPS, LiveView, shown
from agentgym_rl.viewer.step import failures_text, step_line, step_table

STEP = {
    "episode/babyai/success": 0.845,
    "episode/babyai/turns/mean": 5.07,
    "episode/babyai/turns/max": 8,
    "episode/babyai/policy_seconds_per_turn": 0.189,
    "episode/babyai/environment_seconds_per_turn": 0.0592,
    "episode/babyai/idle_share": 0.108,
    "episode/babyai/turn_seconds/p50": 0.231,
    "episode/babyai/turn_seconds/p90": 0.398,
    "episode/babyai/turn_seconds/p99": 0.446,
    "episode/babyai/pool/running_max": 30,
    "episode/babyai/pool/leased_max": 32,
    "episode/babyai/pool/waiting_max": 26,
    "episode/babyai/pool/killed": 2,
    "episode/failed": 3,
    "episode/failed/environment_timed_out": 2,
    "episode/failed/environment_crashed": 1,
    "episode/retried": 4,
    "critic/score/mean": 0.812,
    "timing_s/step": 9.52,
}


def text_of(renderable: RenderableType, width: int = 120) -> list[str]:
    """The lines that are shown, with single spaces."""
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(renderable)
    return [" ".join(line.split()) for line in console.export_text().splitlines()]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


# A step


def test_an_environment_is_one_line_of_a_step() -> None:
    assert text_of(step_table(12, STEP)) == [
        "Step 12",
        "turns s a turn s a turn pool run/lent",
        "environment success mean/max policy/env. idle p50/p90/p99 /wait/killed",
        "─" * 79,
        "babyai 84.5% 5.07/8 0.19/0.059 11% 0.23/0.4/0.45 30/32/26/2",
    ]


def test_a_terminal_of_80_columns_has_room_for_all_but_the_longest_names() -> None:
    named = {name.replace("babyai", "a-name-longer-than-a-column"): value for name, value in STEP.items()}
    lines = text_of(step_table(12, STEP | named), width=80)
    assert lines[-1] == "babyai 84.5% 5.07/8 0.19/0.059 11% 0.23/0.4/0.45 30/32/26/2"
    assert lines[4:7] == [
        "a-name-longe 84.5% 5.07/8 0.19/0.059 11% 0.23/0.4/0.45 30/32/26/2",
        "r-than-a-col",
        "umn",
    ]


def test_environments_come_in_the_order_of_their_names_and_what_is_not_known_is_a_dash() -> None:
    other = {"episode/a/b/turns/mean": 2.0}
    assert text_of(step_table(1, {**STEP, **other}))[4:] == [
        "a/b - 2/- -/- - -/-/- -/-/-/-",
        "babyai 84.5% 5.07/8 0.19/0.059 11% 0.23/0.4/0.45 30/32/26/2",
    ]


def test_a_reward_that_is_called_like_another_metric_is_no_environment() -> None:
    assert len(text_of(step_table(1, {**STEP, "episode/babyai/reward/turns": 1.0}))) == 5


def test_an_environments_name_is_no_markup() -> None:
    assert text_of(step_table(1, {"episode/[red]/turns/mean": 2.0}))[-1].startswith("[red] - 2/-")


def test_failures_are_told_by_their_cause() -> None:
    told = failures_text(STEP)
    assert told.plain == "failed 3 (environment_crashed 1, environment_timed_out 2), retried 4"
    assert told.style == "red"


def test_a_step_without_failures_says_so_in_no_colour() -> None:
    told = failures_text({"episode/failed": 0, "episode/retried": 0})
    assert (told.plain, told.style) == ("failed 0, retried 0", "")


def test_a_step_is_one_line_of_a_log() -> None:
    assert step_line(12, {**STEP, "x": 1}) == (
        "step   12  success 84.5%  reward 0.812  turns 5.1  failed 3  seconds 9.5"
    )


# Curves


def test_a_curve_reaches_from_the_lowest_value_at_the_bottom_to_the_highest_at_the_top() -> None:
    # 0, 1, 3, 7 of 7: as many eighths above the lowest
    assert sparkline([10, 11, 13, 17], 40) == "▁▂▄█"


def test_equal_values_are_a_flat_line_and_none_is_nothing() -> None:
    assert sparkline([0.5, 0.5], 40) == "▁▁"
    assert sparkline([], 40) == ""


def test_more_values_than_there_is_room_for_are_drawn_as_means_of_neighbours() -> None:
    # in threes: 0, 7, and the 3.5 that is left: half way, rounded to even, is the fifth of eight heights
    assert sparkline([0, 0, 0, 6, 7, 8, 3.5], 3) == "▁█▅"


def test_a_step_without_a_number_is_a_gap_and_hides_no_neighbour() -> None:
    assert sparkline([math.nan, 0, math.nan, math.inf, 1], 40) == f"{GAP}▁{GAP}{GAP}█"
    assert sparkline([0, 0, math.nan, 1], 2) == "▁█"


NUMBERS = st.floats(-1e300, 1e300) | st.sampled_from([math.nan, math.inf, -math.inf])


@given(st.lists(NUMBERS, max_size=200), st.integers(1, 60))
def test_a_curve_fits_its_width_and_touches_top_and_bottom_if_it_has_two_values(values, width) -> None:
    drawn = sparkline(values, width)
    assert len(drawn) <= min(width, len(values))
    assert (drawn == "") == (not values)
    heights = set(drawn) - {GAP}
    assert heights <= set(HEIGHTS)
    assert not heights or HEIGHTS[0] in heights
    assert len(heights) < 2 or HEIGHTS[-1] in heights


def test_each_curve_has_its_name_its_last_value_and_its_span() -> None:
    validation = {"val-core/babyai/acc/mean@1": 0.5}
    sft = {"train/loss": 2.0}
    steps = {0: {**validation}, 1: STEP, 2: {**STEP, "episode/babyai/success": 0.9, **validation}, 3: sft}
    assert text_of(curves_table(steps)) == [
        "success babyai ▁█ 90.0% 84.5% to 90.0%",
        "validation success babyai ▁▁ 50.0% 50.0% to 50.0%",
        "reward ▁▁ 0.812 0.812 to 0.812",
        "loss ▁ 2.000 2.000 to 2.000",
        "seconds a step ▁▁ 9.5 9.5 to 9.5",
    ]


def test_a_curve_of_nothing_but_gaps_has_no_span() -> None:
    assert text_of(curves_table({1: {"train/loss": math.nan}})) == ["loss nan"]


# The view


def test_before_the_first_step_the_view_waits_for_it_and_shows_what_earlier_runs_did() -> None:
    clock = Clock()
    view = LiveView(60, {1: {"train/loss": 2.0}}, clock)
    clock.now += 65
    lines = text_of(view)
    assert lines[0].startswith("step 0/60")
    assert lines[0].endswith("0:01:05 passed ? left")
    assert lines[1:] == ["waiting for the first step", "loss ▁ 2.000 2.000 to 2.000"]


def test_the_view_shows_the_last_step_that_was_played_and_its_failures() -> None:
    view = LiveView(60, {}, Clock())
    view.add(1, {**STEP, "episode/failed/policy_raised": 9})
    view.add(2, STEP)
    view.add(3, {"val-core/babyai/acc/mean@1": 0.5})
    lines = text_of(view)
    assert lines[0].startswith("step 3/60")
    assert "Step 2" in lines
    assert "failed 3 (environment_crashed 1, environment_timed_out 2), retried 4" in lines
    assert "success babyai ▁▁ 84.5% 84.5% to 84.5%" in lines


def test_a_training_without_episodes_shows_a_line_instead_of_the_table() -> None:
    view = LiveView(60, {}, Clock())
    view.add(7, {"train/loss": 0.5})
    assert text_of(view)[1:4] == ["", "step 7 loss 0.500", ""]


def test_metrics_of_a_step_may_come_in_parts() -> None:
    view = LiveView(60, {}, Clock())
    for part in ({"train/loss": 0.5}, {"val/loss": 0.7}):
        view.add(7, part)
    assert "step 7 loss 0.500 validation loss 0.700" in text_of(view)


def test_a_step_that_only_an_earlier_run_saw_part_of_is_shown_without_that_part() -> None:
    view = LiveView(60, {3: {"val/loss": 9.0}}, Clock())
    view.add(3, {"train/loss": 1.0})
    assert not any("validation" in line for line in text_of(view))


def test_what_earlier_runs_said_of_steps_that_are_run_again_does_not_count() -> None:
    view = LiveView(60, {step: {"train/loss": 10.0 - step} for step in range(1, 6)}, Clock())
    view.add(3, {"train/loss": 1.0})
    # 9 and 8 of the first run, then 1: 7/8 and all of the way up
    assert "loss █▇▁ 1.000 1.000 to 9.000" in text_of(view)


def test_the_time_left_is_told_at_the_pace_of_the_last_steps_and_goes_down_between_them() -> None:
    clock = Clock()
    view = LiveView(10, {}, clock)
    assert view.seconds_left() is None
    for step, seconds in ((4, 0), (5, 30), (6, 10)):
        clock.now += seconds
        view.add(step, {})
        assert (view.seconds_left() is None) == (step == 4)  # a pace takes two steps
    assert view.seconds_left() == 80  # four steps are left; the last two took 20 s each
    clock.now += 5
    view.add(6, {"in": 2.0})  # the second part of a step does not set its end
    assert view.seconds_left() == 75
    clock.now += 500
    assert view.seconds_left() == 0


def test_a_slow_start_is_forgotten_after_some_steps() -> None:
    clock = Clock()
    view = LiveView(1000, {}, clock)
    for step in range(PACE_STEPS + 2):
        clock.now += 500 if step == 1 else 2
        view.add(step, {})
    assert view.seconds_left() == 2 * (1000 - (PACE_STEPS + 1))


@pytest.mark.parametrize(("terminal", "kind"), [(False, "xterm"), (True, "dumb")])
def test_where_nothing_can_be_drawn_anew_each_step_is_a_line(monkeypatch, capsys, terminal: bool, kind: str) -> None:
    monkeypatch.setenv("TERM", kind)
    console = Console(force_terminal=terminal, width=120, color_system=None)
    with shown(console, 60, {1: {"train/loss": 9.0}}) as show:
        show(2, {"train/loss": 0.5})
        show(3, {"train/loss": 0.4})
    assert capsys.readouterr().out == "step    2  loss 0.500\nstep    3  loss 0.400\n"


def test_in_a_terminal_the_view_is_drawn_and_its_last_state_stays(monkeypatch, capsys) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with shown(Console(force_terminal=True, width=120), 60, {}) as show:
        show(2, STEP)
    seen: Any = capsys.readouterr().out
    assert "waiting for the first step" in seen
    last = seen[seen.rindex("step 2/60") :]
    assert "babyai" in last
    assert "retried 4" in last
