"""What references stand for, stage after stage: a reference only ever looks back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.training.references import NAME

RESERVED = ("policy", "out", "round")
_ROUND = re.compile(r"round-\d+")


class Names:
    """The names that the next stage may use.

    Args:
        variables: name -> text.
        stages: the short names of all stages.
        policy: where training begins; None: nowhere yet.

    Raises:
        ConfigurationError: a stage or variable has a name that it can't have.
    """

    def __init__(self, variables: Mapping[str, str], stages: Iterable[str], policy: str | None):
        self._variables = variables
        self._stages = set(stages)
        self._folders: dict[str, str] = {}
        self._policy = policy
        for name in variables:
            if name in RESERVED:
                raise ConfigurationError(f"no variable can be called {name!r}: {{{name}}} has a meaning of its own")
        for name in sorted(self._stages):
            self._require_free(name)

    def known(self, folder: Path, round_number: int | None) -> dict[str, str]:
        """Name -> text, for the stage in this folder."""
        known = {**self._variables, **self._folders, "out": str(folder)}
        if self._policy is not None:
            known["policy"] = self._policy
        if round_number is not None:
            known["round"] = str(round_number)
        return known

    def why_not(self, name: str) -> str:
        """Why a name stands for nothing; empty where there is nothing more to say."""
        if name in self._stages:
            return "that stage does not come before this one"
        if name == "policy":
            return "no stage before it trains one: give the plan's `policy`"
        if name == "round":
            return "this stage is in no block of rounds"
        return ""

    def passed(self, name: str, folder: Path, policy: Path | None) -> None:
        """This stage comes before those that follow."""
        self._folders[name] = str(folder)
        if policy is not None:
            self._policy = str(policy)

    def _require_free(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise ConfigurationError(f"a stage's name is lower case, such as warm-start; given: {name!r}")
        if name in RESERVED:
            raise ConfigurationError(f"no stage can be called {name!r}: {{{name}}} has a meaning of its own")
        if _ROUND.fullmatch(name):
            raise ConfigurationError(f"no stage can be called {name!r}: that is the folder of a round")
        if name in self._variables:
            raise ConfigurationError(f"no stage can be called {name!r}: that is a variable's name")
