"""Which code and which weights made a trajectory, in a word each."""

from __future__ import annotations

import functools
import hashlib
import subprocess
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

from agentgym_rl.environments import registry

PACKAGE = "openmanus-rl"
WEIGHTS = ("*.safetensors", "*.bin", "*.json", "*.txt", "*.model", "*.jinja")
"""The files that decide what a checkpoint says."""
CHUNK_BYTES = 1 << 24


@functools.cache  # the code that runs is that of the start
def code_version() -> str:
    """Version of this package, with the commit where it runs from a git checkout (".dirty" if that was changed)."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    if not commit:
        return _released()
    dirty = ".dirty" if _git("status", "--porcelain", "--untracked-files=no") else ""
    return f"{_released()}+g{commit}{dirty}"


def _released() -> str:
    try:
        return version(PACKAGE)
    except PackageNotFoundError:  # run from a folder that was never installed
        return "0"


def _git(*arguments: str) -> str:
    """What git says about the folder of this package; empty where there is no git or no checkout."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""  # installed: git would find whatever checkout the packages lie in
    try:
        done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@functools.cache  # looks through all that is installed
def environment_version(name: str) -> str:
    """Distribution and version of the package that an environment's class comes from, e.g. "openmanus-rl 0.1.0"."""
    module = registry.target(name).partition(":")[0].partition(".")[0]
    if module == __name__.partition(".")[0]:
        return f"{PACKAGE} {_released()}"
    found = packages_distributions().get(module)
    return f"{found[0]} {version(found[0])}" if found else module


def checkpoint_digest(folder: str | Path) -> str:
    """16 hexadecimal digits of a checkpoint's files: two folders with the same ones hold the same policy."""
    digest = hashlib.sha256()
    files = sorted({path for pattern in WEIGHTS for path in Path(folder).glob(pattern)})
    for path in files:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()[:16]


def policy_version(spec: str) -> str:
    """A policy's spec, with the digest of its files where it is a checkpoint."""
    kind, _, argument = spec.partition(":")
    if kind != "checkpoint" or not Path(argument).is_dir():
        return spec
    return f"{spec}#{checkpoint_digest(argument)}"
