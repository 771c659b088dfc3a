"""A task is one frozen row: which environment plays it, with which arguments and seed. Nothing in it is live."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from agentgym_rl.errors import DataError, did_you_mean
from agentgym_rl.prefix import checked
from agentgym_rl.reply_form import FORMS

INSTRUCTIONS = "{{instructions}}"
"""Stands in a task's prompt for what the environment says by itself, such as how its tools are called."""


@dataclass(frozen=True)
class Task:
    """One task. Equal tasks give equal episodes wherever the environment is deterministic."""

    id: str
    """Unique in its file."""
    environment: str
    """Name in the environment registry."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What the environment needs to set this task up (JSON values)."""
    prompt: str = ""
    """System prompt, in which `INSTRUCTIONS` stands for the environment's own; empty: those alone."""
    reference_answer: Any = None
    """What a rule or judge compares with (a JSON value); None: the environment judges by itself."""
    seed: int = 0
    split: str = "train"
    reply_form: str = "bare"
    """How a reply writes its action, a name of `reply_form.FORMS`."""
    prefix: Sequence[Mapping[str, Any]] = ()
    """What is done before the policy's first turn: assistant messages as `prefix.py` has them. They and what the
    environment answers are context. Empty: the policy plays from the environment's start."""

    def __post_init__(self) -> None:
        texts = dict.fromkeys(("id", "environment", "prompt", "split", "reply_form"), str)
        for name, kind in {**texts, "arguments": Mapping, "seed": int}.items():
            value = getattr(self, name)
            if not isinstance(value, kind) or isinstance(value, bool):
                raise DataError(f"a task's {name} must be of type {kind.__name__}; given: {value!r}")
        if not self.id or not self.environment:
            raise DataError(f"a task needs a non-empty id and environment; given: {self.id!r}, {self.environment!r}")
        if self.reply_form not in FORMS:
            raise DataError(f"no reply_form {self.reply_form!r}; {did_you_mean(str(self.reply_form), FORMS)}")
        object.__setattr__(self, "prefix", checked(self.prefix))

    @property
    def replaces_instructions(self) -> bool:
        """The policy is told the task's prompt, and nothing of what the environment says by itself."""
        return bool(self.prompt) and INSTRUCTIONS not in self.prompt

    def system_prompt(self, instructions: str) -> str:
        """What the policy is told, by these instructions of the environment."""
        return self.prompt.replace(INSTRUCTIONS, instructions) if self.prompt else instructions

    def to_dict(self) -> dict[str, Any]:
        """Its fields; without a prefix where it has none, so that digests of such tasks stay what they were."""
        row = asdict(self)
        if not self.prefix:
            del row["prefix"]
        return row

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Read one JSON object.

        Raises:
            DataError: no JSON object, an unknown or missing field, a value of a wrong type.
        """
        try:
            row = json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(f"not valid JSON ({error.msg} at column {error.colno})") from error
        if not isinstance(row, dict):
            raise DataError(f"a task is a JSON object; given: {type(row).__name__}")
        known = [f.name for f in fields(cls)]
        for key in row:
            if key not in known:
                raise DataError(f"a task has no field {key!r}; {did_you_mean(key, known)}")
        missing = [name for name in ("id", "environment") if name not in row]
        if missing:
            raise DataError(f"a task needs the field {missing[0]!r}; given: {', '.join(row) or 'no fields'}")
        return cls(**row)
