"""Arguments of verl's trainers, which hydra reads."""

from __future__ import annotations

import re
from pathlib import Path

from agentgym_rl.errors import ConfigurationError

_PLAIN = re.compile(r"[\w./:+%@-]+", re.ASCII)
"""A value that hydra reads as text without quotes."""


def config_of(file: str) -> list[str]:
    """How hydra is told to take its configuration from a file.

    Raises:
        ConfigurationError: there is no such file.
    """
    path = Path(file)
    if path.suffix != ".yaml" or not path.is_file():
        raise ConfigurationError(f"config must be a .yaml file; given: {file!r}, which is none")
    return ["--config-dir", str(path.parent.absolute()), "--config-name", path.stem]


def trainer_of(steps: int, checkpoints: Path) -> list[str]:
    """What both trainers are told: how long, where checkpoints go, to go on from the newest, to write metrics."""
    return [
        f"trainer.total_training_steps={steps}",
        override("trainer.default_local_dir", str(checkpoints)),
        "trainer.resume_mode=auto",
        "trainer.logger=[console,file]",
    ]


def override(key: str, value: str) -> str:
    """A hydra override, its value in quotes where hydra would read more than a text."""
    if _PLAIN.fullmatch(value):
        return f"{key}={value}"
    escaped = value.replace("'", "\\'")
    return f"{key}='{escaped}'"
