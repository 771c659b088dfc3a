"""What the agent loop's tests put on its two sides: a policy server in this process, and an environment that hangs; and
how they play a session between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from doubles import Countdown
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.workers.rollout.replica import TokenOutput

from agentgym_rl.environment import BlockingEnvironment, StepResult
from agentgym_rl.environments import registry
from agentgym_rl.messages import Message, assistant
from agentgym_rl.task import Task
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.agent_loop.environment_loop import EnvironmentAgentLoop
from verl_ext.agent_loop.turn_rewards import TurnRewardOutput

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "logprobs": True}
ROLLOUT = {"prompt_length": 400, "response_length": 600, "calculate_log_probs": True}


def row_of(task: Task) -> dict[str, Any]:
    """verl's arguments of an agent loop."""
    return {"task": task.to_json(), "agent_name": "environment", "session_id": 0, "index": 0, "validation": False}


async def play_row(
    tokenizer: Any,
    client: Any,
    row: dict[str, Any],
    rollout: Any = None,
    uid: str = "g",
    critic: bool = False,
    **agentgym: Any,
) -> list[TurnRewardOutput]:
    """One session; `rollout` and `agentgym` are the sections of the configuration."""
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"rollout": {**ROLLOUT, **(rollout or {})}},
            "critic": {"enable": critic},
            "data": {},
            "agentgym": agentgym,
        }
    )
    wrapped = DictConfigWrap(config)
    loop = EnvironmentAgentLoop(wrapped, client, tokenizer, None, None, data_config=DictConfigWrap(config.data))
    return await loop.run(dict(SAMPLING), uid=uid, **row)


class ScriptedClient:
    """Stands for verl's client: says the lines in order, with newer weights each time; raises what is no line.

    As verl's servers do, it takes keys out of the sampling parameters that it is given.
    """

    def __init__(self, chat: ChatTokens, lines: Iterable[str | Exception], log_probs: bool = True):
        self._chat = chat
        self._lines = iter(lines)
        self._log_probs = log_probs
        self.requests: list[tuple[str, list[int], dict[str, Any]]] = []
        self.said: list[list[int]] = []

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        self.requests.append((request_id, list(prompt_ids), dict(sampling_params)))
        line = next(self._lines)
        if isinstance(line, Exception):
            raise line
        ids = self._chat.encode_reply(line)[: sampling_params.pop("max_tokens")]
        self.said.append(ids)
        steps = 2 + len(self.requests)
        return TokenOutput(
            token_ids=ids,
            log_probs=[-0.5] * len(ids) if self._log_probs else None,
            stop_reason="completed",
            extra_fields={"global_steps": steps, "min_global_steps": steps, "max_global_steps": steps},
        )


class SilentClient:
    """Never answers."""

    async def generate(self, *_: Any, **__: Any) -> TokenOutput:
        await asyncio.Event().wait()
        raise AssertionError


class HangsAtSecondStep(Countdown):
    async def step(self, action: Message) -> StepResult:
        if self.turns == 1:
            await asyncio.Event().wait()
        return await super().step(action)


registry.register("double-hangsatsecondstep", f"{__name__}:HangsAtSecondStep")


def expert_lines(environment: BlockingEnvironment, task: Task) -> list[str]:
    """What the environment's expert says, from the first turn to the last."""
    environment.reset(task)
    lines: list[str] = []
    while True:
        lines.append(environment.expert_action())
        result = environment.step(assistant(lines[-1]))
        if result.terminated or result.truncated:
            return lines


def fails_to_judge(_: Any) -> list[float]:
    """A reward function with a fault."""
    raise ZeroDivisionError("no turn was judged")
