"""The world of a tau2-bench task: the package's databases, tools and policy, and its verdict on what was said and done.

Invariant: the record is in the package's own form and holds every call that was carried out, since the verdict makes
the calls again in a world of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from agentgym_rl.errors import ConfigurationError, did_you_mean
from agentgym_rl.inline_schema import inlined
from agentgym_rl.messages import ToolCall
from agentgym_rl.task import Task
from agentgym_rl.tools import ToolSchema

INSTALL = 'pip install "openmanus-rl[tau2]", or name an interpreter that has it: OPENMANUS_PYTHON_TAU2=/path/to/python'
DOMAINS = ("airline", "retail", "telecom")
Speaker = Literal["assistant", "user"]
"""As the package calls them: the agent and the customer."""

LONGEST_EXPRESSION = 200
"""Characters of a sum for `calculate`, which evaluates it as Python."""
DEEPEST = 20
"""Lists and objects inside one another in a call's arguments; the package copies them by recursion."""


class Reference(NamedTuple):
    """A call of the package's list of actions."""

    call: ToolCall
    by_customer: bool


class World:
    """One task's world from its beginning on.

    Args:
        task: `domain` and `task` in its arguments say which.
        solo: the agent holds the customer's phone itself, and there is nobody to talk to (telecom only).

    Raises:
        ConfigurationError: no such domain or task, or the package is not there.
    """

    def __init__(self, task: Task, solo: bool):
        self._domain = domain_of(task)
        self._solo = solo
        self._task = _task_of(self._domain, task.arguments.get("task"))
        self._world = _registry().get_env_constructor(self._domain)(solo_mode=solo)
        initial = self._task.initial_state
        if initial is not None:
            self._world.set_state(initial.initialization_data, initial.initialization_actions, [])
        self._record: list[Any] = []
        self.errors = 0
        """Calls that failed, whoever made them."""
        self.policy: str = self._world.get_policy()
        self.desk = _schemas(self._world.get_tools())
        self.phone = _schemas(self._world.get_user_tools()) if self._world.user_tools is not None else ()
        """The customer's own tools."""

    @property
    def ticket(self) -> str:
        """What an agent alone is told."""
        return self._task.ticket

    @property
    def scenario(self) -> Mapping[str, str]:
        """What the customer knows and wants, part by part, in the package's words: "you" is the customer."""
        given = self._task.user_scenario.instructions
        named = ("reason_for_call", "known_info", "unknown_info", "task_instructions")
        said = {name: (getattr(given, name) or "").strip() for name in named}
        return {name: text for name, text in said.items() if text.strip(".")}  # some are a lone dot

    @property
    def customer_prompt(self) -> str:
        """The package's guidelines for a model that plays the customer, with the scenario."""
        from tau2.user.user_simulator import UserSimulator

        tools = list(self._world.get_user_tools()) if self.phone else None
        return UserSimulator(tools=tools, instructions=str(self._task.user_scenario)).system_prompt

    def reference(self) -> list[Reference]:
        """The package's list of actions, in order."""
        actions = self._task.evaluation_criteria.actions or ()
        return [Reference(ToolCall(a.name, a.arguments), a.requestor == "user") for a in actions]

    def to_be_told(self) -> list[str]:
        """What the agent's words must hold somewhere."""
        return list(self._task.evaluation_criteria.communicate_info or ())

    def say(self, speaker: Speaker, words: str) -> None:
        """Put words on record."""
        from tau2.data_model.message import AssistantMessage, UserMessage

        kind = AssistantMessage if speaker == "assistant" else UserMessage
        self._record.append(kind(role=speaker, content=_whole(words)))

    def carry_out(self, speaker: Speaker, calls: Sequence[ToolCall]) -> list[str]:
        """What each call answers; one that fails answers "Error: ..."."""
        from tau2.data_model.message import AssistantMessage, UserMessage
        from tau2.data_model.message import ToolCall as TheirCall

        results: list[str] = []
        made: list[Any] = []
        answers: list[Any] = []
        for call in calls:
            refusal = _refusal(call)
            if refusal:
                self.errors += 1
                results.append(refusal)
                continue
            arguments = json.loads(_whole(json.dumps(dict(call.arguments), ensure_ascii=False)))
            identifier = f"call-{len(self._record)}-{len(made)}"
            made.append(TheirCall(id=identifier, name=_whole(call.name), arguments=arguments, requestor=speaker))
            answers.append(self._world.get_response(made[-1]))
            self.errors += answers[-1].error
            results.append(answers[-1].content)
        if made:
            kind = AssistantMessage if speaker == "assistant" else UserMessage
            self._record += [kind(role=speaker, tool_calls=made), *answers]
        return results

    def reward(self) -> float:
        """The package's verdict, from 0 to 1, as if the conversation ended here."""
        from tau2.data_model.simulation import TerminationReason
        from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation

        reason = TerminationReason.AGENT_STOP if self._solo else TerminationReason.USER_STOP
        ended = SimpleNamespace(termination_reason=reason, messages=self._record)
        verdict = evaluate_simulation(ended, self._task, EvaluationType.ALL, solo_mode=self._solo, domain=self._domain)
        return verdict.reward


def domain_of(task: Task) -> str:
    """
    Raises:
        ConfigurationError: there is no such domain.
    """
    domain = task.arguments.get("domain", "telecom")
    if domain not in DOMAINS:
        raise ConfigurationError(f"tau2 has no domain {domain!r}; {did_you_mean(str(domain), DOMAINS)}")
    return domain


def _refusal(call: ToolCall) -> str:
    """Why a call is not passed on to the package; empty: it is."""
    if _is_deeper(call.arguments, DEEPEST):
        return f"Error: arguments may have {DEEPEST} lists and objects inside one another"
    expression = str(call.arguments.get("expression", ""))
    if call.name == "calculate" and ("**" in expression or len(expression) > LONGEST_EXPRESSION):
        return f"Error: an expression has {LONGEST_EXPRESSION} characters at most, and no powers"
    return ""


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, Mapping | list):
        return False
    inner = value.values() if isinstance(value, Mapping) else value
    return levels == 0 or any(_is_deeper(item, levels - 1) for item in inner)


def _whole(text: str) -> str:
    """The package takes no halves of surrogate pairs."""
    return text.encode(errors="replace").decode()


def _schemas(tools: Sequence[Any]) -> tuple[ToolSchema, ...]:
    functions = [tool.openai_schema["function"] for tool in tools]
    return tuple(ToolSchema(f["name"], f["description"], inlined(f["parameters"], f["name"])) for f in functions)


def _task_of(domain: str, identifier: Any) -> Any:
    known = _tasks(domain)
    if not isinstance(identifier, str) or identifier not in known:
        raise ConfigurationError(
            f"a tau2 task needs the argument 'task', one of the {len(known)} of {domain}; given: {identifier!r};"
            f" {did_you_mean(str(identifier), known)}"
        )
    return known[identifier]


@cache
def _tasks(domain: str) -> Mapping[str, Any]:
    return {task.id: task for task in _registry().get_tasks_loader(domain)()}


@cache
def _registry() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # or importing it asks a web page for prices
    try:
        from loguru import logger

        logger.remove()  # it would write each call to stderr
        from tau2.registry import registry
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"tau2 needs {str(error.name).partition('.')[0]!r}: {INSTALL}") from error
    return registry
