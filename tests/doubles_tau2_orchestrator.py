"""The package's own orchestrator and evaluator, given what both sides said: run by the interpreter that has tau2.

Reads a JSON list of plays, {domain, task, agent, customer}, whose messages are chat dictionaries; prints the rewards.
"""

import json
import sys
from functools import cache

from tau2.data_model.message import AssistantMessage, ToolCall, UserMessage
from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation
from tau2.orchestrator.orchestrator import Orchestrator
from tau2.registry import registry


class Side:
    """An agent or a user that says what it is given."""

    def __init__(self, kind, role, messages):
        self._kind, self._role, self._messages = kind, role, iter(messages)

    def get_init_state(self, message_history=None):
        return None

    def generate_next_message(self, message, state):
        said = next(self._messages)
        calls = [
            ToolCall(
                id=f"{self._role}-{id(said)}-{n}",
                name=call["function"]["name"],
                arguments=call["function"]["arguments"],
                requestor=self._role,
            )
            for n, call in enumerate(said.get("tool_calls", ()))
        ]
        return self._kind(role=self._role, content=said["content"] or None, tool_calls=calls or None), state

    def is_stop(self, message):
        return False

    def stop(self, message, state):
        pass


@cache
def tasks(domain):
    return {task.id: task for task in registry.get_tasks_loader(domain)()}


def reward(play):
    domain = play["domain"]
    task = tasks(domain)[play["task"]]
    agent = Side(AssistantMessage, "assistant", play["agent"])
    user = Side(UserMessage, "user", play["customer"])
    run = Orchestrator(domain, agent, user, registry.get_env_constructor(domain)(), task, max_steps=500).run()
    return evaluate_simulation(run, task, EvaluationType.ALL, solo_mode=False, domain=domain).reward


print(json.dumps([reward(play) for play in json.load(sys.stdin)]))
