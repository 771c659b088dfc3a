"""A Hugging Face folder as a policy: the token policy of training on an engine in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from transformers import AutoTokenizer

from agentgym_rl.environment import Environment
from agentgym_rl.policy import SampledTokens
from agentgym_rl.task import Task
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.agent_loop.token_policy import TokenBudget, TokenPolicy
from verl_ext.rollout.engine import Engine, Sampling

CACHE_TOKENS = 131_072
"""Key-value room: what does not fit waits."""


@contextmanager
def checkpoint_policies(
    path: str, temperature: float, max_tokens: int, seed: int
) -> Iterator[Callable[[Environment, Task, int], TokenPolicy]]:
    """Makes one policy an episode, all on one engine.

    Args:
        path: the folder.
        temperature: 0 is greedy.
        max_tokens: of one reply.
        seed: of the sampler.
    """
    chat = ChatTokens(AutoTokenizer.from_pretrained(path))
    engine = Engine.from_folder(path, CACHE_TOKENS, seed)
    context = min(engine.max_position, CACHE_TOKENS)
    stop_ids = tuple(chat.stop_ids)

    async def generate(ids: list[int], most: int) -> SampledTokens:
        sampled = await engine.generate(ids, Sampling(most, temperature, stop_ids))
        return SampledTokens(tuple(sampled.ids), tuple(sampled.logprobs))

    def make_policy(environment: Environment, task: Task, episode: int) -> TokenPolicy:
        return TokenPolicy(generate, chat, TokenBudget(context // 2, context // 2, max_tokens))

    try:
        yield make_policy
    finally:
        engine.drop_batch()
