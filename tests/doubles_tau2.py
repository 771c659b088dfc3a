"""tau2 without its `await`s, and a chat server on loopback that plays the customer by a script."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager

from doubles_agentgym import running
from doubles_judge import ScriptedChat

from agentgym_rl.environments import registry
from agentgym_rl.environments.interpreter import interpreter_of
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from agentgym_rl.tools import ToolSchema

HAS_TAU2 = interpreter_of("tau2") is not None or importlib.util.find_spec("tau2") is not None
ROAMING = "[mobile_data_issue]airplane_mode_on|user_abroad_roaming_enabled_off[PERSONA:None]"


def task(name: str = ROAMING, seed: int = 0, **arguments) -> Task:
    return Task(name, "tau2", {"task": name, **arguments}, seed=seed)


def calling(name: str, **arguments) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def seen(result) -> str:
    return "\n".join(message.content for message in result.observation)


class Game:
    """One environment for all tests of a module, which takes ten seconds to start."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._environment = self._loop.run_until_complete(self._made())

    async def _made(self):
        return registry.make("tau2")

    @property
    def instructions(self) -> str:
        return self._environment.instructions

    @property
    def tools(self):
        return self._environment.tools

    @property
    def facts(self):
        return self._environment.facts

    def reset(self, *given, **arguments) -> str:
        return self.reset_to(task(*given, **arguments))

    def reset_to(self, task: Task) -> str:
        (opening,) = self._loop.run_until_complete(self._environment.reset(task))
        return opening.content

    def say(self, *replies):
        """The result of the last reply, a text or a message."""
        for reply in replies:
            action = assistant(reply) if isinstance(reply, str) else reply
            result = self._loop.run_until_complete(self._environment.step(action))
        return result

    def expert(self) -> str:
        return self._loop.run_until_complete(self._environment.expert_action())

    def by_expert(self):
        """The results of all turns."""
        results = []
        while not results or not (results[-1].terminated or results[-1].truncated):
            results.append(self.say(self.expert()))
        return results

    def snapshot(self) -> bytes:
        return self._loop.run_until_complete(self._environment.snapshot())

    def restore(self, snapshot: bytes) -> None:
        self._loop.run_until_complete(self._environment.restore(snapshot))

    def close(self) -> None:
        self._loop.run_until_complete(self._environment.close())
        self._loop.close()


class PhoneWorld:
    """What a customer sees of a world: a scenario of two parts and a phone whose tools answer with their arguments."""

    scenario = {"reason_for_call": "I want my data back.", "known_info": "I am John."}
    customer_prompt = "Play John."
    phone = tuple(
        ToolSchema(name, "", {"type": "object"}) for name in ("toggle_wifi", "toggle_wifi_calling", "set_mode")
    )

    def __init__(self) -> None:
        self.record: list[tuple[str, str]] = []

    def say(self, speaker, words) -> None:
        self.record.append((speaker, words))

    def carry_out(self, speaker, calls) -> list[str]:
        self.record += [(speaker, call.name) for call in calls]
        return [json.dumps(call.arguments) for call in calls]


class ScriptedCustomerChat(ScriptedChat):
    """As `ScriptedChat`; an entry that is a list holds calls of the phone, (name, arguments as JSON text)."""

    def _body(self, entry) -> bytes:
        if not isinstance(entry, list):
            return super()._body(entry)
        answer = json.loads(super()._body(""))
        calls = [
            {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for n, (name, arguments) in enumerate(entry)
        ]
        answer["choices"][0].update(finish_reason="tool_calls")
        answer["choices"][0]["message"].update(content=None, tool_calls=calls)
        return json.dumps(answer).encode()


@contextmanager
def customers() -> Iterator:
    """One server for many scripts: `server, user = script("Hello.", 429, "###STOP###")`."""
    current: list[ScriptedCustomerChat] = []

    async def app(scope, receive, send):
        if scope["type"] == "http":
            await current[-1](scope, receive, send)

    with running(app) as address:

        def script(*entries, **settings):
            current.append(ScriptedCustomerChat(*entries))
            return current[-1], {"url": f"{address}/v1", "model": "m", **settings}

        yield script
