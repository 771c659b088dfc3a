"""The report: one file that fetches nothing, escapes everything, and shows what it was given."""

import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.evaluation.result import EpisodeRow, Evaluation
from agentgym_rl.messages import Message, ToolCall, assistant, system, user
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn
from agentgym_rl.viewer.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Curve, Point, charts, ticks
from agentgym_rl.viewer.report import evaluation_lines, write_report

ATTACK = "<script>alert('x')</script>\"'&<img src=x onerror=alert(1)>"


def evaluation(*successes, environment="stairs"):
    return Evaluation(
        tuple(
            EpisodeRow(f"{environment}/{i}", 0, environment, s, float(bool(s)), 2, "terminated")
            for i, s in enumerate(successes)
        )
    )


def trajectory(text="up", **changes):
    turn = Turn(Reply(assistant(text, (ToolCall(text, {text: text}),))), (user(text),), 0.5, valid=False)
    kept = {"stop": StopReason.TERMINATED, "success": True, **changes}
    return Trajectory(Task(f"task {text}", "stairs"), (system(text), user(text)), (turn,), **kept)


def written(tmp_path, title="t", config=None, **parts):
    write_report(tmp_path / "r.html", title, config or {}, **parts)
    return (tmp_path / "r.html").read_text(encoding="utf-8")


class Page(HTMLParser):
    """Reads a page as a browser would, and checks that what is opened is closed."""

    VOID = ("meta", "br", "link", "img", "input")

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text, self._open = [], [], "", []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_whatever_a_model_or_environment_wrote_is_shown_as_text_and_never_run(tmp_path):
    failure = Failure("environment_raised", ATTACK, ATTACK)
    html = written(
        tmp_path,
        title=ATTACK,
        config={ATTACK: ATTACK},
        curves=[Curve(ATTACK, [Point(0, 0.5, 0.4, 0.6)], axis=ATTACK)],
        evaluations=[(ATTACK, evaluation(True)), ("second", evaluation(True, environment=ATTACK))],
        trajectories=[trajectory(ATTACK), trajectory(ATTACK, stop=StopReason.FAILED, success=None, failure=failure)],
    )
    page = Page(html)
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count(ATTACK) >= 15


def test_the_page_fetches_nothing(tmp_path):
    html = written(tmp_path, curves=[Curve("c", [Point(0, 1)])], evaluations=[("e", evaluation(True))])
    assert not re.search(r"""(src|href)\s*=|url\(|@import|https?://""", html)
    assert "default-src 'none'" in html


def test_parts_that_are_empty_are_left_out(tmp_path):
    page = Page(written(tmp_path, title="only a title"))
    assert "h2" not in page.tags
    assert page.tags.count("h1") == 1


def test_settings_curves_evaluations_and_trajectories_are_there(tmp_path):
    html = written(
        tmp_path,
        config={"group size": 8, "model": "tiny"},
        curves=[Curve("training", [Point(1, 0.2), Point(2, 0.4)])],
        evaluations=[("start", evaluation(False, False)), ("GRPO", evaluation(True, True))],
        trajectories=[trajectory()],
    )
    page = Page(html)
    assert re.findall(r"<h2>(.*?)</h2>", html) == ["Settings", "Learning curves", "Evaluations", "Trajectories"]
    for text in ("group size", "tiny", "training", "start", "GRPO", "100.0%", "+100.0", "not understood", "Stopped"):
        assert text in page.text


def test_a_failed_trajectory_says_who_failed(tmp_path):
    failed = trajectory(stop=StopReason.FAILED, success=None, failure=Failure("policy_timed_out", "too late", "stack"))
    text = Page(written(tmp_path, trajectories=[failed])).text
    assert re.search(r"failed\s+stairs", text)
    assert "policy_timed_out: too late" in re.sub(r"\s+", " ", text)


def test_a_trajectory_without_a_turn_can_be_shown(tmp_path):
    empty = Trajectory(Task("t", "stairs"), (), (), StopReason.FAILED, None, Failure("environment_raised", "no reset"))
    assert "0 turns" in Page(written(tmp_path, trajectories=[empty])).text


def test_tool_messages_are_shown(tmp_path):
    turn = Turn(Reply(assistant("look")), (Message("tool", "a door", tool_call_id="1"),), 0.0)
    shown = Trajectory(Task("t", "e"), (user("hi"),), (turn,), StopReason.MAX_TURNS, False)
    assert "a door" in Page(written(tmp_path, trajectories=[shown])).text


def test_the_gain_is_measured_against_the_first_line_on_the_same_tasks():
    first, second = evaluation(False, False, True, True), evaluation(True, True, True, False)
    lines = evaluation_lines([("start", first), ("tuned", second), ("elsewhere", evaluation(True, environment="x"))])
    assert [line.label for line in lines] == ["start", "tuned", "elsewhere"]
    assert lines[0].gain is None
    assert lines[1].gain.value == pytest.approx(0.25)
    assert lines[2].gain is None


def test_an_evaluation_of_several_environments_has_a_line_each_below_the_whole():
    both = Evaluation(evaluation(True, True).rows + evaluation(False, False, environment="maze").rows)
    lines = evaluation_lines([("start", both)])
    assert [(line.label, line.is_part, line.summary.success.value) for line in lines] == [
        ("start", False, 0.5),
        ("stairs", True, 1.0),
        ("maze", True, 0.0),
    ]


def test_an_evaluation_of_failures_only_is_undefined_not_zero(tmp_path):
    rows = (EpisodeRow("t", 0, "stairs", None, 0.0, 0, "failed", "environment_timed_out", "late"),)
    text = Page(written(tmp_path, evaluations=[("start", Evaluation(rows)), ("end", Evaluation(rows))])).text
    assert "undefined" in text
    assert "0.0%" not in text
    assert "environment timed out 1" in text


def test_points_are_placed_on_the_scale_of_the_ticks():
    curve = Curve("validation", [Point(0, 0.0, 0.0, 0.5), Point(10, 1.0, 0.5, 1.0)])
    (chart,) = charts([curve])
    assert [tick.text for tick in chart.y_ticks] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert [tick.text for tick in chart.x_ticks] == ["0", "2", "4", "6", "8", "10"]
    first, last = chart.lines[0].marks
    # Step 0 is the left end, step 10 the right one; 0 is the bottom and 1 the top of the plot.
    assert (first.x, first.y, last.x, last.y) == (LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, TOP)
    middle = (TOP + HEIGHT - BOTTOM) / 2
    assert (first.top, first.bottom) == (middle, HEIGHT - BOTTOM)
    assert (last.top, last.bottom) == (TOP, middle)
    assert last.text == "validation, step 10: 1 [0.5, 1]"


def test_a_long_line_without_intervals_has_no_marks_and_a_single_point_has_one():
    (chart,) = charts([Curve("line", [Point(1, 0.1), Point(2, 0.2)]), Curve("dot", [Point(1, 0.5)])])
    assert [len(line.marks) for line in chart.lines] == [0, 1]


def test_curves_share_a_chart_by_their_axis():
    point = [Point(1, 0.5)]
    found = charts([Curve("a", point), Curve("b", point, "mean reward"), Curve("c", point)])
    assert [(chart.axis, [line.name for line in chart.lines]) for chart in found] == [
        ("success rate", ["a", "c"]),
        ("mean reward", ["b"]),
    ]


def test_steps_without_a_number_are_gaps_and_an_empty_curve_is_left_out():
    nan = float("nan")
    found = charts(
        [Curve("a", [Point(1, 0.5), Point(2, nan), Point(3, 0.7)]), Curve("b", [Point(1, nan)]), Curve("c", [])]
    )
    assert [line.name for chart in found for line in chart.lines] == ["a"]
    assert len(found[0].lines[0].path.split()) == 2


@settings(max_examples=100, deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_round_and_enclose_the_range(low, width):
    found = ticks(low, low + width)
    assert found[0] <= low + width * 1e-6
    assert found[-1] >= low + width * (1 - 1e-6)
    assert 2 <= len(found) <= 9
    steps = {f"{b - a:.3e}" for a, b in pairwise(found)}
    assert all(step[0] in "125" or step.startswith("9.99") for step in steps)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**5), st.floats(-1e3, 1e3)), min_size=1, max_size=20))
def test_every_point_lies_inside_the_plot(pairs):
    (chart,) = charts([Curve("c", [Point(step, value, value, value) for step, value in pairs])])
    for mark in chart.lines[0].marks:
        assert LEFT - 0.01 <= mark.x <= WIDTH - RIGHT + 0.01
        assert TOP - 0.01 <= mark.y <= HEIGHT - BOTTOM + 0.01
