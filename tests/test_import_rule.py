"""Imports point one way: data_preprocess -> agentgym_rl <- verl_ext -> verl; and importing agentgym_rl stays light."""

import ast
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAVY = {"verl", "ray", "torch", "transformers", "tensordict", "vllm", "sglang"}
OWN = {"agentgym_rl", "verl_ext", "data_preprocess", "recipes", "tests"}


def files_of(package):
    return sorted((ROOT / package).rglob("*.py"))


def imported_by(source):
    """Top-level packages that a source imports, at any depth of it; relative imports stay in the package."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            names |= {a.value.partition(".")[0] for a in node.args if isinstance(a, ast.Constant)}
    return names


def offenders(package, forbidden):
    found = {str(path.relative_to(ROOT)): imported_by(path.read_text()) & forbidden for path in files_of(package)}
    return {path: names for path, names in found.items() if names}


def test_the_reader_of_imports_finds_each_form():
    source = """
import ray.util
from torch import nn
from . import tokens
def f():
    import verl
    importlib.import_module("vllm.engine")
"""
    assert imported_by(source) == {"ray", "torch", "verl", "vllm"}


def test_there_are_files_to_read():
    assert len(files_of("agentgym_rl")) > 10


def test_agentgym_rl_imports_neither_verl_nor_anything_heavy_not_even_inside_a_function():
    assert offenders("agentgym_rl", HEAVY) == {}


def test_agentgym_rl_imports_no_other_part_of_this_repository():
    assert offenders("agentgym_rl", OWN - {"agentgym_rl"}) == {}


def test_verl_ext_imports_only_agentgym_rl_of_this_repository():
    assert offenders("verl_ext", OWN - {"verl_ext", "agentgym_rl"}) == {}


def test_data_preprocess_imports_only_agentgym_rl_of_this_repository_and_nothing_heavy():
    assert offenders("data_preprocess", HEAVY | OWN - {"data_preprocess", "agentgym_rl"}) == {}


LOADER = """
import importlib, json, sys
for name in json.loads(sys.argv[1]):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] in ("agentgym_rl", "verl_ext"):
            raise
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def loaded_by(modules):
    """Top-level packages that a fresh interpreter has loaded after these imports; what is not installed is left out."""
    done = subprocess.run(
        [sys.executable, "-c", LOADER, json.dumps(modules)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_every_module_of_agentgym_rl_loads_nothing_heavy():
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files_of("agentgym_rl")]
    modules = [name.removesuffix(".__init__") for name in modules if not name.endswith("__main__")]
    assert loaded_by(modules) & (HEAVY | OWN) == {"agentgym_rl"}


def test_playing_an_episode_needs_the_standard_library_alone():
    core = ["agentgym_rl.episode", "agentgym_rl.rewards", "agentgym_rl.environments.contract"]
    assert loaded_by(core) - loaded_by([]) - set(sys.stdlib_module_names) == {"agentgym_rl"}
