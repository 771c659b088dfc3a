"""verl's client for one session: sampling parameters, sticky request id, weight versions seen."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any
from uuid import uuid4

from verl.workers.rollout.replica import TokenOutput

from agentgym_rl.policy import SampledTokens


class SessionServer:
    """What a session's token policy samples from.

    Args:
        client: verl's.
        sampling_params: of the run.
        stop_ids: sampling stops at these.
        limit: entered around each call.
    """

    def __init__(
        self,
        client: Any,
        sampling_params: dict[str, Any],
        stop_ids: frozenset[int],
        limit: AbstractAsyncContextManager[None],
    ):
        self._limit = limit
        self._client = client
        self._sampling = {**sampling_params, "stop_token_ids": sorted(stop_ids)}
        self._session = uuid4().hex
        self.gives_logprobs = True
        self.weight_versions: dict[str, int | None] = {}

    async def generate(self, ids: list[int], max_tokens: int) -> SampledTokens:
        # A new dictionary each time: servers pop keys from it.
        sampling = {**self._sampling, "max_tokens": max_tokens}
        async with self._limit:
            output: TokenOutput = await self._client.generate(
                request_id=self._session, prompt_ids=ids, sampling_params=sampling
            )
        seen = output.extra_fields
        self.weight_versions.setdefault("min_global_steps", seen.get("min_global_steps"))
        self.weight_versions["max_global_steps"] = seen.get("max_global_steps")
        if len(output.log_probs or ()) != len(output.token_ids):
            self.gives_logprobs = False
        logprobs = tuple(output.log_probs or ()) if self.gives_logprobs else (0.0,) * len(output.token_ids)
        return SampledTokens(tuple(output.token_ids), logprobs)
