"""A small generation engine on `transformers`' own continuous batching: token ids in, token ids and log-probs out.

It serves where vLLM and SGLang can't take weight updates: on a CPU. Requests join and leave a running batch one by
one; the key-value blocks of a finished request stay, so that a session's next turn computes only what is new. New
weights drop those blocks. Log-probs are those of the distribution that was sampled from (temperature applied), which
is what verl's trainer recomputes.

Left out: top-p and top-k (RL needs log-probs of the whole distribution), tensor parallelism, sliding windows, images.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig, PreTrainedModel
from transformers.generation.continuous_batching.requests import GenerationOutput, RequestStatus

from agentgym_rl.errors import ConfigurationError, Manner, PolicyFailed
from verl_ext.rollout import packed_attention

BLOCK_TOKENS = 32
"""Tokens of a key-value block: the unit in which a prefix is shared."""
BATCH_TOKENS = 4096
"""Most tokens of one forward pass."""
GREEDY_TEMPERATURE = 1e-6
"""Stands for temperature 0: the most likely token gets all the probability unless logits tie to 6 digits."""
STOP_SECONDS = 60.0
"""How long a pass that is under way may take to end when the batch is dropped."""
WATCH_SECONDS = 1.0
"""How often a waiting request looks whether its batch still runs."""


@dataclass(frozen=True)
class Sampling:
    """How to sample one reply. Temperature 0 is greedy; a reply ends with any of `stop_ids`, which it includes."""

    max_tokens: int
    temperature: float = 1.0
    stop_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ConfigurationError(f"max_tokens must be at least 1; given: {self.max_tokens}")
        if not self.temperature >= 0:
            raise ConfigurationError(f"temperature must be >= 0; given: {self.temperature}")


@dataclass(frozen=True)
class Generation:
    """One sampled reply; `logprobs` has a number for each id. `aborted`: stopped before its end, resume from here."""

    ids: list[int]
    logprobs: list[float]
    aborted: bool = False


class Engine:
    """One model behind one continuous batch. All methods belong to one event loop.

    Args:
        model: a causal language model with full attention.
        max_tokens_in_cache: room for key-value pairs, in tokens; requests beyond it wait.
        seed: of the sampler. The order in which requests arrive matters too, so it does not fix every token.
    """

    def __init__(self, model: PreTrainedModel, max_tokens_in_cache: int, seed: int = 0):
        packed_attention.register()
        model.set_attn_implementation(packed_attention.NAME)
        self._model = model.eval().requires_grad_(False)
        self._blocks = max(max_tokens_in_cache // BLOCK_TOKENS, 8)
        self._seed = seed
        self._numbers = itertools.count()
        self._may_run = asyncio.Event()
        self._may_run.set()
        self._manager: Any = None

    @classmethod
    def from_folder(cls, path: str, max_tokens_in_cache: int, seed: int = 0) -> Engine:
        """Load a Hugging Face folder in float32."""
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        return cls(model, max_tokens_in_cache, seed)

    @property
    def max_position(self) -> int:
        """Longest sequence of the model, in tokens."""
        return self._model.config.max_position_embeddings

    async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Generation:
        """Sample one reply; waits while generation is paused.

        Raises:
            PolicyFailed: the batch broke down.
            ConfigurationError: prompt and reply can never fit into the cache.
        """
        room = self._blocks * BLOCK_TOKENS
        if not prompt_ids or len(prompt_ids) + sampling.max_tokens > room:
            raise ConfigurationError(
                f"a prompt of {len(prompt_ids)} tokens with {sampling.max_tokens} new ones does not fit: "
                f"allowed are 1 to {room} in all"
            )
        while not self._may_run.is_set():  # a pause may follow a resume before this request wakes up
            await self._may_run.wait()
        if self._manager is None or not self._manager.is_running():
            self._manager = self._start()
        manager = self._manager
        request = str(next(self._numbers))
        finished: asyncio.Future[GenerationOutput] = asyncio.get_running_loop().create_future()
        manager.register_result_handler(request, lambda output: finished.done() or finished.set_result(output))
        manager.add_request(
            prompt_ids,
            request_id=request,
            max_new_tokens=sampling.max_tokens,
            eos_token_id=list(sampling.stop_ids),
            temperature=float(sampling.temperature or GREEDY_TEMPERATURE),
        )
        try:
            output = await _outcome(manager, finished)
        except asyncio.CancelledError:
            manager.cancel_request(request)
            raise
        failed = output is None or output.status is RequestStatus.FAILED
        if output is None or (failed and manager.fatal_error is not None):
            if self._manager is manager:  # else the next batch runs already
                self._manager = None
            raise PolicyFailed(f"continuous batching broke down: {manager.fatal_error}", Manner.CRASHED)
        return Generation(list(output.generated_tokens), list(output.logprobs), aborted=failed)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Replace the weights by name, and forget what was computed with the old ones.

        Raises:
            ConfigurationError: a name or shape that the model does not have, or a name that is missing.
        """
        given, own = dict(weights), self._model.state_dict()
        unknown = sorted(given.keys() - own.keys())
        missing = sorted(own.keys() - given.keys() - set(self._model.all_tied_weights_keys))
        misshapen = [name for name in given.keys() & own.keys() if given[name].shape != own[name].shape]
        if unknown or missing or misshapen:
            raise ConfigurationError(
                f"these weights are not this model's: unknown {unknown[:3]}, missing {missing[:3]}, "
                f"of another shape {misshapen[:3]}"
            )
        self.drop_batch()
        self._model.load_state_dict(given, strict=False)

    def drop_batch(self) -> None:
        """Forget all key-value blocks; requests under way come back `aborted` with what they have so far."""
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.stop(block=True, timeout=STOP_SECONDS, hard_stop=True)

    def pause(self) -> None:
        """Abort what is under way and hold new requests until `resume()`."""
        self._may_run.clear()
        self.drop_batch()

    def resume(self) -> None:
        self._may_run.set()

    def _start(self) -> Any:
        # A temperature other than 1 makes transformers keep the processor that each request then sets its own with.
        generation = GenerationConfig(do_sample=True, temperature=0.5, top_k=0, top_p=1.0, eos_token_id=-1)
        batching = ContinuousBatchingConfig(
            block_size=BLOCK_TOKENS,
            num_blocks=self._blocks,
            max_batch_tokens=BATCH_TOKENS,
            return_logprobs=True,
            use_async_batching=False,
            per_request_processors=True,
            seed=self._seed,
        )
        self._seed += 1  # the next batch, with the next weights, must not repeat this one's draws
        manager = self._model.init_continuous_batching(generation, batching)
        # A thread inherits "daemon" from its creator: the batch's thread must not keep a failed process alive.
        starter = threading.Thread(target=manager.start, daemon=True)
        starter.start()
        starter.join()
        return manager


async def _outcome(manager: Any, finished: asyncio.Future[GenerationOutput]) -> GenerationOutput | None:
    """What became of a request; None: the batch ended without a word about it.

    transformers answers no request that arrives while a batch breaks down, or that waits for a batch that can't start.
    """
    while True:
        running = manager.is_running()
        await asyncio.wait({finished}, timeout=WATCH_SECONDS)
        if finished.done():
            return finished.result()
        if not running:
            return None
