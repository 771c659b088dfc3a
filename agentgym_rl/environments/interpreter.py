"""Which Python runs an environment's worker, where its packages clash with verl's.

It is said by an environment variable on the machine that runs the worker: for the environment `textworld`,

    python -m venv /somewhere/textworld && /somewhere/textworld/bin/pip install textworld==1.7.0
    export OPENMANUS_PYTHON_TEXTWORLD=/somewhere/textworld/bin/python

Invariant: the other interpreter (3.10 or later) needs nothing of this project, and sees none of this one's packages. It
loads this very copy of `agentgym_rl`, whose core needs the standard library alone, so both ends speak one protocol.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from agentgym_rl.errors import ConfigurationError

_LOAD_THIS_COPY = """
import importlib.util, runpy, sys
sys.path = [path for path in sys.path if path]  # without the current folder
spec = importlib.util.spec_from_file_location("agentgym_rl", sys.argv.pop(1))
sys.modules["agentgym_rl"] = importlib.util.module_from_spec(spec)
runpy.run_module("agentgym_rl.environments.worker", run_name="__main__", alter_sys=True)
"""
"""Not by PYTHONPATH: in an installed project, this package's folder lies among the packages that clash."""


def variable_of(name: str) -> str:
    """The environment variable that names an environment's interpreter: "my-maze" -> "OPENMANUS_PYTHON_MY_MAZE"."""
    return "OPENMANUS_PYTHON_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def interpreter_of(name: str) -> str | None:
    """The path of the Python that is asked for; None: this process's own.

    Args:
        name: of an environment, as its tasks give it.

    Raises:
        ConfigurationError: what is asked for can't be run.
    """
    given = os.environ.get(variable_of(name))
    if not given:
        return None
    found = shutil.which(given)
    if found is None:
        raise ConfigurationError(f"{variable_of(name)} must name a Python that can be run; given: {given!r}")
    return found


def worker_command(target: str, interpreter: str | None) -> list[str]:
    """How a worker for "module:Class" is started, by this interpreter (None, with its `sys.path`) or another."""
    if interpreter is None:
        paths = [path for path in sys.path if path]  # not as PYTHONPATH: the worker's children would inherit it
        return [sys.executable, "-m", "agentgym_rl.environments.worker", target, *paths]
    this_copy = Path(__file__).parents[1] / "__init__.py"
    return [interpreter, "-c", _LOAD_THIS_COPY, str(this_copy), target]


def worker_variables(interpreter: str | None, own: Mapping[str, str]) -> dict[str, str]:
    """A worker's environment variables: this process's, those of its `own`, and one hash seed for all.

    Another interpreter does not inherit where this one looks for its packages.
    """
    here = dict(os.environ)
    if interpreter is not None:
        here = {name: value for name, value in here.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return {**here, "PYTHONHASHSEED": "0", **own}
