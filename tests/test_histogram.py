"""Histograms: every value is in one box, stacked by outcome, on the chart's own scale."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.viewer.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from agentgym_rl.viewer.histogram import histogram

FLOOR = HEIGHT - BOTTOM


def test_three_whole_numbers_have_a_bar_each_worked_by_hand():
    drawn = histogram("turns", {"solved": [1, 2, 2], "not solved": [2, 3], "failed": []})
    assert drawn.outcomes == ["solved", "not solved"]
    third = (WIDTH - RIGHT - LEFT) / 3
    high = FLOOR - TOP  # the highest bar, at 2, has 3, and so has the axis
    placed = [(box.outcome, box.x, round(box.height)) for box in drawn.boxes]
    assert placed == [
        ("solved", LEFT, round(high / 3)),
        ("solved", pytest.approx(LEFT + third, abs=0.01), round(2 * high / 3)),
        ("not solved", pytest.approx(LEFT + third, abs=0.01), round(high / 3)),
        ("not solved", pytest.approx(LEFT + 2 * third, abs=0.01), round(high / 3)),
    ]
    assert [tick.text for tick in drawn.y_ticks][-1] == "3"
    assert drawn.boxes[1].text == "solved: 2 from 1.5 to 2.5"
    assert drawn.boxes[2].y == pytest.approx(TOP)  # on top of the two that were solved


def test_a_number_that_is_the_same_everywhere_has_no_histogram():
    assert histogram("invalid", {"solved": [0, 0], "not solved": [0.0]}) is None
    assert histogram("nothing", {"solved": [], "failed": [math.nan, math.inf]}) is None


@pytest.mark.parametrize("values", [[1.7e18, 1.7e18 + 512], [10**15, 10**15 - 1], [-1e15, 1e15], [5e-324, 0]])
def test_numbers_at_the_edge_of_what_floats_tell_apart_have_boxes_of_some_width_or_none(values):
    drawn = histogram("x", {"solved": values})
    assert drawn is None or all(box.width > 0 for box in drawn.boxes)


numbers = st.floats(-1e6, 1e6) | st.integers(-50, 50)


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.lists(numbers, max_size=30), max_size=3))
def test_boxes_hold_every_value_once_and_stand_on_each_other(values):
    drawn = histogram("x", values)
    found = [value for given in values.values() for value in given]
    if drawn is None:
        assert not found or max(found) - min(found) <= 1e-12 * max(map(abs, found))
        return
    counted = Counter()
    for box in drawn.boxes:
        counted[box.outcome] += int(box.text.removeprefix(f"{box.outcome}: ").split()[0])
        assert LEFT - 0.01 <= box.x <= box.x + box.width <= WIDTH - RIGHT
        assert TOP - 0.01 <= box.y <= box.y + box.height <= FLOOR + 0.02
        below = [other.y for other in drawn.boxes if other.x == box.x and other.y > box.y]
        assert box.y + box.height == pytest.approx(min(below, default=FLOOR), abs=0.02)
    assert counted == {outcome: len(given) for outcome, given in values.items() if given}
