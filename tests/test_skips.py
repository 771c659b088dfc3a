"""No test is left out in silence: each skip gives a reason, and a run prints the reasons and its counts."""

import ast
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
REASON_FIRST = ("skip", "xfail")
"""Take it as their first argument as well."""
NAMES = ("skip", "importorskip", "skipif", "xfail")
TWO_TESTS = """
import pytest

def test_one(): ...

def test_other():
    pytest.importorskip("nowhere", reason="nowhere is not installed")
"""


def unexplained(source):
    """Lines of the skips in a source that have no reason."""
    return sorted(
        node.lineno
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Call) and _skips_without_reason(node)) or _is_bare_mark(node)
    )


def _skips_without_reason(call):
    name = getattr(call.func, "attr", "")
    if name not in NAMES or any(keyword.arg == "reason" for keyword in call.keywords):
        return False
    return not (name in REASON_FIRST and call.args)


def _is_bare_mark(node):
    """A decorator without a call: `@pytest.mark.skip`."""
    decorators = getattr(node, "decorator_list", [])
    return any(getattr(decorator, "attr", "") in NAMES for decorator in decorators)


def test_the_reader_finds_each_form_of_a_skip_without_a_reason():
    source = """
pytest.importorskip("a")
pytest.importorskip("a", reason="a is not installed")
pytest.skip()
pytest.skip("a is not installed")
on = pytest.mark.skipif(True)
off = pytest.mark.skipif(True, reason="needs a")

@pytest.mark.skip
def test_something(): ...
"""
    assert unexplained(source) == [2, 4, 6, 10]


def test_every_skip_gives_a_reason():
    found = {path.name: unexplained(path.read_text()) for path in sorted(FOLDER.glob("*.py"))}
    assert len(found) > 100
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_run_prints_the_reason_of_each_skip_and_ends_with_the_counts(tmp_path):
    (tmp_path / "pyproject.toml").write_text((FOLDER.parent / "pyproject.toml").read_text())
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_two.py").write_text(TWO_TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    *_, summary, counts = done.stdout.splitlines()
    assert summary.startswith("SKIPPED [1] tests/test_two.py")
    assert summary.endswith("nowhere is not installed")
    assert "1 passed, 1 skipped" in counts
