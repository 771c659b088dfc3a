"""A customer of tau2-bench who is played by a model on an OpenAI-compatible server.

Invariant: a server that fails is an `EnvironmentFailed`, never an answer: whoever acts for the customer is part of the
environment, so no policy is to blame.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from agentgym_rl.environment import Environment
from agentgym_rl.environments.tau2_world import World
from agentgym_rl.errors import (
    BudgetExhausted,
    ConfigurationError,
    EnvironmentFailed,
    Manner,
    boundary,
    require_allowed_keys,
)
from agentgym_rl.messages import Message, assistant, system
from agentgym_rl.policy import ServerPolicy
from agentgym_rl.tool_calls import parse

OURS = ("model", "messages", "tools", "stream", "n")
"""Parameters of a request that are not the user's."""
_WHAT = "the customer's server"


@dataclass(frozen=True)
class CustomerServer:
    """Which model plays the customer, and how long it is given."""

    url: str
    """Of the server, e.g. http://127.0.0.1:8000/v1. OPENAI_API_KEY is its key, if it asks for one."""
    model: str
    """The model's name on that server."""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0.0})
    """Passed to the server as they are; its `seed` is the task's unless it is given here."""
    tries: int = 4
    """For one message, the first included; after a lost connection, a full or a broken server."""
    deadline_seconds: float = 25.0
    """For one message, all tries and waits together; below that of an environment's step, so that the server is
    named."""

    def __post_init__(self) -> None:
        if not str(self.url).startswith(("http://", "https://")) or not isinstance(self.model, str) or not self.model:
            raise ConfigurationError(
                "a customer's server needs a 'url' that begins with http:// or https:// and the name of a 'model';"
                f" given: {self.url!r}, {self.model!r}"
            )
        counted = isinstance(self.tries, int) and isinstance(self.deadline_seconds, int | float)
        if not counted or self.tries < 1 or not self.deadline_seconds > 0:
            raise ConfigurationError(
                "a customer's server needs 'tries' of at least 1 and 'deadline_seconds' above 0; given:"
                f" {self.tries!r}, {self.deadline_seconds!r}"
            )
        if not isinstance(self.parameters, Mapping) or set(OURS) & set(self.parameters):
            raise ConfigurationError(
                f"a customer's 'parameters' are an object without {', '.join(OURS)}; given: {self.parameters!r}"
            )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> CustomerServer:
        """Read a task's argument.

        Raises:
            ConfigurationError: an unknown, missing or impossible value.
        """
        require_allowed_keys(given, [known.name for known in fields(cls)], "a customer's server")
        return cls(**{"url": "", "model": "", **given})


class ServerCustomer:
    """Follows the package's guidelines for simulated users.

    Raises:
        ConfigurationError: the package `openai` is not there.
    """

    def __init__(self, world: World, server: CustomerServer, seed: int):
        phone = Environment()
        phone.tools = world.phone
        self._prompt = system(world.customer_prompt)
        self._policy = ServerPolicy(_client(server), server.model, phone, **{"seed": seed, **server.parameters})
        self._deadline_seconds = server.deadline_seconds

    def say(self, conversation: Sequence[Message]) -> Message:
        asking = self._ask([self._prompt, *conversation])
        return asyncio.run(boundary(asking, EnvironmentFailed, _WHAT, self._deadline_seconds))

    def has_more(self, conversation: Sequence[Message]) -> bool:
        return not conversation

    async def _ask(self, conversation: Sequence[Message]) -> Message:
        import openai

        try:
            said = (await self._policy.reply(conversation)).message
        except BudgetExhausted as error:  # of the customer's model, not of the policy
            raise EnvironmentFailed(f"{_WHAT}: {error}") from error
        except openai.APITimeoutError as error:
            raise EnvironmentFailed(f"{_WHAT} was silent", Manner.TIMED_OUT) from error
        except openai.APIConnectionError as error:
            raise EnvironmentFailed(f"{_WHAT} gave no connection ({error.__cause__})", Manner.CRASHED) from error
        except (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError) as error:
            raise ConfigurationError(f"{_WHAT} refused the key, the url or the model: {error}") from error
        if said.tool_calls:
            return said
        words = parse(said.content, "native")
        if words.problem or not words.content:
            raise EnvironmentFailed(f"{_WHAT} gave neither words nor a call of the phone: {said.content!r:.200}")
        return assistant(words.content)


def _client(server: CustomerServer) -> Any:
    """A client that keeps no idle connection: each message has an event loop of its own."""
    try:
        import openai
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f'a customer\'s server needs {error.name!r}: pip install "openmanus-rl[server]"'
        ) from error
    return openai.AsyncOpenAI(
        base_url=server.url,
        api_key=os.environ.get("OPENAI_API_KEY", "none"),
        max_retries=server.tries - 1,
        timeout=server.deadline_seconds,
        default_headers={"Connection": "close"},
    )
