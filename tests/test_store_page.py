"""The page of a store: how its numbers are spread, and trajectories with where they come from."""

import typer
from doubles_store import record, store_of
from typer.testing import CliRunner

from agentgym_rl.commands.store import add_to
from agentgym_rl.data.sft_parquet import TRAINED
from agentgym_rl.data.store_query import Query
from agentgym_rl.viewer.store_page import histograms, write_store_page

ATTACK = "<script>alert('x')</script>"


def boxes(drawn):
    return {(box.outcome, box.text.partition(" from ")[2]) for box in drawn.boxes}


def test_return_turns_and_numbers_of_annotations_are_spread_by_outcome(tmp_path):
    store = store_of(
        tmp_path / "s",
        record("a", "ab", 1.0, annotations={"judge": 0.9, "said": "good", "flag": True, "odd": 10**400}),
        record("b", "abc", 0.0, success=False, annotations={"judge": 0.1, "flag": False, "odd": 1}),
        record("c", "abcd", 0.0, success=None, annotations={"judge": None}),
        record("d", "a", 0.0, crashed=True),
    )
    found = {drawn.name: drawn for drawn in histograms(store, Query())}
    assert list(found) == ["return", "turns", "judge"]  # text and flags are no numbers, and 10**400 no measurement
    assert boxes(found["turns"]) == {
        ("failed", "0.5 to 1.5"),
        ("solved", "1.5 to 2.5"),
        ("not solved", "2.5 to 3.5"),
        ("no verdict", "3.5 to 4.5"),
    }
    assert found["judge"].outcomes == ["solved", "not solved"]
    assert [drawn.name for drawn in histograms(store, Query(success=True))] == []  # one record: nothing is spread


def test_a_page_says_where_a_trajectory_comes_from_and_what_is_not_trained(tmp_path):
    made = record("child", "ab", annotations={"judge_reason": ATTACK, "half": "\ud83d", "source": "a name of ours"})
    made.trajectory.turns[0].info[TRAINED] = False
    page = tmp_path / "page.html"
    store = store_of(tmp_path / "s", made, record("other", "abc"), record("third", "abcd"))
    write_store_page(store, page, Query(), show=2)
    html = page.read_text()
    assert html.count("not trained") == 1
    assert html.count('class="card episode"') == 2
    assert "<td>child</td>" in html
    assert "&lt;script&gt;" in html
    assert "<script" not in html
    assert "<td>third</td>" not in html
    assert "<td>collect</td>" in html
    assert "<td>a name of ours</td>" in html
    assert "perturbation" not in html  # what a record does not know is not there


def test_the_command_writes_the_page_of_what_was_asked_for(tmp_path):
    store_of(tmp_path / "s", record("a", task="first"), record("b", "abc", task="second"))
    app = typer.Typer()
    app.command()(lambda: None)
    add_to(app)
    command = ["store", "--store", str(tmp_path / "s"), "--task", "second", "--html", str(tmp_path / "p.html")]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0
    assert "wrote" in result.stdout
    html = (tmp_path / "p.html").read_text()
    assert "<td>b</td>" in html
    assert "<td>a</td>" not in html
