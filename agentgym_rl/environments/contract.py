"""The environment contract as code: what every environment promises, and what its `facts` promise on top.

The rules themselves stand in `contract_rules`. `facts` and `answers` come first, and nothing more is checked on an
environment that breaks one of those two: it could only fail the same way again, one deadline after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentgym_rl.environments import registry
from agentgym_rl.environments.contract_play import Broken, Subject
from agentgym_rl.environments.contract_rules import RULES, NotChecked, Rule, facts_of
from agentgym_rl.episode import Limits
from agentgym_rl.errors import AgentGymError, ConfigurationError
from agentgym_rl.task import Task


@dataclass(frozen=True)
class Result:
    """How one rule came out."""

    rule: str
    passed: bool | None
    """None: not checked; the message says why."""
    message: str = ""

    def __str__(self) -> str:
        mark = {True: "ok  ", False: "FAIL", None: "-   "}[self.passed]
        return f"{mark} {self.rule}" + (f": {self.message}" if self.message else "")


@dataclass(frozen=True)
class Report:
    """Every rule's result, in order. As text: one line a rule."""

    environment: str
    results: tuple[Result, ...]

    @property
    def broken(self) -> tuple[Result, ...]:
        return tuple(result for result in self.results if result.passed is False)

    def raise_if_failed(self) -> None:
        """
        Raises:
            ContractBroken: a rule does not hold; the message names each.
        """
        if self.broken:
            lines = "".join(f"\n  {result.rule}: {result.message}" for result in self.broken)
            raise ContractBroken(f"environment {self.environment!r} breaks its contract:{lines}")

    def __str__(self) -> str:
        return "\n".join(map(str, self.results))


class ContractBroken(AgentGymError):
    """At least one rule of the environment contract does not hold."""


async def check_environment(
    name: str,
    tasks: Sequence[Task],
    limits: Limits | None = None,
    isolation: registry.Isolation = "thread",
) -> Report:
    """Hold an environment to its contract.

    Args:
        name: in the registry.
        tasks: what it is checked on; at least one, better several with different seeds.
        limits: deadlines of reset and step.
        isolation: how instances are made.

    Raises:
        ConfigurationError: no task, a task of another environment, or the environment can't be imported.
    """
    strangers = [task.id for task in tasks if task.environment != name]
    if not tasks or strangers:
        raise ConfigurationError(f"checking {name!r} needs tasks of it; given: {', '.join(strangers) or 'none'}")
    try:
        facts = facts_of(name, isolation)
    except Broken as error:
        return Report(name, (Result("facts", False, str(error)), *_skipped(list(RULES), "facts")))
    subject = Subject(name, facts, tuple(tasks), limits or Limits(), isolation)
    results = [Result("facts", True)]
    for rule, check in RULES.items():
        results.append(await _checked(rule, check, subject))
        if rule == "answers" and not results[-1].passed:
            return Report(name, (*results, *_skipped(list(RULES)[1:], rule)))
    return Report(name, tuple(results))


async def _checked(rule: str, check: Rule, subject: Subject) -> Result:
    try:
        await check(subject)
    except NotChecked as reason:
        return Result(rule, None, str(reason))
    except AgentGymError as error:
        return Result(rule, False, str(error))
    return Result(rule, True)


def _skipped(rules: list[str], first: str) -> Iterator[Result]:
    return (Result(rule, None, f"not checked: {first!r} is broken") for rule in rules)
